"""Extended attributes, access lists among them, as the disk has them."""

import struct
from collections.abc import Iterator

from acstor import exception
from acstor.splitting.ext4.superblock import damaged

MAGIC = 0xEA020000
PREFIXES = {
    1: b"user.",
    2: b"system.posix_acl_access",
    3: b"system.posix_acl_default",
    4: b"trusted.",
    6: b"security.",
    7: b"system.",
    8: b"system.richacl",
}
_ENTRY = struct.Struct("<BBHIII")
_BLOCK_HEADER = 32
Attributes = dict[bytes, bytes]


def parse_own(raw: bytes) -> Attributes:
    """Return the attributes that are in an inode.

    :param raw: bytes behind its fields.
    :raises ImageRefusedError: when they contradict themselves.
    """
    if len(raw) < 8 or struct.unpack_from("<I", raw)[0] != MAGIC:
        return {}
    # Places of values count from the first entry.
    return dict(_entries(raw[4:], 0))


def parse_block(raw: bytes) -> Attributes:
    """Return the attributes of a block of them.

    :raises ImageRefusedError: when it is none, or contradicts itself.
    """
    if len(raw) < _BLOCK_HEADER or struct.unpack_from("<I", raw)[0] != MAGIC:
        raise damaged("a block of attributes is none")
    return dict(_entries(raw, _BLOCK_HEADER))


def _entries(raw: bytes, place: int) -> Iterator[tuple[bytes, bytes]]:
    while place + 4 <= len(raw) and raw[place : place + 4] != bytes(4):
        if place + _ENTRY.size > len(raw):
            raise damaged("attributes run past their end")
        length, index, offset, inode, size, _ = _ENTRY.unpack_from(raw, place)
        name = raw[place + _ENTRY.size :][:length]
        if inode:
            raise exception.UnsupportedError("an attribute is in an inode of its own (ea_inode)")
        if index not in PREFIXES or len(name) != length or offset + size > len(raw):
            raise damaged(f"an attribute of kind {index}, {size} bytes at {offset}")
        yield PREFIXES[index] + name, raw[offset : offset + size]
        place += _ENTRY.size + (length + 3 & ~3)
