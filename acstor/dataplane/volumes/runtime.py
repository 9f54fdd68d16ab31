"""Types of a volume as a runtime is given it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypedDict


class LogOrigin(Protocol):
    """Origin of volumes' logs: a part of :class:`acstor.origin.base.Origin`."""

    def put_if_absent(self, key: str, buffers: Sequence[bytes]) -> bool: ...  # noqa: D102
    def get(self, key: str, size_max: int) -> bytes: ...  # noqa: D102
    def list(self, prefix: str = "") -> Iterator[str]: ...  # noqa: D102


class VolumeSpec(TypedDict):
    """Specification of a volume that a runtime opens; all keys are always present."""

    directory: str
    """Existing directory of the local log; empty at the first opening of an epoch."""
    epoch: int
    """Of this host as the owner."""
    next: int
    """First sequence number of this epoch's log objects that manifest and logs do not hold."""
    size_bytes: int
    manifest_path: str | None
    """File with the manifest below the log; None: zeros."""
    manifest: str | None
    """Name of that manifest, which the file is compared with."""
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
