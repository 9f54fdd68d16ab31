"""The runtime as the host process uses it; :class:`acstor.native.DataPlane` is the real one."""

from collections.abc import Callable
from typing import Protocol

from acstor.dataplane.settings import DataPlaneSettings
from acstor.dataplane.volumes.runtime import VolumeRuntime


class OriginReader(Protocol):
    """What the runtime needs of an origin that it cannot read natively."""

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """See :meth:`acstor.origin.base.Origin.readinto`."""


class Runtime(VolumeRuntime, Protocol):
    """The interface of :class:`acstor._dataplane.DataPlane`, where each method is described."""

    def start(self, fuse_fd: int, is_new: bool, peer_listener_fd: int | None) -> None: ...  # noqa: D102
    def fuse_fd(self) -> int: ...  # noqa: D102
    def peer_listener_fd(self) -> int: ...  # noqa: D102
    def peer_address(self) -> str: ...  # noqa: D102
    def attach_image(  # noqa: D102
        self, manifest_path: str, hidden: bool = False, digest: str | None = None
    ) -> dict[str, object]: ...
    def damaged_images(self) -> list[str]: ...  # noqa: D102
    def detach_image(self, disk_id: str) -> str: ...  # noqa: D102
    def list_images(self) -> list[dict[str, object]]: ...  # noqa: D102
    def pin_image(  # noqa: D102
        self, disk_id: str, head_bytes: int, tail_bytes: int, timeout: float
    ) -> dict[str, object]: ...
    def set_drain(self, on: bool) -> None: ...  # noqa: D102
    def set_ring(self, path: str) -> dict[str, object]: ...  # noqa: D102
    def store_sketch(self, count: int) -> dict[str, object]: ...  # noqa: D102
    def set_distance_threshold(self, hops: int | None) -> None: ...  # noqa: D102
    def ring_info(self) -> dict[str, object] | None: ...  # noqa: D102
    def status(self) -> dict[str, object]: ...  # noqa: D102
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
    def take_log_lines(self, lines_max: int) -> list[str]: ...  # noqa: D102
    def stop(self, timeout: float) -> None: ...  # noqa: D102


RuntimeFactory = Callable[[DataPlaneSettings, OriginReader | None], Runtime]
"""Makes a runtime that is not started; a second one after the first could not start."""
