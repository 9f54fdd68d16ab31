"""Lines of ``/etc/fstab``: fstab(5)."""

import dataclasses
import re
from collections.abc import Iterable, Sequence

from acstor import exception

PATH = b"/etc/fstab"
SIZE_MAX = 1 << 20
"""Longest file that is believed, bytes."""
COMMENT = b"# Made by 'acstor image split': partitions that are named for their durability."
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_TO_ESCAPE = re.compile(rb"[\s\\#]")
_IN_NO_PLACE = frozenset({b"none", b"swap"})


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """A file system to be mounted."""

    source: str
    path: bytes
    options: str
    file_system: str = "ext4"

    @property
    def line(self) -> bytes:
        """Line that says so; checked at boot after the root file system."""
        path = _TO_ESCAPE.sub(lambda found: b"\\%03o" % found[0][0], self.path)
        return b"%s %s %s %s 0 2" % (
            self.source.encode(), path, self.file_system.encode(), self.options.encode()
        )  # fmt: skip


def mount_points(content: bytes) -> list[bytes]:
    """Return where the lines of a file mount something, in their order."""
    return [point for line in content.splitlines() if (point := _mount_point(line)) is not None]


def check_free(content: bytes, path: bytes) -> None:
    """Refuse a path that is on another file system than the root.

    :raises InvalidError: saying on which.
    """
    for point in mount_points(content):
        if point == path:
            raise exception.InvalidError(
                f"{path.decode(errors='replace')} is a mount point in fstab already",
                hint="remove the line from the image, or leave the path out",
            )
        if point != b"/" and path.startswith(point + b"/"):
            raise exception.InvalidError(
                f"{path.decode(errors='replace')} is on the file system that fstab mounts at "
                f"{point.decode(errors='replace')}",
                hint="only directories of the root file system are split",
            )


def with_mounts(content: bytes, mounts: Sequence[Mount]) -> bytes:
    """Return a file with lines for mounts, before what is mounted below one of them."""
    paths = tuple(mount.path for mount in mounts)
    lines = content.splitlines()
    place = next(
        (number for number, line in enumerate(lines) if _is_below(line, paths)), len(lines)
    )
    lines[place:place] = [COMMENT, *(mount.line for mount in mounts)]
    return b"".join(line + b"\n" for line in lines)


def with_root(content: bytes, source: str) -> bytes:
    """Return a file in which the root is named otherwise, where it was named by its device.

    A file system that becomes a partition is on another device.
    """
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines):
        device = line.split()[0] if _mount_point(line) == b"/" else b""
        if device.startswith(b"/dev/"):
            lines[number] = line.replace(device, source.encode(), 1)
    return b"".join(lines)


def _is_below(line: bytes, paths: Iterable[bytes]) -> bool:
    point = _mount_point(line)
    return point is not None and any(point.startswith(path + b"/") for path in paths)


def _mount_point(line: bytes) -> bytes | None:
    fields = line.split()
    if len(fields) < 2 or fields[0].startswith(b"#") or fields[1] in _IN_NO_PLACE:
        return None
    point = _ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), fields[1])
    return point.rstrip(b"/") or b"/"
