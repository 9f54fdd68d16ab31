"""A file system on a part of a disk, read only."""

import struct
from collections.abc import Iterator

from acstor import exception
from acstor.splitting.ext4 import attributes, content_map
from acstor.splitting.ext4.attributes import Attributes
from acstor.splitting.ext4.content_map import Piece
from acstor.splitting.ext4.inode import Inode
from acstor.splitting.ext4.superblock import (
    ROOT_INODE,
    SUPERBLOCK_OFFSET,
    SUPERBLOCK_SIZE,
    ReadableDisk,
    Superblock,
    damaged,
)

DIRECTORY_BYTES_MAX = 1 << 28
"""Bytes of one directory; a million long names have a third of it."""
LINK_MAX = 4096
"""Bytes of a target (PATH_MAX)."""
SHORT_LINK_MAX = 60
ENTRIES_MAX = 2 << 20
"""Names of one directory."""
MAP_BLOCKS_MAX = 1 << 23
"""Blocks of maps that are read altogether: those of a file may name one another in a circle."""
_READ_MAX = 1 << 20


class Ext4FileSystem:
    """Files of a file system, by their inodes.

    :param start: first byte of it on the disk.
    """

    def __init__(self, disk: ReadableDisk, start: int) -> None:
        """Read the superblock.

        :raises InvalidError: when there is no such file system, or it is damaged.
        :raises UnsupportedError: when it has features that are not known here.
        """
        self._disk = disk
        self._map_blocks = 0
        self.start = start
        self.superblock = Superblock.parse(disk.read(start + SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE))

    def inode(self, number: int) -> Inode:
        """Return an inode.

        :raises ImageRefusedError: when there is no such one.
        """
        shape = self.superblock
        if not 1 <= number <= shape.inode_count:
            raise damaged(f"there is no inode {number}")
        group, index = divmod(number - 1, shape.inodes_per_group)
        place = (shape.first_data_block + 1) * shape.block_size + group * shape.descriptor_size
        descriptor = self._read(place, shape.descriptor_size)
        (table,) = struct.unpack_from("<I", descriptor, 8)
        if shape.descriptor_size == 64:
            table |= struct.unpack_from("<I", descriptor, 40)[0] << 32
        raw = self._read(table * shape.block_size + index * shape.inode_size, shape.inode_size)
        return Inode.parse(number, raw, shape)

    def pieces(self, inode: Inode) -> list[Piece]:
        """Return where the content of a file or directory is."""
        return content_map.pieces(inode, self.superblock, self._map_block)

    def content(self, inode: Inode) -> Iterator[tuple[int, bytes]]:
        """Yield the written parts of a file, each with its offset; what is between is zeros."""
        size = self.superblock.block_size
        for piece in self.pieces(inode):
            offset, end = piece.logical * size, (piece.logical + piece.count) * size
            shift = piece.physical * size - offset
            end = min(end, inode.size)
            while offset < end:
                part = self._read(offset + shift, min(_READ_MAX, end - offset))
                yield offset, part
                offset += len(part)

    def small_content(self, inode: Inode, size_max: int) -> bytes:
        """Return the whole content of a small file.

        :raises InvalidError: when it is larger.
        """
        if inode.size > size_max:
            raise exception.InvalidError(f"a file has {inode.size} bytes, more than {size_max}")
        content = bytearray(inode.size)
        for offset, part in self.content(inode):
            content[offset : offset + len(part)] = part
        return bytes(content)

    def target(self, inode: Inode) -> bytes:
        """Return the target of a symbolic link.

        :raises ImageRefusedError: when it has none that can be.
        """
        if not 0 < inode.size <= LINK_MAX:
            raise damaged(f"link {inode.number} has a target of {inode.size} bytes")
        if inode.size < SHORT_LINK_MAX:
            return inode.block[: inode.size]
        return self.small_content(inode, LINK_MAX)

    def attributes(self, inode: Inode) -> Attributes:
        """Return the extended attributes of a file, access lists as the disk has them."""
        found = attributes.parse_own(inode.own_attributes)
        if inode.attribute_block:
            found |= attributes.parse_block(self._block(inode.attribute_block))
        return found

    def entries(self, directory: Inode) -> list[tuple[bytes, int]]:
        """Return names and inode numbers of a directory, without ``.`` and ``..``.

        :raises ImageRefusedError: when it is damaged.
        """
        if directory.size > DIRECTORY_BYTES_MAX:
            raise damaged(f"directory {directory.number} has {directory.size} bytes")
        found: list[tuple[bytes, int]] = []
        size, pieces = self.superblock.block_size, self.pieces(directory)
        # Its blocks may be more than its length says, and the same ones again and again.
        if sum(piece.count for piece in pieces) * size > DIRECTORY_BYTES_MAX:
            raise damaged(f"directory {directory.number} has too many blocks")
        for piece in pieces:
            for block in range(piece.physical, piece.physical + piece.count):
                found += _names(self._read(block * size, size), directory.number)
                if len(found) > ENTRIES_MAX:
                    raise damaged(f"directory {directory.number} has too many names")
        if len({name for name, _ in found}) != len(found):
            raise damaged(f"directory {directory.number} has a name twice")
        return found

    def find(self, path: bytes) -> Inode:
        """Return the inode of an absolute path without any link in it.

        :raises NotFoundError: when there is none.
        :raises InvalidError: when a part of it is a symbolic link, or no directory.
        """
        inode = self.inode(ROOT_INODE)
        done = b""
        for name in filter(None, path.split(b"/")):
            if not inode.is_directory:
                raise exception.InvalidError(f"{shown(done)} is no directory of the image")
            done += b"/" + name
            number = dict(self.entries(inode)).get(name)
            if number is None:
                raise exception.NotFoundError(
                    f"the image has no {shown(done)}", hint="check the path, and the partition"
                )
            inode = self.inode(number)
            if inode.is_link:
                raise exception.InvalidError(
                    f"{shown(done)} is a symbolic link to {shown(self.target(inode))}",
                    hint="name the directory that it leads to",
                )
        return inode

    def _map_block(self, number: int) -> bytes:
        self._map_blocks += 1
        if self._map_blocks > MAP_BLOCKS_MAX:
            raise damaged(f"more than {MAP_BLOCKS_MAX} blocks say where content is")
        return self._block(number)

    def _block(self, number: int) -> bytes:
        if not 0 < number < self.superblock.block_count:
            raise damaged(f"there is no block {number}")
        return self._read(number * self.superblock.block_size, self.superblock.block_size)

    def _read(self, offset: int, size: int) -> bytes:
        found = self._disk.read(self.start + offset, size)
        if len(found) != size:
            raise damaged(f"it ends before byte {offset + size}")
        return found


def shown(path: bytes) -> str:
    """Return a path for people: bytes that are no text, and control characters, escaped."""
    text = path.decode(errors="backslashreplace")
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)


def _names(block: bytes, directory: int) -> Iterator[tuple[bytes, int]]:
    place = 0
    while place + 8 <= len(block):
        number, length, name_length, _ = struct.unpack_from("<IHBB", block, place)
        if length in (0, 65535) and len(block) == 65536:
            length = 65536
        if length < 8 or length % 4 or place + length > len(block) or name_length > length - 8:
            raise damaged(f"directory {directory} has an entry of {length} bytes")
        name = block[place + 8 : place + 8 + name_length]
        if number and name not in (b".", b".."):
            if not name or b"/" in name or b"\0" in name:
                raise damaged(f"directory {directory} has a name that cannot be")
            yield name, number
        place += length
