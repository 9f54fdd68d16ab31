"""Plans of a split: which partitions are made, how large, and what they hold."""

import dataclasses
import uuid
from collections.abc import Sequence

from acstor import exception
from acstor.conf.types import MIB, format_size
from acstor.repository.volumes.durability import DurabilityClass, Region
from acstor.splitting import fstab
from acstor.splitting.ext4.file_system import Ext4FileSystem
from acstor.splitting.ext4.superblock import Superblock
from acstor.splitting.fstab import Mount
from acstor.splitting.layout import (
    ALIGNMENT,
    MBR_END_MAX,
    Layout,
    TableKind,
    align,
)
from acstor.splitting.table import SIZE_MIN, PathRule
from acstor.splitting.tree import Tree, collect

ROOM = 64 * MIB
"""Room that a partition without a declared size has beside its content, bytes."""
BYTES_PER_INODE = 16384
"""As mke2fs has it (mke2fs.conf, inode_ratio)."""
INODES_BESIDE = 64
_TAIL = MIB
"""Bytes behind the last partition: the copy of a GPT."""
_OPTIONS = "defaults"
_MAY_FAIL = ",nofail"
"""Option of class none, and of what is mounted below that: what may be lost must not keep a system
from booting."""
_SYSTEMD_OPTION = ",x-systemd.before=local-fs.target"
"""Option without which systemd starts services before such a mount. The mount of busybox fails on
options that it does not know."""
_SYSTEMD = (b"/usr/lib/systemd/systemd", b"/lib/systemd/systemd")


@dataclasses.dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition that is to be made."""

    rule: PathRule
    tree: Tree
    start: int
    size_bytes: int
    inode_count: int
    uuid: uuid.UUID
    """Of its file system."""
    options: str
    """Of its mount."""

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.start + self.size_bytes

    @property
    def mount(self) -> Mount:
        """Line in fstab."""
        return Mount(f"UUID={self.uuid}", self.rule.path.encode(), self.options)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a split does."""

    kind: TableKind
    root_number: int
    root_start: int
    root_size_bytes: int | None
    """Bytes that the root's partition is to have; None: as many as it has."""
    disk_size_bytes: int
    partitions: tuple[NewPartition, ...]
    """In the order of their places, and of their mounts."""
    former_fstab: bytes

    @property
    def fstab(self) -> bytes:
        """Content of ``/etc/fstab``."""
        return fstab.with_mounts(self.former_fstab, [one.mount for one in self.partitions])

    @property
    def regions(self) -> tuple[Region, ...]:
        """Regions of the durability of volumes that are made of the image.

        A GPT has names, an MBR none: there the places of the partitions are the regions.
        """
        if self.kind is TableKind.MBR:
            return tuple(
                Region(
                    one.rule.durability_class,
                    first=one.start,
                    last=one.end,
                    period_s=one.rule.period_s,
                )
                for one in self.partitions
            )
        return tuple({one.rule.partition_name: one.rule.region for one in self.partitions}.values())


def make_plan(
    system: Ext4FileSystem,
    layout: Layout,
    root_number: int,
    rules: Sequence[PathRule],
    root_size_bytes: int | None,
) -> Plan:
    """Return the plan of a split.

    :param system: the root file system.
    :param rules: see :func:`.table.combine`.
    :param root_size_bytes: of the root's partition, which is to grow; None: it stays as it is.
    :raises NotFoundError: when a path is not in the image.
    :raises InvalidError: when it cannot be split like that.
    :raises UnsupportedError: when the image has what cannot be moved.
    """
    former = _former_fstab(system)
    paths = [rule.path.encode() for rule in rules]
    for path in paths:
        fstab.check_free(former, path)
        _check_units(system, path)
    _check_names(layout, rules)
    trees = [collect(system, path, paths) for path in paths]
    place, kept_root_size = _first_place(layout, system, root_number, root_size_bytes)
    partitions = []
    has_systemd = any(_has(system, path) for path in _SYSTEMD)
    for rule, tree in zip(rules, trees, strict=True):
        one = _partition(rule, tree, system.superblock, place, _options(rule, rules, has_systemd))
        partitions.append(one)
        place = one.end
    if layout.kind is TableKind.MBR and place > MBR_END_MAX:
        raise exception.UnsupportedError(
            "an MBR names no place beyond 2 TiB", hint="make the image with a GPT"
        )
    return Plan(
        kind=layout.kind,
        root_number=root_number,
        root_start=system.start,
        root_size_bytes=kept_root_size,
        disk_size_bytes=place + _TAIL,
        partitions=tuple(partitions),
        former_fstab=fstab.with_root(former, f"UUID={system.superblock.uuid}")
        if layout.kind is TableKind.NONE
        else former,
    )


def _former_fstab(system: Ext4FileSystem) -> bytes:
    try:
        inode = system.find(fstab.PATH)
    except exception.NotFoundError:
        return b""
    if not inode.is_file or inode.link_count != 1:
        raise exception.UnsupportedError(
            "/etc/fstab of the image is no file with one name",
            hint="make it one: nothing else is changed here",
        )
    return system.small_content(inode, fstab.SIZE_MAX)


def _check_units(system: Ext4FileSystem, path: bytes) -> None:
    """Refuse a path that a unit of systemd mounts, which counts before fstab.

    The name is that of systemd.unit(5), "String escaping"; a path with more to escape than
    dashes has no unit here.
    """
    name = path.strip(b"/").replace(b"-", rb"\x2d").replace(b"/", b"-") + b".mount"
    if not _has(system, b"/etc/systemd/system/" + name):
        return
    raise exception.InvalidError(
        f"/etc/systemd/system/{name.decode(errors='replace')} mounts that path already",
        hint="remove the unit from the image, or leave the path out",
    )


def _has(system: Ext4FileSystem, path: bytes) -> bool:
    try:
        system.find(path)
    except (exception.NotFoundError, exception.InvalidError):
        return False
    return True


def _check_names(layout: Layout, rules: Sequence[PathRule]) -> None:
    """Refuse where a partition of the image would come to have a durability by its name."""
    if layout.kind is TableKind.MBR:
        if len(rules) > layout.free_primaries:
            raise exception.UnsupportedError(
                f"{len(rules)} paths, but the MBR of the image has room for "
                f"{layout.free_primaries} more partitions",
                hint="make the image with a GPT, or split fewer paths",
            )
        return
    taken = {one.name: one.number for one in layout.partitions}
    for rule in rules:
        if rule.partition_name in taken:
            raise exception.InvalidError(
                f"partition {taken[rule.partition_name]} of the image is called "
                f"{rule.partition_name!r} already",
                hint="rename it: sgdisk --change-name",
            )


def _first_place(
    layout: Layout, system: Ext4FileSystem, root_number: int, size_bytes: int | None
) -> tuple[int, int | None]:
    """Return the place of the first new partition, and the size that the root's gets."""
    if layout.kind is TableKind.NONE:
        root_end = system.start + (size_bytes or system.superblock.size_bytes)
        if size_bytes is not None and size_bytes < system.superblock.size_bytes:
            raise _cannot_shrink(size_bytes, system.superblock.size_bytes)
        return align(root_end), None if size_bytes is None else size_bytes
    if size_bytes is None:
        return align(layout.end), None
    (root,) = [one for one in layout.partitions if one.number == root_number]
    if root.start + root.size_bytes != layout.end:
        raise exception.InvalidError(
            "the root's partition cannot grow: another one is behind it",
            hint="leave --root-size out",
        )
    size_bytes = align(root.start + size_bytes) - root.start
    if size_bytes < root.size_bytes:
        raise _cannot_shrink(size_bytes, root.size_bytes)
    return align(root.start + size_bytes), size_bytes


def _cannot_shrink(size_bytes: int, present: int) -> exception.InvalidError:
    return exception.InvalidError(
        f"the root's partition has {present} bytes, and is not made smaller ({size_bytes})",
        hint="give a larger --root-size, or none",
    )


def _options(rule: PathRule, rules: Sequence[PathRule], has_systemd: bool) -> str:
    if rule.options is not None:
        return rule.options
    may_fail = any(
        one.durability_class is DurabilityClass.NONE and f"{rule.path}/".startswith(f"{one.path}/")
        for one in rules
    )
    if not may_fail:
        return _OPTIONS
    return _OPTIONS + _MAY_FAIL + (_SYSTEMD_OPTION if has_systemd else "")


def _partition(
    rule: PathRule, tree: Tree, shape: Superblock, start: int, options: str
) -> NewPartition:
    size_bytes = rule.size_bytes
    least = _needed(tree, shape, size_bytes or 0)
    if size_bytes is None:
        size_bytes = align(_needed(tree, shape, least + least // 4 + ROOM) + least // 4 + ROOM)
    elif align(size_bytes) < least:
        raise exception.InvalidError(
            f"{rule.path} is to have {format_size(size_bytes)}, but needs {align(least) // MIB}MiB",
            hint="give it a larger size, or none",
        )
    size_bytes = align(max(size_bytes, SIZE_MIN, ALIGNMENT))
    return NewPartition(
        rule, tree, start, size_bytes, _inodes(tree, size_bytes), uuid.uuid4(), options
    )  # fmt: skip


def _inodes(tree: Tree, size_bytes: int) -> int:
    return max(tree.inode_count * 5 // 4 + INODES_BESIDE, size_bytes // BYTES_PER_INODE)


def _needed(tree: Tree, shape: Superblock, size_bytes: int) -> int:
    """Return the bytes that a tree needs in a file system of that size: content, tables, journal.

    The journal as mke2fs makes it (lib/ext2fs/mkjournal.c, ext2fs_default_journal_size), which
    makes none of less than 2048 blocks.
    """
    blocks = size_bytes // shape.block_size
    journal = next(
        (
            each
            for most, each in ((32768, 1024), (262144, 4096), (524288, 8192), (4194304, 16384))
            if blocks < most
        ),
        32768,
    )
    tables = _inodes(tree, size_bytes) * shape.inode_size
    spread = len(tree.nodes) * shape.block_size // 16  # nodes of extents, names of links
    return tree.data_bytes * 21 // 20 + spread + tables + journal * shape.block_size + 4 * MIB
