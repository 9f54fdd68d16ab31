"""Maps from the blocks of a file to blocks of the disk: extents, and the older lists of blocks."""

import dataclasses
import struct
from collections.abc import Callable, Iterator

from acstor.splitting.ext4.inode import EXTENTS, Inode
from acstor.splitting.ext4.superblock import Superblock, damaged

DEPTH_MAX = 5
"""Levels of a tree of extents (fs/ext4/extents.c)."""
PIECES_MAX = 1 << 22
"""Pieces of one file."""
_EXTENT_MAGIC = 0xF30A
_UNWRITTEN = 32768
"""Lengths above this are of blocks that read as zeros until they are written."""
_DIRECT = 12
ReadBlock = Callable[[int], bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Blocks of a file that follow one another on the disk. What no piece has is a hole."""

    logical: int
    physical: int
    count: int


def pieces(inode: Inode, superblock: Superblock, read_block: ReadBlock) -> list[Piece]:
    """Return the written pieces of a file, ascending.

    :raises ImageRefusedError: when its map contradicts itself.
    """
    found: list[Piece] = []
    end = 0
    walk = _extents(inode.block, DEPTH_MAX, read_block) if inode.flags & EXTENTS else None
    for piece in walk or _listed(inode, superblock, read_block):
        if piece.logical < end or not piece.count:
            raise damaged(f"the blocks of inode {inode.number} are out of their order")
        end = piece.logical + piece.count
        last = piece.physical + piece.count
        if piece.physical <= superblock.first_data_block or last > superblock.block_count:
            raise damaged(f"inode {inode.number} has blocks outside of the file system")
        if len(found) >= PIECES_MAX:
            raise damaged(f"inode {inode.number} is in more than {PIECES_MAX} pieces")
        before = found[-1] if found else None
        if before and (before.logical + before.count, before.physical + before.count) == (
            piece.logical,
            piece.physical,
        ):
            found[-1] = Piece(before.logical, before.physical, before.count + piece.count)
        else:
            found.append(piece)
    return found


def _extents(node: bytes, depth_max: int, read_block: ReadBlock) -> Iterator[Piece]:
    magic, count, _, depth = struct.unpack_from("<HHHH", node)
    if magic != _EXTENT_MAGIC or depth > depth_max or 12 + 12 * count > len(node):
        raise damaged("a node of extents is none")
    for place in range(12, 12 + 12 * count, 12):
        if depth:
            _, low, high, _ = struct.unpack_from("<IIHH", node, place)
            yield from _extents(read_block(low | high << 32), depth - 1, read_block)
            continue
        logical, length, high, low = struct.unpack_from("<IHHI", node, place)
        if length <= _UNWRITTEN:
            yield Piece(logical, low | high << 32, length)


def _listed(inode: Inode, superblock: Superblock, read_block: ReadBlock) -> Iterator[Piece]:
    """Yield the blocks of a file of ext2 or ext3: direct ones, then three levels of lists."""
    numbers = struct.unpack("<15I", inode.block)
    each = superblock.block_size // 4
    for logical, number in enumerate(numbers[:_DIRECT]):
        if number:
            yield Piece(logical, number, 1)
    logical = _DIRECT
    for level, number in enumerate(numbers[_DIRECT:], 1):
        if number:
            yield from _list(number, level, logical, each, read_block)
        logical += each**level


def _list(
    number: int, level: int, logical: int, each: int, read_block: ReadBlock
) -> Iterator[Piece]:
    below = each ** (level - 1)
    for index, one in enumerate(struct.unpack(f"<{each}I", read_block(number))):
        if not one:
            continue
        if level == 1:
            yield Piece(logical + index, one, 1)
        else:
            yield from _list(one, level - 1, logical + index * below, each, read_block)
