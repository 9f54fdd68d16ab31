"""Trees of files that are to be moved."""

import dataclasses
import stat
from collections.abc import Collection

from acstor import exception
from acstor.splitting.ext4.file_system import SHORT_LINK_MAX, Ext4FileSystem, shown
from acstor.splitting.ext4.inode import UNMOVABLE, Inode
from acstor.splitting.ext4.superblock import damaged

FILES_MAX = 2 << 20
"""Files of one tree; each is some hundred bytes of this process."""
DEPTH_MAX = 1024
"""Directories within one another."""
FILE_BYTES_MAX = 1 << 44
"""Length of a file, holes included: what ext4 has with blocks of 4 KiB."""
_UNWRITABLE = b"\n\r"
"""Bytes in names that a script of debugfs, a command a line, cannot have."""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A file of a tree."""

    path: bytes
    """Path below the top of the tree, without a slash in front."""
    inode: Inode
    is_mount_point: bool = False
    """True of a directory whose content is another tree."""

    @property
    def name(self) -> bytes:
        """Name in its directory."""
        return self.path.rpartition(b"/")[2]

    @property
    def parent(self) -> bytes:
        """Path of its directory below the top; empty: the top."""
        return self.path.rpartition(b"/")[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """A directory with everything in it."""

    path: bytes
    """Absolute path in the image."""
    top: Inode
    nodes: tuple[Node, ...]
    """Files below it, each directory before what is in it."""
    sockets: int
    """Sockets, which are left out: without the process that made them they are nothing."""
    data_bytes: int
    """Bytes of blocks that files and directories have."""

    @property
    def inode_count(self) -> int:
        """Inodes that a copy has, with its top."""
        return 1 + len({node.inode.number for node in self.nodes})


class _Walk:
    def __init__(self, system: Ext4FileSystem, path: bytes, others: Collection[bytes]) -> None:
        self._system = system
        self._path = path
        self._others = others
        self._directories: set[int] = set()
        self._names: dict[int, int] = {}
        self._last: dict[int, tuple[bytes, int]] = {}
        self.nodes: list[Node] = []
        self.removed_sockets = 0
        self.blocks = 0

    def add_below(self, top: Inode) -> None:
        """Add what is below a directory, with a list of what is left in place of recursion."""
        self._enter(top)
        waiting = [(b"", top)]
        while waiting:
            path, directory = waiting.pop()
            for name, number in sorted(self._system.entries(directory)):
                node = self._node(path + b"/" + name if path else name, number)
                if stat.S_ISSOCK(node.inode.mode):
                    self.removed_sockets += 1
                    continue
                self.nodes.append(node)
                if len(self.nodes) > FILES_MAX:
                    raise exception.InvalidError(
                        f"{shown(self._path)} has more than {FILES_MAX} files",
                        hint="split directories below it",
                    )
                if node.inode.is_directory:
                    self._enter(node.inode)
                    if not node.is_mount_point:
                        waiting.append((node.path, node.inode))
                else:
                    self._count(node)

    def check_links(self) -> None:
        """Refuse a file that has a name elsewhere: one name is of one file system.

        :raises InvalidError: naming it.
        """
        for number, count in self._names.items():
            path, links = self._last[number]
            if count < links:
                raise exception.InvalidError(
                    f"{shown(path)} has {links} names (hard links), {count} of them here: a file "
                    "is in one file system only",
                    hint="replace the link by a copy, or split a directory with all of its names",
                )
            if count > links:
                raise damaged(f"inode {number} has {count} names, not {links}")

    def _node(self, path: bytes, number: int) -> Node:
        inode = self._system.inode(number)
        absolute = self._path + b"/" + path
        if not inode.is_live:
            raise damaged(f"{shown(absolute)} is a removed file")
        if any(byte in _UNWRITABLE for byte in path):
            raise exception.UnsupportedError(
                f"the name {shown(absolute)} has a line break, and cannot be moved",
                hint="rename it in the image",
            )
        words = [word for flag, word in UNMOVABLE.items() if inode.flags & flag]
        if words:
            raise exception.UnsupportedError(
                f"{shown(absolute)} is {' and '.join(words)}, and cannot be moved",
                hint="split another directory",
            )
        if path.count(b"/") >= DEPTH_MAX:
            raise damaged(f"{shown(absolute)[:80]} is below {DEPTH_MAX} directories")
        if inode.is_file and inode.size > FILE_BYTES_MAX:
            raise damaged(f"{shown(absolute)} has {inode.size} bytes")
        return Node(path, inode, inode.is_directory and absolute in self._others)

    def _enter(self, directory: Inode) -> None:
        if directory.number in self._directories:
            raise damaged(f"directory {directory.number} is in two directories")
        self._directories.add(directory.number)
        self.blocks += sum(piece.count for piece in self._system.pieces(directory))

    def _count(self, node: Node) -> None:
        number = node.inode.number
        is_long_link = node.inode.is_link and node.inode.size >= SHORT_LINK_MAX
        if number not in self._names and (node.inode.is_file or is_long_link):
            self.blocks += sum(piece.count for piece in self._system.pieces(node.inode))
        self._names[number] = self._names.get(number, 0) + 1
        self._last[number] = (self._path + b"/" + node.path, node.inode.link_count)


def collect(system: Ext4FileSystem, path: bytes, others: Collection[bytes]) -> Tree:
    """Return the tree of a directory.

    :param path: absolute, without a slash at its end.
    :param others: paths that are trees of their own; what is in them is left out.
    :raises NotFoundError: when there is no such directory.
    :raises InvalidError: when it is none, or has what one file system alone cannot have.
    :raises UnsupportedError: when it has what cannot be moved.
    """
    top = system.find(path)
    if not top.is_directory:
        raise exception.InvalidError(
            f"{shown(path)} is no directory of the image", hint="split the directory that it is in"
        )
    walk = _Walk(system, path, set(others) - {path})
    walk.add_below(top)
    walk.check_links()
    return Tree(
        path=path,
        top=top,
        nodes=tuple(walk.nodes),
        sockets=walk.removed_sockets,
        data_bytes=walk.blocks * system.superblock.block_size,
    )
