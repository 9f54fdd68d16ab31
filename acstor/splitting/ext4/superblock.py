"""Superblocks and group descriptors: the shape of a file system."""

import dataclasses
import struct
import uuid
from typing import Protocol, Self

from acstor import exception

SUPERBLOCK_OFFSET = 1024
SUPERBLOCK_SIZE = 1024
MAGIC = 0xEF53
ROOT_INODE = 2
INODES_MAX = 1 << 28
"""Inodes that are believed; 4 TiB of ordinary files have as many."""
NEEDS_RECOVERY = 0x4
INCOMPAT_KNOWN = 0x2 | NEEDS_RECOVERY | 0x40 | 0x80 | 0x200 | 0x2000 | 0x4000
"""filetype, recover, extents, 64bit, flex_bg, metadata_csum_seed, large_dir."""
INCOMPAT_NAMES = {
    0x1: "compression", 0x8: "journal_dev", 0x10: "meta_bg", 0x100: "mmp", 0x400: "ea_inode",
    0x1000: "dirdata", 0x8000: "inline_data", 0x10000: "encrypt", 0x20000: "casefold",
}  # fmt: skip
RO_COMPAT_REFUSED = {0x4000: "shared_blocks", 0x8000: "verity"}
"""Features of which a file's blocks are another's, too, or are bound to what checks them."""
COPIED_FEATURES = (
    ("has_journal", "compat", 0x4), ("ext_attr", "compat", 0x8), ("resize_inode", "compat", 0x10),
    ("dir_index", "compat", 0x20), ("filetype", "incompat", 0x2), ("extent", "incompat", 0x40),
    ("64bit", "incompat", 0x80), ("flex_bg", "incompat", 0x200),
    ("sparse_super", "ro_compat", 0x1), ("large_file", "ro_compat", 0x2),
    ("huge_file", "ro_compat", 0x8), ("uninit_bg", "ro_compat", 0x10),
    ("dir_nlink", "ro_compat", 0x20), ("extra_isize", "ro_compat", 0x40),
    ("metadata_csum", "ro_compat", 0x400),
)  # fmt: skip
"""Features that a new file system has where the old one has them, as mke2fs calls them: the guest
must be able to mount it, whatever mke2fs thinks is best by now."""
_GROUPS_MAX = 1 << 22


class ReadableDisk(Protocol):
    """Bytes of a disk."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of it, fewer only at its end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Superblock:
    """The superblock of a file system, as far as it is needed."""

    inode_count: int
    block_count: int
    block_size: int
    first_data_block: int
    inodes_per_group: int
    inode_size: int
    descriptor_size: int
    compat: int
    incompat: int
    ro_compat: int
    uuid: uuid.UUID

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Read a superblock.

        :raises UnsupportedError: when it has what is not known here.
        :raises InvalidError: when it is none.
        """
        if len(raw) < SUPERBLOCK_SIZE or struct.unpack_from("<H", raw, 56)[0] != MAGIC:
            raise exception.InvalidError("there is no ext2, ext3 or ext4 file system")
        inode_count, blocks_low = struct.unpack_from("<II", raw, 0)
        first_data_block, log_block_size = struct.unpack_from("<II", raw, 20)
        (inodes_per_group,) = struct.unpack_from("<I", raw, 40)
        (revision,) = struct.unpack_from("<I", raw, 76)
        (inode_size,) = struct.unpack_from("<H", raw, 88)
        compat, incompat, ro_compat = struct.unpack_from("<III", raw, 92)
        (descriptor_size,) = struct.unpack_from("<H", raw, 254)
        (blocks_high,) = struct.unpack_from("<I", raw, 0x150)
        is_64bit = bool(incompat & 0x80)
        _check_features(incompat, ro_compat)
        if log_block_size > 6:
            raise damaged(f"blocks of 2^{10 + min(log_block_size, 99)} bytes")
        found = cls(
            inode_count=inode_count,
            block_count=blocks_low | (blocks_high << 32 if is_64bit else 0),
            block_size=1024 << log_block_size,
            first_data_block=first_data_block,
            inodes_per_group=inodes_per_group,
            inode_size=inode_size if revision else 128,
            descriptor_size=descriptor_size if is_64bit else 32,
            compat=compat,
            incompat=incompat,
            ro_compat=ro_compat,
            uuid=uuid.UUID(bytes=raw[104:120]),
        )
        found._check()
        return found

    def _check(self) -> None:
        if not 0 < self.inode_count <= INODES_MAX or not self.inodes_per_group:
            raise damaged(f"{self.inode_count} inodes, {self.inodes_per_group} in a group")
        if self.inode_size & (self.inode_size - 1) or not 128 <= self.inode_size <= self.block_size:
            raise damaged(f"inodes of {self.inode_size} bytes")
        if self.descriptor_size not in (32, 64):
            raise damaged(f"group descriptors of {self.descriptor_size} bytes")
        if not 0 < self.group_count <= _GROUPS_MAX or self.first_data_block > 1:
            raise damaged(f"{self.group_count} groups from block {self.first_data_block}")

    @property
    def group_count(self) -> int:
        """Block groups."""
        return -(-self.inode_count // self.inodes_per_group)

    @property
    def size_bytes(self) -> int:
        """Bytes of the file system."""
        return self.block_count * self.block_size

    @property
    def needs_recovery(self) -> bool:
        """True where the journal has what is not in place yet."""
        return bool(self.incompat & NEEDS_RECOVERY)

    @property
    def features(self) -> list[str]:
        """Features that a new file system is to have, too."""
        return [name for name, field, bit in COPIED_FEATURES if getattr(self, field) & bit]


def _check_features(incompat: int, ro_compat: int) -> None:
    unknown = incompat & ~INCOMPAT_KNOWN
    names = [
        INCOMPAT_NAMES.get(1 << bit, f"0x{1 << bit:x}") for bit in range(32) if unknown >> bit & 1
    ]
    names += [name for bit, name in RO_COMPAT_REFUSED.items() if ro_compat & bit]
    if names:
        raise exception.UnsupportedError(
            f"the file system has features that cannot be split: {', '.join(names)}",
            hint="make the image without them (tune2fs -O ^feature, where it allows that)",
        )


def damaged(reason: str) -> exception.ImageRefusedError:
    """Return the error for a file system that contradicts itself."""
    return exception.ImageRefusedError(
        f"the file system is damaged: {reason}", hint="repair a copy of the image: e2fsck -f"
    )
