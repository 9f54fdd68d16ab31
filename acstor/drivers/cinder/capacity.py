"""Capacity and free space of an origin."""

import os
import urllib.parse
from dataclasses import dataclass

from acstor import exception

GIB = 1 << 30
_LOCAL_SCHEMES = frozenset({"posix", "file"})


@dataclass(frozen=True)
class Capacity:
    """Bytes of the file system that an origin is on."""

    total: int
    free: int
    """Bytes that a user who is not root may still write."""

    @property
    def total_gib(self) -> float:
        """All of it, GiB, as Cinder counts."""
        return round(self.total / GIB, 2)

    @property
    def free_gib(self) -> float:
        """Free space, GiB, as Cinder counts."""
        return round(self.free / GIB, 2)


def of_origin(url: str) -> Capacity | None:
    """Return the capacity of the origin at ``url``, None where it cannot be told.

    :raises UnavailableError: when the directory of the origin cannot be looked at.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in _LOCAL_SCHEMES:
        return None
    path = urllib.parse.unquote(parts.path)
    try:
        status = os.statvfs(path)
    except OSError as error:
        raise exception.UnavailableError(
            f"the origin {path} cannot be looked at: {error.strerror}",
            hint="check that it is mounted on the host of cinder-volume",
        ) from error
    return Capacity(total=status.f_blocks * status.f_frsize, free=status.f_bavail * status.f_frsize)
