"""Room in the origin that registrations leave to volumes.

An image that is not registered is downloaded by Nova. A volume that cannot be pushed makes its
guest stand still, or write nothing more that lasts.
"""

from acstor import exception
from acstor.origin.base import ObjectStore, Space


def reserved_bytes(space: Space, percent: int) -> int:
    """Return the bytes that registrations leave free of an origin."""
    return space.total_bytes * percent // 100


class OriginReserve:
    """A share of an origin's room that is kept free.

    :param percent: of all its room; 0: nothing is kept.
    """

    def __init__(self, objects: ObjectStore, percent: int) -> None:
        """Keep of which origin."""
        self._objects = objects
        self._percent = percent

    def check(self, size_bytes: int = 0) -> None:
        """Refuse to store ``size_bytes`` where less than the reserve would be left.

        :raises ExhaustedError: when it would.
        :raises UnavailableError: when the origin does not answer.
        """
        space = self._objects.space() if self._percent else None
        if space is None:
            return
        reserve = reserved_bytes(space, self._percent)
        if space.free_bytes - size_bytes >= reserve:
            return
        raise exception.ExhaustedError(
            f"the origin has {space.free_bytes >> 20} MiB free, and images leave "
            f"{reserve >> 20} MiB of it to volumes ([origin] reserve_percent)",
            hint="enlarge the origin's file system, or remove images and run 'acstor gc'",
        )
