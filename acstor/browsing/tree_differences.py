"""Differences of two trees of files: what was added, removed, changed."""

import dataclasses
import enum
import re
from collections.abc import Iterator

from acstor import exception
from acstor.browsing.disk_files import FileFound, FileKind

_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


class Change(enum.StrEnum):
    """Way in which a path differs."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclasses.dataclass(frozen=True, slots=True)
class FileDifference:
    """Path that two trees have differently."""

    path: str
    change: Change
    before: FileFound | None
    after: FileFound | None
    fields: tuple[str, ...]
    """Fields that differ, where it is in both."""


PathKey = tuple[tuple[bytes, ...], bytes]
"""Directories of a path, and its name, as the disk has them."""


def differing_files(
    before: Iterator[FileFound], after: Iterator[FileFound]
) -> Iterator[FileDifference]:
    """Yield the differences of two walks, in their order.

    Content is compared as rsync's quick check does, by length and time of the last change, not byte
    by byte: a file that was changed with both set back afterwards is not found. Of directories the
    time is not compared: it is that of what is in them.

    :raises UnsupportedError: when a walk is not in the order of :meth:`.DiskFiles.walk`: then a
        directory has a name twice.
    """
    one, other = _ordered(before), _ordered(after)
    left, right = next(one, None), next(other, None)
    while left is not None or right is not None:
        if left is not None and (right is None or left[0] < right[0]):
            yield FileDifference(left[1].name, Change.REMOVED, left[1], None, ())
            left = next(one, None)
        elif right is not None and (left is None or right[0] < left[0]):
            yield FileDifference(right[1].name, Change.ADDED, None, right[1], ())
            right = next(other, None)
        elif left is not None and right is not None:
            fields = tuple(_fields(left[1], right[1]))
            if fields:
                yield FileDifference(left[1].name, Change.CHANGED, left[1], right[1], fields)
            left, right = next(one, None), next(other, None)


def _fields(one: FileFound, other: FileFound) -> Iterator[str]:
    names = ["kind", "mode", "uid", "gid", "target"]
    if one.kind is not FileKind.DIRECTORY or other.kind is not FileKind.DIRECTORY:
        names += ["size_bytes", "modified_ns"]
    for name in names:
        if getattr(one, name) != getattr(other, name):
            yield name


def _ordered(walk: Iterator[FileFound]) -> Iterator[tuple[PathKey, FileFound]]:
    last: PathKey | None = None
    for file in walk:
        key = path_key(file.name)
        if last is not None and key <= last:
            raise exception.UnsupportedError(
                f"the file system is damaged: {file.name} comes twice, or out of its order",
                hint="export the version, and look into it with a machine of your own",
            )
        last = key
        yield key, file


def path_key(path: str) -> PathKey:
    """Return what paths are ordered by: directories one after the other, and names in each."""
    raw = _ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), path.encode(errors="replace"))
    *directory, name = raw.split(b"/")
    return tuple(directory), name
