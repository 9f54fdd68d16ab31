"""Manifests below a volume: that of its record, and those below it of which it is a delta."""

import os
from collections.abc import Callable

from acstor import exception

_FRONT_SIZE = 4096
"""Bytes that say which manifest one is a delta of."""


def fetch(get: Callable[[str], bytes], digest: str) -> dict[str, bytes]:
    """Return a manifest and those below it by name, all of them compared with their names.

    :param get: returns the bytes of a manifest.
    :raises NotFoundError: when one is not there.
    :raises CorruptError: when one is damaged, or too many lie on top of each other.
    """
    from acstor.repository import disk_manifest

    found: dict[str, bytes] = {}

    def base_of(name: str) -> str | None:
        found[name] = content = get(name)
        return disk_manifest.base_of(name, content[:_FRONT_SIZE], len(content))

    _names(digest, base_of)
    disk_manifest.parse_levels(found).check()
    return found


def names_in(directory: str, digest: str) -> list[str] | None:
    """Return the names of a manifest and those below it; None unless all are in a directory.

    A file that is malformed counts as missing: what it should be can be had again.
    """
    from acstor.repository import disk_manifest

    def base_of(name: str) -> str | None:
        with open(os.path.join(directory, file_name(name)), "rb") as file:
            length = os.fstat(file.fileno()).st_size
            return disk_manifest.base_of(name, file.read(_FRONT_SIZE), length)

    try:
        return _names(digest, base_of)
    except (FileNotFoundError, exception.CorruptError):
        return None


def _names(digest: str, base_of: Callable[[str], str | None]) -> list[str]:
    """Return the names of a manifest and those below it, the topmost first.

    :raises CorruptError: when too many lie on top of each other.
    """
    from acstor.repository import disk_manifest

    found = [digest]
    while (below := base_of(found[-1])) is not None:
        if len(found) == disk_manifest.DEPTH_MAX:
            raise exception.CorruptError(f"manifest {digest} lies on too many others")
        found.append(below)
    return found


def file_name(digest: str) -> str:
    """Return the name of a manifest's file; those of one volume are beside each other."""
    return f"{digest}.manifest"
