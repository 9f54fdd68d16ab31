"""Room for local files: bytes of their own, and the room that they leave to others."""

from dataclasses import dataclass

from acstor.conf.types import format_size
from acstor.drivers.nova.image_links.local_directory import Space
from acstor.origin import mounts

GIVE_UP_SHARE = 0.5
"""Share of the reserve below which files give their place back: making one never leaves less than
the reserve, so that files do not come and go."""


@dataclass(frozen=True)
class Budget:
    """Limits on the room that local files take; see ``[local_files]``."""

    capacity_bytes: int
    """Most bytes of all local files together."""
    reserve_share: float
    """Part of the file system that making a file leaves free, 0 to 1."""

    def refusal(self, needed: int, taken: int, space: Space) -> str | None:
        """Return why there is no room for another file; None: there is.

        :param needed: bytes of the file.
        :param taken: bytes of the files that are there.
        """
        if taken + needed > self.capacity_bytes:
            return (
                f"it takes {format_size(needed)}, and {format_size(taken)} of [local_files] "
                f"capacity = {format_size(self.capacity_bytes)} are taken"
            )
        reserve = self._reserve(space)
        if space.free_bytes - needed < reserve:
            return (
                f"it takes {format_size(needed)}, {format_size(space.free_bytes)} are free beside "
                f"Nova's base files and {format_size(reserve)} are to stay free"
            )
        return None

    def is_short(self, space: Space) -> bool:
        """Return whether the file system needs room that a local file has."""
        return space.free_bytes < self._reserve(space) * GIVE_UP_SHARE

    def _reserve(self, space: Space) -> int:
        return int(space.total_bytes * self.reserve_share)


def refusal(base_directory: str) -> str | None:
    """Return why there may be no local files beside some base files; None: there may."""
    mount = mounts.find_mount(base_directory)
    if mount is not None and mount.is_remote:
        return (
            f"{base_directory} is on {mount.kind}, which other hosts share: a local file would be "
            "none"
        )
    return None
