"""Changing the root file system: empty mount points in place of what was moved, and fstab."""

import contextlib
import os
from collections.abc import Iterator, Sequence

from acstor.splitting import fstab
from acstor.splitting.ext4.content_map import Piece
from acstor.splitting.ext4.file_system import Ext4FileSystem
from acstor.splitting.ext4.inode import Inode
from acstor.splitting.plan import Plan
from acstor.splitting.population import attribute_command, field_commands, quoted
from acstor.splitting.tools import Tools
from acstor.splitting.tree import Tree
from acstor.splitting.work_disk import WorkDisk, copy_range

_FSTAB_MODE = 0o100644


def moved_pieces(system: Ext4FileSystem, trees: Sequence[Tree]) -> list[Piece]:
    """Return where the content of files is that are moved away."""
    found: list[Piece] = []
    seen: set[int] = set()
    for tree in trees:
        for node in tree.nodes:
            if node.inode.is_file and node.inode.number not in seen:
                seen.add(node.inode.number)
                found += system.pieces(node.inode)
    return found


def clear_pieces(disk: WorkDisk, system: Ext4FileSystem, pieces: Sequence[Piece]) -> None:
    """Write zeros where moved files were: to be called when nothing has those blocks any more."""
    size = system.superblock.block_size
    for piece in pieces:
        disk.clear(system.start + piece.physical * size, piece.count * size)


def remove_moved(tools: Tools, system: Ext4FileSystem, trees: Sequence[Tree]) -> None:
    """Empty the directories whose content was moved, sockets too.

    :raises ImageRefusedError: when that fails.
    """
    script = [command for tree in reversed(trees) for command in _removal(system, tree)]
    tools.edit(system.start, b"\n".join(script) + b"\n")


def _removal(system: Ext4FileSystem, tree: Tree) -> Iterator[bytes]:
    """Yield what empties a directory, what is deepest first."""
    mounted = {node.inode.number for node in tree.nodes if node.is_mount_point}
    waiting = [tree.top.number]
    levels: list[tuple[int, list[tuple[bytes, int]]]] = []
    while waiting:
        number = waiting.pop()
        if number in mounted:
            continue
        entries = system.entries(system.inode(number))
        levels.append((number, entries))
        waiting += [below for _, below in entries if system.inode(below).is_directory]
    for number, entries in reversed(levels):
        yield b"cd <%d>" % number
        for name, below in entries:
            command = b"rmdir " if system.inode(below).is_directory else b"rm "
            yield command + quoted(b"./" + name)


def write_fstab(tools: Tools, system: Ext4FileSystem, plan: Plan) -> None:
    """Replace fstab by the plan's, with owner, mode and attributes of the former one.

    :raises ImageRefusedError: when that fails.
    """
    path = tools.write("fstab", [(0, plan.fstab)], len(plan.fstab))
    former = _former(system)
    script = [b'cd "/etc"', *([b"rm fstab"] if former else [])]
    script.append(b"write %s fstab" % quoted(path))
    tools.edit(system.start, b"\n".join(script) + b"\n")
    copy = system.find(fstab.PATH)
    head = b"set_inode_field <%d> " % copy.number
    fields = [head + b"mode 0%o" % _FSTAB_MODE, head + b"uid 0", head + b"gid 0"]
    if former is not None:
        inode, attributes = former
        fields = []
        for number, (name, value) in enumerate(attributes.items()):
            value_path = tools.write(f"fstab-{number}", [(0, value)], len(value))
            fields.append(attribute_command(value_path, name, copy.number))
        fields += field_commands(inode, copy, system)
    tools.edit(system.start, b"\n".join(fields) + b"\n")


def grow(tools: Tools, disk: WorkDisk, start: int, size_bytes: int, new_size_bytes: int) -> None:
    """Make the root file system as large as its partition has become.

    In a file of its own: of a file that has more than one file system resize2fs cuts the end off.

    :raises ImageRefusedError: when that fails.
    """
    with _apart(disk, start, size_bytes, new_size_bytes) as part:
        command = ["resize2fs", f"/dev/fd/{part.descriptor}", f"{new_size_bytes // 1024}K"]
        tools.must(command, descriptors=(part.descriptor,))


def replay_journal(tools: Tools, disk: WorkDisk, start: int, size_bytes: int) -> None:
    """Put in place what only the journal of the root file system has.

    In a file of its own: after that e2fsck opens the file system again, and forgets its offset.

    :raises ImageRefusedError: when that fails.
    """
    with _apart(disk, start, size_bytes, size_bytes) as part:
        place = f"/dev/fd/{part.descriptor}"
        tools.check_place(place, start, repair=True, descriptors=(part.descriptor,))


@contextlib.contextmanager
def _apart(disk: WorkDisk, start: int, size_bytes: int, new_size_bytes: int) -> Iterator[WorkDisk]:
    """Have a part of a disk in a file of its own, and then, as it is by then, on the disk."""
    part = WorkDisk(disk.path + ".root", size_bytes)
    with contextlib.closing(part):
        copy_range(disk, start, part, 0, size_bytes)
        yield part
        copy_range(part, 0, disk, start, new_size_bytes)
    os.unlink(part.path)


def _former(system: Ext4FileSystem) -> tuple[Inode, dict[bytes, bytes]] | None:
    inode = dict(system.entries(system.find(b"/etc"))).get(b"fstab")
    if inode is None:
        return None
    found = system.inode(inode)
    return found, system.attributes(found)
