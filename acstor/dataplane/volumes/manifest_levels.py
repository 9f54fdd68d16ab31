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
    name = digest
    for _ in range(disk_manifest.DEPTH_MAX):
        found[name] = content = get(name)
        below = disk_manifest.base_of(name, content[:_FRONT_SIZE], len(content))
        if below is None:
            disk_manifest.parse_levels(found).check()
            return found
        name = below
    raise exception.CorruptError(f"manifest {digest} lies on too many others")


def names_in(directory: str, digest: str) -> list[str] | None:
    """Return the names of a manifest and those below it; None unless all are in a directory.

    A file that is malformed counts as missing: what it should be can be had again.
    """
    from acstor.repository import disk_manifest

    found: list[str] = []
    name = digest
    for _ in range(disk_manifest.DEPTH_MAX):
        try:
            with open(os.path.join(directory, file_name(name)), "rb") as file:
                length = os.fstat(file.fileno()).st_size
                below = disk_manifest.base_of(name, file.read(_FRONT_SIZE), length)
        except (FileNotFoundError, exception.CorruptError):
            return None
        found.append(name)
        if below is None:
            return found
        name = below
    return None


def file_name(digest: str) -> str:
    """Return the name of a manifest's file; those of one volume are beside each other."""
    return f"{digest}.manifest"
