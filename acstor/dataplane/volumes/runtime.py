"""The volumes of a runtime as the host process uses them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypedDict


class LogOrigin(Protocol):
    """Where volumes' logs go: a part of :class:`acstor.origin.base.Origin`."""

    def put_if_absent(self, key: str, buffers: Sequence[bytes]) -> bool: ...  # noqa: D102
    def get(self, key: str, size_max: int) -> bytes: ...  # noqa: D102
    def list(self, prefix: str = "") -> Iterator[str]: ...  # noqa: D102


class VolumeSpec(TypedDict):
    """What a runtime is told of a volume that it opens; all keys are always present."""

    directory: str
    """Existing directory of the local log; empty at the first opening of an epoch."""
    epoch: int
    """Of this host as the owner."""
    next: int
    """First sequence number of this epoch's log objects that manifest and logs do not hold."""
    size_bytes: int
    manifest_path: str | None
    """File with the manifest below the log; None: zeros."""
    logs: Sequence[Mapping[str, object]]
    """Log objects to replay over the manifest, in this order: ``volume``, ``epoch``, ``first``,
    ``last`` (included)."""
    durability: Mapping[str, object]
    """As in the volume's record."""
    iops: int
    """0: no limit."""
    bytes_per_s: int
    """0: no limit."""
    reserve_bytes: int
    """Bytes of the directory's file system that local logs leave free."""
    adopts: int | None
    """Epoch in which this host closed the log in the directory, of which nobody owned the volume
    since; None: the log is of this epoch, or there is none."""


class VolumeRuntime(Protocol):
    """The volumes of :class:`acstor._dataplane.DataPlane`, where each method is described."""

    def volume_seal(  # noqa: D102
        self, volume: str, epoch: int, first: int, origin: LogOrigin
    ) -> dict[str, Any]: ...
    def volume_open(self, volume: str, spec: VolumeSpec, origin: LogOrigin) -> None: ...  # noqa: D102
    def volume_follow(self, volume: str, size_bytes: int) -> None: ...  # noqa: D102
    def volume_serve(self, volume: str, listener_fd: int, token: str) -> None: ...  # noqa: D102
    def volume_unserve(self, volume: str, force: bool) -> None: ...  # noqa: D102
    def volume_release(self, volume: str) -> dict[str, Any]: ...  # noqa: D102
    def volume_push_ahead(self, volume: str) -> bool: ...  # noqa: D102
    def volume_begin_head(self, volume: str) -> int | None: ...  # noqa: D102
    def volume_answer_head(self, volume: str, look: int, content: bytes) -> None: ...  # noqa: D102
    def volume_give_up_head(self, volume: str) -> None: ...  # noqa: D102
    def volume_read_head(self, volume: str) -> bytes: ...  # noqa: D102
    def volume_close(self, volume: str) -> None: ...  # noqa: D102
    def volume_fence(self, volume: str, why: str) -> None: ...  # noqa: D102
    def volume_list(self) -> list[str]: ...  # noqa: D102
    def volume_status(self, volume: str) -> dict[str, Any]: ...  # noqa: D102
    def volume_push(self, volume: str) -> dict[str, Any]: ...  # noqa: D102
    def volume_freeze(self, volume: str, timeout: float) -> None: ...  # noqa: D102
    def volume_thaw(self, volume: str) -> None: ...  # noqa: D102
    def volume_resize(self, volume: str, size_bytes: int) -> None: ...  # noqa: D102
    def volume_set_durability(  # noqa: D102
        self, volume: str, durability: Mapping[str, object]
    ) -> None: ...
    def volume_set_limits(self, volume: str, iops: int, bytes_per_s: int) -> None: ...  # noqa: D102
    def volume_fold(  # noqa: D102
        self,
        volume: str,
        announce: Callable[[Sequence[str], str | None], object],
        spread: float,
        scope: str | None,
    ) -> dict[str, Any] | None: ...
    def volume_set_fold_unwanted(self, volume: str, is_unwanted: bool) -> None: ...  # noqa: D102
    def volume_set_base(self, volume: str, manifest_path: str) -> None: ...  # noqa: D102
