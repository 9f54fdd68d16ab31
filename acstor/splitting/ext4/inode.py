"""Inodes: what a file is, without its name and content."""

import dataclasses
import stat
import struct
from typing import Self

from acstor.splitting.ext4.superblock import Superblock

EXTENTS = 0x80000
INDEXED = 0x1000
UNMOVABLE = {0x800: "encrypted", 0x4: "compressed", 0x100000: "sealed (verity)"}
"""Flags of files whose content means nothing elsewhere."""
USER_FLAGS = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x10000 | 0x20000
"""Flags of chattr(1) that a copy keeps: s, u, S, i, a, d, A, D, T."""
TIMES = ("atime", "ctime", "mtime", "crtime")
_SYNC_TIMES = ((8, 140), (12, 132), (16, 136), (144, 148))
"""Places of each time and of its upper and finer bits."""


@dataclasses.dataclass(frozen=True, slots=True)
class Inode:
    """An inode, decoded; times as the disk has them, so that a copy has them exactly."""

    number: int
    mode: int
    uid: int
    gid: int
    size: int
    link_count: int
    flags: int
    times: tuple[int, int, int, int]
    """Seconds, lower 32 bits, in the order of :data:`TIMES`."""
    extra_times: tuple[int, int, int, int]
    block: bytes
    """Sixty bytes: the map of the content, the target of a short link, or a device."""
    attribute_block: int
    is_live: bool
    own_attributes: bytes
    """Bytes behind the fields, where attributes are."""

    @classmethod
    def parse(cls, number: int, raw: bytes, superblock: Superblock) -> Self:
        """Read an inode."""
        mode, uid_low, size_low = struct.unpack_from("<HHI", raw, 0)
        gid_low, link_count = struct.unpack_from("<HH", raw, 24)
        (flags,) = struct.unpack_from("<I", raw, 32)
        attributes_low, size_high = struct.unpack_from("<II", raw, 104)
        attributes_high, uid_high, gid_high = struct.unpack_from("<HHH", raw, 118)
        extra = struct.unpack_from("<H", raw, 128)[0] if superblock.inode_size > 128 else 0
        end = 128 + extra
        if extra % 4 or end > superblock.inode_size:
            end = superblock.inode_size
        has_high = bool(superblock.incompat & 0x80)
        return cls(
            number=number,
            mode=mode,
            uid=uid_low | uid_high << 16,
            gid=gid_low | gid_high << 16,
            # The upper half is of directories, too, where they are large (large_dir).
            size=size_low | size_high << 32,
            link_count=link_count,
            flags=flags,
            times=_fields(raw, [place for place, _ in _SYNC_TIMES], end),
            extra_times=_fields(raw, [place for _, place in _SYNC_TIMES], end),
            block=raw[40:100],
            attribute_block=attributes_low | (attributes_high << 32 if has_high else 0),
            is_live=mode != 0 and link_count > 0,
            own_attributes=raw[end:] if end > 128 else b"",
        )

    @property
    def is_directory(self) -> bool:
        """True of directories."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """True of regular files."""
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        """True of symbolic links."""
        return stat.S_ISLNK(self.mode)

    @property
    def device(self) -> tuple[int, int]:
        """Major and minor number of a device (include/linux/kdev_t.h)."""
        old, new = struct.unpack_from("<II", self.block)
        if old:
            return old >> 8 & 0xFF, old & 0xFF
        return new >> 8 & 0xFFF, new & 0xFF | new >> 12 & 0xFFF00


def _fields(raw: bytes, places: list[int], end: int) -> tuple[int, int, int, int]:
    """Return four numbers of 32 bits; 0 where an inode is too short for one."""
    one, two, three, four = (
        struct.unpack_from("<I", raw, place)[0] if place < 128 or place + 4 <= end else 0
        for place in places
    )
    return one, two, three, four
