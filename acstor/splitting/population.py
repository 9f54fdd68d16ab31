"""Filling a new file system with a tree, by debugfs: as it was, whoever runs this.

Names and content first, in pieces that bound what is copied at once; then, by the numbers that the
inodes have got, owners, times and attributes; then all of it is read and compared.
"""

import itertools
import stat
from collections.abc import Iterator

from acstor import exception
from acstor.repository.progress import Progress
from acstor.splitting.ext4.file_system import Ext4FileSystem, shown
from acstor.splitting.ext4.inode import EXTENTS, INDEXED, TIMES, USER_FLAGS, Inode
from acstor.splitting.ext4.superblock import ROOT_INODE
from acstor.splitting.tools import Tools
from acstor.splitting.tree import Node, Tree

BATCH_BYTES = 256 << 20
"""Bytes of content that are in files beside the disk at a time; one file may be larger."""
BATCH_COMMANDS = 50_000
_ENTRY_MAX = 8 + 256 + 12
"""Bytes at the end of a block of a directory that no name may fit into."""


class Population:
    """Copy of a tree into an empty file system.

    :param system: that the tree is in.
    :param start: place of the new one, made by mke2fs.
    """

    def __init__(self, system: Ext4FileSystem, tree: Tree, tools: Tools, start: int) -> None:
        self._system = system
        self._tree = tree
        self._tools = tools
        self._start = start
        self._written: list[str] = []
        self._values: dict[bytes, bytes] = {}

    def fill(self, disk_system: Ext4FileSystem, progress: Progress) -> None:
        """Copy everything and compare it.

        :param disk_system: the new file system.
        :raises ImageRefusedError: when it does not fit, or is not the same then.
        """
        self._fill_names(progress)
        copies = dict(_matched(disk_system, self._tree))
        self._fill_fields(copies)
        self._clean()
        _compare(self._system, disk_system, self._tree)

    def _fill_names(self, progress: Progress) -> None:
        script = [b"rmdir lost+found"] if self._has_lost_and_found() else []
        size = 0
        first: dict[int, bytes] = {}
        links: list[Node] = []
        for node in self._tree.nodes:
            if not node.inode.is_directory and node.inode.number in first:
                links.append(node)
                continue
            first[node.inode.number] = node.path
            commands, count = self._commands(node)
            script += commands
            size += count
            progress.advance(count)
            if size > BATCH_BYTES or len(script) > BATCH_COMMANDS:
                self._run(script)
                script, size = [], 0
        self._run(script + list(self._link_commands(links, first)))

    def _has_lost_and_found(self) -> bool:
        return any(node.path == b"lost+found" for node in self._tree.nodes)

    def _run(self, script: list[bytes]) -> None:
        if script:
            self._tools.edit(self._start, b"\n".join(script) + b"\n")
        self._clean()

    def _clean(self) -> None:
        for name in self._written:
            self._tools.remove(name)
        self._written = []

    def _commands(self, node: Node) -> tuple[list[bytes], int]:
        """Return the commands that make a file, and the bytes that are copied for it."""
        inode, name = node.inode, quoted(node.name)
        into = b"cd " + quoted(b"/" + node.parent)
        if inode.is_directory:
            return [into, b"mkdir " + name], 0
        if inode.is_link:
            return [into, b"symlink %s %s" % (name, self._target(node))], 0
        if inode.is_file:
            path, count = self._extracted(inode)
            return [into, b"write %s %s" % (quoted(path), name)], count
        kinds = {stat.S_IFIFO: b"p", stat.S_IFCHR: b"c %d %d", stat.S_IFBLK: b"b %d %d"}
        kind = kinds.get(stat.S_IFMT(inode.mode))
        if kind is None:
            raise exception.ImageRefusedError(f"{shown(node.path)} is of no kind that is known")
        return [into, b"mknod %s %s" % (name, kind % inode.device if b"%" in kind else kind)], 0

    def _target(self, node: Node) -> bytes:
        target = self._system.target(node.inode)
        if b"\n" in target or b"\r" in target or b"\0" in target:
            raise exception.UnsupportedError(
                f"the link {shown(node.path)} has a line break in its target", hint="remove it"
            )
        return quoted(target)

    def _extracted(self, inode: Inode) -> tuple[bytes, int]:
        """Write the content of a file beside the disk, with its holes; return path and bytes."""
        name = f"file-{inode.number}"
        self._written.append(name)
        path = self._tools.write(name, self._system.content(inode), inode.size)
        blocks = sum(piece.count for piece in self._system.pieces(inode))
        return path, blocks * self._system.superblock.block_size

    def _link_commands(self, links: list[Node], first: dict[int, bytes]) -> Iterator[bytes]:
        """Yield what gives files further names; debugfs does not make directories longer there."""
        usable = self._system.superblock.block_size - _ENTRY_MAX
        links.sort(key=lambda node: node.parent)
        for parent, group in itertools.groupby(links, key=lambda node: node.parent):
            nodes = list(group)
            size = sum(8 + len(node.name) + 3 & ~3 for node in nodes)
            path = quoted(b"/" + parent)
            yield from itertools.repeat(b"expand_dir " + path, -(-size // usable))
            yield b"cd " + path
            for node in nodes:
                source = quoted(b"/" + first[node.inode.number])
                yield b"link %s %s" % (source, quoted(node.name))

    def _fill_fields(self, copies: dict[int, Inode]) -> None:
        originals = {node.inode.number: node.inode for node in self._tree.nodes}
        originals[self._tree.top.number] = self._tree.top
        script: list[bytes] = []
        for number, original in originals.items():
            script += self._attribute_commands(original, copies[number].number)
            script += field_commands(original, copies[number], self._system)
            if len(script) > BATCH_COMMANDS:
                self._tools.edit(self._start, b"\n".join(script) + b"\n")
                script = []
        self._tools.edit(self._start, b"\n".join(script) + b"\n")

    def _attribute_commands(self, original: Inode, number: int) -> Iterator[bytes]:
        for name, value in self._system.attributes(original).items():
            yield self._attribute_command(name, value, number)

    def _attribute_command(self, attribute: bytes, value: bytes, number: int) -> bytes:
        """Return what sets an attribute; equal values, such as labels, share a file."""
        path = self._values.get(value)
        if path is None:
            name = f"value-{len(self._values)}"
            path = self._tools.write(name, [(0, value)], len(value))
            self._written.append(name)
            self._values[value] = path
        return attribute_command(path, attribute, number)


def quoted(word: bytes) -> bytes:
    """Return a word as a command of debugfs has it (lib/ss/parse.c)."""
    return b'"' + word.replace(b'"', b'""') + b'"'


def attribute_command(path: bytes, attribute: bytes, number: int) -> bytes:
    """Return what gives an inode an attribute, whose value is in a file.

    :raises UnsupportedError: when its name cannot be written in a script.
    """
    if any(byte in b"\n\r\0" for byte in attribute):
        raise exception.UnsupportedError(
            f"the name of an attribute, {shown(attribute)}, has a line break", hint="remove it"
        )
    return b"ea_set -r -f %s <%d> %s" % (quoted(path), number, quoted(attribute))


def field_commands(original: Inode, copy: Inode, system: Ext4FileSystem) -> Iterator[bytes]:
    """Yield what gives an inode the fields of another: mode, owner, times, names, flags."""
    head = b"set_inode_field <%d> " % copy.number
    yield head + b"mode 0%o" % original.mode
    yield head + b"uid %d" % original.uid
    yield head + b"gid %d" % original.gid
    if not original.is_directory:
        yield head + b"links_count %d" % original.link_count
    flags = original.flags & USER_FLAGS
    if flags:
        yield head + b"flags 0x%x" % (flags | copy.flags & (EXTENTS | INDEXED))
    has_extra = system.superblock.inode_size > 128
    for name, low, extra in zip(TIMES, original.times, original.extra_times, strict=True):
        if name == "crtime" and not has_extra:
            continue
        yield head + b"%s @%d" % (name.encode(), low)
        if has_extra:
            yield head + b"%s_extra 0x%x" % (name.encode(), extra)


def _matched(system: Ext4FileSystem, tree: Tree) -> Iterator[tuple[int, Inode]]:
    """Yield the inode of each copy, with the number of its original.

    :raises ImageRefusedError: when a copy is missing.
    """
    below: dict[bytes, list[Node]] = {}
    for node in tree.nodes:
        below.setdefault(node.parent, []).append(node)
    top = system.inode(ROOT_INODE)
    yield tree.top.number, top
    waiting = [(b"", top)]
    while waiting:
        path, directory = waiting.pop()
        present = dict(system.entries(directory))
        for node in below.get(path, []):
            number = present.get(node.name)
            if number is None:
                raise _differs(tree, node, "is missing")
            copy = system.inode(number)
            yield node.inode.number, copy
            if node.inode.is_directory:
                waiting.append((node.path, copy))


def _compare(original: Ext4FileSystem, copied: Ext4FileSystem, tree: Tree) -> None:
    """Refuse a copy that is not what it is of.

    :raises ImageRefusedError: naming the first difference.
    """
    copies = dict(_matched(copied, tree))
    nodes = [Node(b"", tree.top), *tree.nodes]
    for node in {node.inode.number: node for node in nodes}.values():
        one, other = node.inode, copies[node.inode.number]
        for name in ("mode", "uid", "gid"):
            if getattr(one, name) != getattr(other, name):
                raise _differs(tree, node, f"has another {name}")
        if original.attributes(one) != copied.attributes(other):
            raise _differs(tree, node, "has other attributes")
        if original.superblock.inode_size > 128 and one.times[2] != other.times[2]:
            raise _differs(tree, node, "has another time")
        if not one.is_directory and one.link_count != other.link_count:
            raise _differs(tree, node, "has another number of names")
        if one.is_link and original.target(one) != copied.target(other):
            raise _differs(tree, node, "leads elsewhere")
        if one.is_file and not _is_same(original, one, copied, other):
            raise _differs(tree, node, "has other content")


def _is_same(one: Ext4FileSystem, inode: Inode, other: Ext4FileSystem, copy: Inode) -> bool:
    if inode.size != copy.size:
        return False
    pairs = itertools.zip_longest(_written(one, inode), _written(other, copy))
    return all(mine == theirs for mine, theirs in pairs)


_COMPARED = 4096


def _written(system: Ext4FileSystem, inode: Inode) -> Iterator[tuple[int, bytes]]:
    """Yield what of a file is not zero, in parts that do not depend on where it is."""
    place, pending = -1, bytearray()
    for offset, part in system.content(inode):
        while part:
            block = offset // _COMPARED * _COMPARED
            if block != place:
                if pending.count(0) != len(pending):
                    yield place, bytes(pending.rstrip(b"\0"))
                place, pending = block, bytearray()
            size = min(len(part), block + _COMPARED - offset)
            pending[offset - block :] = bytes(max(0, offset - block - len(pending))) + part[:size]
            part, offset = part[size:], offset + size
    if pending.count(0) != len(pending):
        yield place, bytes(pending.rstrip(b"\0"))


def _differs(tree: Tree, node: Node, how: str) -> exception.ImageRefusedError:
    return exception.ImageRefusedError(
        f"the copy of {shown(tree.path + b'/' + node.path)} {how}",
        hint="look whether the partition is large enough; e2fsprogs of another release may help",
    )
