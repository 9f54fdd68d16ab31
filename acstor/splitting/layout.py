"""Partitions of a disk, and the one whose file system is the root."""

import dataclasses
import enum
import struct
from collections.abc import Sequence
from typing import Protocol

from acstor import exception
from acstor.browsing.disk_files import DiskFiles, PartitionFound
from acstor.browsing.session import Session
from acstor.conf.types import MIB
from acstor.splitting.ext4.file_system import Ext4FileSystem

SECTOR = 512
ALIGNMENT = MIB
"""Places of partitions are multiples of it, bytes."""
PRIMARY_MAX = 4
"""Partitions of an MBR that are not within another."""
MBR_END_MAX = SECTOR << 32
"""First byte that no MBR can name."""
_TABLE_PLACE = 446
_PROTECTIVE = 0xEE
_SECONDS_MAX = 600.0
"""Seconds that looking at the partitions may take."""
_EXT = ("ext",)


class TableKind(enum.StrEnum):
    """Kind of a table of partitions, as sfdisk calls it."""

    GPT = "gpt"
    MBR = "dos"
    NONE = "none"
    """One file system is the whole disk."""


class SizedDisk(Protocol):
    """Bytes of a disk, and how many they are."""

    @property
    def size_bytes(self) -> int:
        """Length."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of it, fewer only at its end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Partitions of a disk."""

    kind: TableKind
    partitions: tuple[PartitionFound, ...]
    end: int
    """First byte behind all of them."""
    free_primaries: int
    """Partitions that an MBR may still get."""


def read_layout(disk: SizedDisk) -> Layout:
    """Return the partitions of a disk; a process of its own looks at them.

    :raises ImageRefusedError: when one ends behind the disk.
    :raises AcstorError: when they cannot be read.
    """
    session = Session(disk, _SECONDS_MAX)
    try:
        found = tuple(DiskFiles(session).partitions())
    finally:
        session.close()
    sector = disk.read(0, SECTOR)
    entries = [
        struct.unpack_from("<4xB3xII", sector, _TABLE_PLACE + 16 * number)
        for number in range(PRIMARY_MAX)
    ]
    used = [(start + size) * SECTOR for kind, start, size in entries if kind]
    if any(one.number == 0 for one in found) or not found:
        return Layout(TableKind.NONE, found, disk.size_bytes, 0)
    ends = [one.start + one.size_bytes for one in found]
    if any(kind == _PROTECTIVE for kind, _, _ in entries):
        return Layout(TableKind.GPT, found, _end(disk, ends), 0)
    return Layout(TableKind.MBR, found, _end(disk, [*ends, *used]), PRIMARY_MAX - len(used))


def _end(disk: SizedDisk, ends: Sequence[int]) -> int:
    """Return the end of the last partition: new ones follow it, and the output is as long.

    :raises ImageRefusedError: when that is behind the disk.
    """
    end = max(ends)
    if end > disk.size_bytes:
        raise exception.ImageRefusedError(
            f"a partition ends at byte {end}, the image at {disk.size_bytes}: it was cut off, or "
            "its table lies",
            hint="take a whole image",
        )
    return end


def root_of(disk: SizedDisk, layout: Layout, number: int | None) -> PartitionFound:
    """Return the partition with the root file system.

    :param number: of it; None: the one of ext2, ext3 or ext4 that has ``/etc``.
    :raises NotFoundError: when there is no such partition.
    :raises UnsupportedError: when its file system is none that can be split.
    :raises InvalidError: when several may be meant.
    """
    if number is not None:
        chosen = [one for one in layout.partitions if one.number == number]
        if not chosen:
            raise exception.NotFoundError(
                f"the image has no partition {number}", hint=f"it has {_told(layout.partitions)}"
            )
        _require_ext(chosen)
        return chosen[0]
    _require_ext(layout.partitions)
    found = [one for one in layout.partitions if one.file_system in _EXT and _is_root(disk, one)]
    if len(found) != 1:
        raise exception.InvalidError(
            f"{len(found)} partitions of the image may be the root file system",
            hint=f"give --root-partition; there are {_told(layout.partitions)}",
        )
    return found[0]


def _is_root(disk: SizedDisk, partition: PartitionFound) -> bool:
    try:
        return Ext4FileSystem(disk, partition.start).find(b"/etc").is_directory
    except (exception.NotFoundError, exception.InvalidError):
        return False


def _require_ext(partitions: Sequence[PartitionFound]) -> None:
    if not any(one.file_system in _EXT for one in partitions):
        raise exception.UnsupportedError(
            f"the image has no file system that can be split: {_told(partitions)}",
            hint="only ext2, ext3 and ext4: all others are written by nothing but the kernel's "
            "mount, and what an image holds is never mounted here",
        )


def _told(partitions: Sequence[PartitionFound]) -> str:
    if not partitions:
        return "no partitions"
    return ", ".join(
        f"{one.number or 'the whole disk'}: {one.file_system}" for one in partitions[:20]
    )


def align(place: int) -> int:
    """Return the first place for a partition that is not before one."""
    return -(-place // ALIGNMENT) * ALIGNMENT
