"""The ``volume.*`` methods of the admin protocol."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor.control import protocol
from acstor.control.server import Method
from acstor.dataplane import parameters
from acstor.dataplane.volumes.logs.aside import is_aside_name


class VolumeOperations(Protocol):
    """What the methods act on; :class:`acstor.dataplane.volumes.volumes.Volumes`."""

    def open(self, volume: str, role: str) -> dict[str, object]: ...  # noqa: D102
    def close(self, volume: str, force: bool) -> None: ...  # noqa: D102
    def list_volumes(self) -> list[dict[str, object]]: ...  # noqa: D102
    def status(self, volume: str) -> dict[str, object]: ...  # noqa: D102
    def push(self, volume: str) -> dict[str, object]: ...  # noqa: D102
    def freeze(  # noqa: D102
        self, volume: str, timeout_s: float, holder: str | None
    ) -> None: ...
    def thaw(self, volume: str, holder: str | None) -> dict[str, object]: ...  # noqa: D102
    def resize(self, volume: str, size_bytes: int) -> None: ...  # noqa: D102
    def set_durability(self, volume: str, durability: Mapping[str, Any]) -> None: ...  # noqa: D102
    def set_limits(self, volume: str, iops: int, bytes_per_s: int) -> None: ...  # noqa: D102
    def fold(self, volume: str) -> dict[str, object]: ...  # noqa: D102
    def give_up(self, volume: str) -> dict[str, object]: ...  # noqa: D102
    def list_aside(self) -> list[dict[str, object]]: ...  # noqa: D102
    def remove_aside(self, name: str) -> dict[str, object]: ...  # noqa: D102
    def restore_aside(self, name: str) -> None: ...  # noqa: D102
    def export_aside(self, name: str, path: str) -> dict[str, object]: ...  # noqa: D102


def _is_size(value: Any) -> bool:
    return parameters.is_int(512, protocol.VOLUME_BYTES_MAX)(value) and value % 512 == 0


_VOLUME = ("volume", parameters.is_id, "a volume id (a UUID in lower case)")
_ROLE = (
    "role",
    parameters.is_one_of(tuple(protocol.VolumeRole)),
    " or ".join(protocol.VolumeRole),
)
_FORCE = ("force", parameters.is_flag, "true or false")
_FREEZE_TIMEOUT = (
    "timeout_s",
    parameters.is_seconds(protocol.VOLUME_FREEZE_MAX),
    f"seconds, above 0, at most {protocol.VOLUME_FREEZE_MAX:g}",
)
_HOLDER = (
    "holder",
    protocol.is_freeze_holder,
    f"left out, or text of at most {protocol.VOLUME_HOLDER_LENGTH_MAX} characters",
)
_SIZE = ("size_bytes", _is_size, "a multiple of 512, at most 2^50")
_DURABILITY = ("durability", lambda value: isinstance(value, dict), "an object")
_NAME = (
    "name",
    lambda value: isinstance(value, str) and is_aside_name(value),
    "a name of volume.list_aside",
)
_PATH = ("path", parameters.is_path, "an absolute path")
_RATE = parameters.is_int(0, protocol.VOLUME_RATE_MAX)
_IOPS = ("iops", _RATE, "0 to 2^40 requests per second; 0: no limit")
_BYTES_PER_S = ("bytes_per_s", _RATE, "0 to 2^40 bytes per second; 0: no limit")


def volume_methods(volumes: VolumeOperations) -> dict[str, Method]:
    """Return the methods by name, with their parameters checked before they are called."""
    done = parameters.done
    methods: dict[str, tuple[Callable[..., object], tuple[parameters.Parameter, ...]]] = {
        "volume.open": (volumes.open, (_VOLUME, _ROLE)),
        "volume.close": (done(volumes.close), (_VOLUME, _FORCE)),
        "volume.list": (volumes.list_volumes, ()),
        "volume.status": (volumes.status, (_VOLUME,)),
        "volume.push": (volumes.push, (_VOLUME,)),
        "volume.freeze": (done(volumes.freeze), (_VOLUME, _FREEZE_TIMEOUT, _HOLDER)),
        "volume.thaw": (volumes.thaw, (_VOLUME, _HOLDER)),
        "volume.resize": (done(volumes.resize), (_VOLUME, _SIZE)),
        "volume.set_durability": (done(volumes.set_durability), (_VOLUME, _DURABILITY)),
        "volume.set_limits": (done(volumes.set_limits), (_VOLUME, _IOPS, _BYTES_PER_S)),
        "volume.fold": (volumes.fold, (_VOLUME,)),
        "volume.give_up": (volumes.give_up, (_VOLUME,)),
        "volume.list_aside": (volumes.list_aside, ()),
        "volume.remove_aside": (volumes.remove_aside, (_NAME,)),
        "volume.restore_aside": (done(volumes.restore_aside), (_NAME,)),
        "volume.export_aside": (volumes.export_aside, (_NAME, _PATH)),
    }
    return {
        name: parameters.checked(name, wanted, action) for name, (action, wanted) in methods.items()
    }
