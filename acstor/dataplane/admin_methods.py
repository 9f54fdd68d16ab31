"""The methods of the admin protocol."""

import re
from collections.abc import Callable
from typing import Protocol

from acstor.control import protocol
from acstor.control.server import Method
from acstor.dataplane import parameters
from acstor.dataplane.volumes.methods import VolumeOperations, volume_methods


class Operations(Protocol):
    """What the methods act on; the real one is the data plane's host process."""

    def status(self) -> dict[str, object]: ...  # noqa: D102
    def attach_image(self, manifest_path: str) -> dict[str, object]: ...  # noqa: D102
    def detach_image(self, disk_id: str) -> str: ...  # noqa: D102
    def list_images(self) -> list[dict[str, object]]: ...  # noqa: D102
    def pin_image(  # noqa: D102
        self, disk_id: str, head_bytes: int, tail_bytes: int, timeout: float
    ) -> dict[str, object]: ...
    def set_drain(self, on: bool) -> None: ...  # noqa: D102
    def set_ring(self, path: str) -> dict[str, object]: ...  # noqa: D102
    def store_sketch(self, count: int) -> dict[str, object]: ...  # noqa: D102
    def set_distance_threshold(self, hops: int | None) -> dict[str, object]: ...  # noqa: D102
    def ring_info(self) -> dict[str, object] | None: ...  # noqa: D102
    def metrics_text(self) -> str: ...  # noqa: D102
    def ledger_start(self, disk_id: str, capacity: int) -> None: ...  # noqa: D102
    def ledger_get(self, disk_id: str) -> str: ...  # noqa: D102
    def ledger_stop(self, disk_id: str) -> None: ...  # noqa: D102
    def working_set(self, disk_id: str) -> dict[str, object]: ...  # noqa: D102
    def set_working_set(self, disk_id: str, path: str) -> None: ...  # noqa: D102
    def coverage(self) -> list[dict[str, object]]: ...  # noqa: D102
    def preload_start(  # noqa: D102
        self, disk_id: str, what: str, rate_bytes_per_s: int, pin: bool
    ) -> dict[str, object]: ...
    def preload_status(self) -> list[dict[str, object]]: ...  # noqa: D102
    def preload_stop(self, disk_id: str) -> None: ...  # noqa: D102
    def preload_estimate(self, disk_id: str, what: str) -> dict[str, object]: ...  # noqa: D102
    def set_log_level(self, directives: str) -> None: ...  # noqa: D102
    def restart(self) -> None: ...  # noqa: D102
    def stop_for_good(self, force: bool) -> None: ...  # noqa: D102


_DIRECTIVES = re.compile(r"[A-Za-z0-9_:=,-]{1,255}")

_IMAGE = ("image", parameters.is_id, "an image id (a UUID in lower case)")
_PATH = ("path", parameters.is_path, "an absolute path")
_WHAT = (
    "what",
    parameters.is_one_of(tuple(protocol.PreloadWhat)),
    " or ".join(protocol.PreloadWhat),
)
_PARAMETERS: dict[str, tuple[parameters.Parameter, ...]] = {
    "status": (),
    "image.attach": (_PATH,),
    "image.detach": (_IMAGE,),
    "image.list": (),
    "pin": (
        _IMAGE,
        ("head_bytes", parameters.is_int(0, protocol.PIN_BYTES_MAX), "0 to 2^40"),
        ("tail_bytes", parameters.is_int(0, protocol.PIN_BYTES_MAX), "0 to 2^40"),
        (
            "timeout",
            parameters.is_seconds(protocol.PIN_TIMEOUT_MAX),
            f"seconds, above 0, at most {protocol.PIN_TIMEOUT_MAX:g}",
        ),
    ),
    "drain": (("on", parameters.is_flag, "true or false"),),
    "ring.set": (_PATH,),
    "ring.show": (),
    "placement.threshold": (
        (
            "hops",
            parameters.is_int_or_null(0, protocol.DISTANCE_THRESHOLD_MAX),
            f"0 to {protocol.DISTANCE_THRESHOLD_MAX} hops, or null: as configured",
        ),
    ),
    "store.sketch": (
        ("count", parameters.is_int(1, protocol.SKETCH_MAX), f"1 to {protocol.SKETCH_MAX}"),
    ),
    "metrics": (),
    "ledger.start": (
        _IMAGE,
        (
            "capacity",
            parameters.is_int(1, protocol.LEDGER_ENTRIES_MAX),
            f"1 to {protocol.LEDGER_ENTRIES_MAX}",
        ),
    ),
    "ledger.get": (_IMAGE,),
    "ledger.stop": (_IMAGE,),
    "workingset.read": (_IMAGE,),
    "workingset.set": (_IMAGE, _PATH),
    "workingset.coverage": (),
    "preload.start": (
        _IMAGE,
        _WHAT,
        (
            "rate_bytes_per_s",
            parameters.is_int(0, protocol.PRELOAD_RATE_MAX),
            "0 to 2^40 bytes per second; 0: no limit",
        ),
        ("pin", parameters.is_flag, "true or false"),
    ),
    "preload.status": (),
    "preload.stop": (_IMAGE,),
    "preload.estimate": (_IMAGE, _WHAT),
    "log.level": (
        (
            "directives",
            lambda value: isinstance(value, str) and _DIRECTIVES.fullmatch(value) is not None,
            "directives such as info,acstor_peer=debug",
        ),
    ),
    "process.restart": (),
    "process.stop": (("force", parameters.is_flag, "true or false"),),
}
"""Per method its parameters: name, check, what is allowed. All are required."""


def methods(operations: Operations, volumes: VolumeOperations) -> dict[str, Method]:
    """Return all methods by name, with their parameters checked before they are called."""
    call = parameters.done
    actions: dict[str, Callable[..., object]] = {
        "status": operations.status,
        "image.attach": operations.attach_image,
        "image.detach": lambda image: {"state": operations.detach_image(image)},
        "image.list": operations.list_images,
        "pin": operations.pin_image,
        "drain": call(operations.set_drain),
        "ring.set": operations.set_ring,
        "ring.show": operations.ring_info,
        "store.sketch": operations.store_sketch,
        "placement.threshold": operations.set_distance_threshold,
        "metrics": operations.metrics_text,
        "ledger.start": call(operations.ledger_start),
        "ledger.get": operations.ledger_get,
        "ledger.stop": call(operations.ledger_stop),
        "workingset.read": operations.working_set,
        "workingset.set": call(operations.set_working_set),
        "workingset.coverage": operations.coverage,
        "preload.start": operations.preload_start,
        "preload.status": operations.preload_status,
        "preload.stop": call(operations.preload_stop),
        "preload.estimate": operations.preload_estimate,
        "log.level": call(operations.set_log_level),
        "process.restart": call(operations.restart),
        "process.stop": call(operations.stop_for_good),
    }
    checked = {
        name: parameters.checked(name, _PARAMETERS[name], action)
        for name, action in actions.items()
    }
    return checked | volume_methods(volumes)
