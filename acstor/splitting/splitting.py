"""Splitting an image file, from the input to the output.

The input is only read. Everything is done on a copy in a folder beside the output, which gets its
name at the very end, so whatever happens there is a whole output or none.
"""

import contextlib
import dataclasses
import os
import uuid
from collections.abc import Sequence
from typing import Any

from acstor import exception, files
from acstor.browsing.disk_files import PartitionFound
from acstor.repository.images import inspection
from acstor.repository.progress import Progress
from acstor.repository.source import base, confinement
from acstor.splitting import layout, root_edit
from acstor.splitting.ext4.file_system import Ext4FileSystem
from acstor.splitting.ext4.superblock import damaged
from acstor.splitting.layout import ALIGNMENT, SECTOR, Layout, TableKind
from acstor.splitting.plan import NewPartition, Plan, make_plan
from acstor.splitting.population import Population
from acstor.splitting.table import PathRule
from acstor.splitting.tools import Tools
from acstor.splitting.work_disk import WorkDisk, cannot_write, copy_in, work_folder

OUTPUT_FORMATS = ("raw", "qcow2")
_LINUX_GPT = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
_LINUX_MBR = "83"
_FILE_SYSTEM = "ext4"
_MODE = 0o666


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A split that is asked for."""

    input_path: str
    input_format: str
    output_path: str
    output_format: str
    rules: tuple[PathRule, ...]
    root_partition: int | None = None
    root_size_bytes: int | None = None
    tool_timeout: float = 60.0
    """Seconds that qemu-img may take to describe the input."""


def describe(request: Request) -> Plan:
    """Return what a split would do; nothing is written.

    :raises AcstorError: as :func:`split` does.
    """
    with contextlib.closing(_opened(request)) as source:
        return _planned(request, source, layout.read_layout(source), 0)[1]


def split(request: Request, progress: Progress) -> Plan:
    """Split an image; return what was done.

    :raises NotFoundError: when a path or partition is not in the image.
    :raises InvalidError: when it cannot be split like that, or is no sound image.
    :raises UnsupportedError: when it has what cannot be split.
    :raises ConflictError: when the output is there already.
    :raises ExhaustedError: when there is no room.
    :raises UnavailableError: when a tool is missing, or takes too long.
    """
    _check_output(request)
    with contextlib.closing(_opened(request)) as source, work_folder(request.output_path) as folder:
        found = layout.read_layout(source)
        _refuse_early(request, source, found)
        shift = ALIGNMENT if found.kind is TableKind.NONE else 0
        disk = WorkDisk(os.path.join(folder, "disk"), shift + source.size_bytes)
        with contextlib.closing(disk):
            copy_in(source, disk, shift, progress)
            with Tools(folder, disk) as tools:
                plan = _split_disk(request, disk, found, shift, tools, progress)
                _finish(request, tools, folder, progress)
        return plan


def _refuse_early(request: Request, source: base.ImageSource, found: Layout) -> None:
    """Refuse what cannot be split before anything is copied.

    Damage is no reason yet: e2fsck may correct it, and replays the journal of a disk in use.
    """
    root = layout.root_of(source, found, request.root_partition)
    with contextlib.suppress(exception.ImageRefusedError):
        if not Ext4FileSystem(source, root.start).superblock.needs_recovery:
            _planned(request, source, found, 0)


def _opened(request: Request) -> base.ImageSource:
    return inspection.open_source(
        request.input_path, request.input_format, request.tool_timeout, inspection.SizeLimits()
    )


def _check_output(request: Request) -> None:
    if os.path.lexists(request.output_path):
        raise exception.ConflictError(
            f"{request.output_path} is there already", hint="remove it, or choose another name"
        )


def _planned(
    request: Request, disk: layout.SizedDisk, found: Layout, shift: int
) -> tuple[Ext4FileSystem, Plan]:
    """Return the root file system and the plan.

    :param shift: bytes by which the disk is not where it was found.
    """
    if found.kind is TableKind.NONE and shift:
        moved = [dataclasses.replace(one, start=one.start + shift) for one in found.partitions]
        found = dataclasses.replace(found, partitions=tuple(moved), end=found.end + shift)
    root = layout.root_of(disk, found, request.root_partition)
    system = _file_system(disk, root, 0)
    return system, make_plan(system, found, root.number, request.rules, request.root_size_bytes)


def _file_system(disk: layout.SizedDisk, root: PartitionFound, shift: int) -> Ext4FileSystem:
    """Return the root file system.

    :raises ImageRefusedError: when it says that it is larger than its partition.
    """
    system = Ext4FileSystem(disk, root.start + shift)
    if system.superblock.size_bytes > root.size_bytes:
        raise damaged(f"{system.superblock.size_bytes} bytes in a partition of {root.size_bytes}")
    return system


def _split_disk(
    request: Request, disk: WorkDisk, found: Layout, shift: int, tools: Tools, progress: Progress
) -> Plan:
    confinement.missing_of_folder()
    root = layout.root_of(
        disk if not shift else _Shifted(disk, shift), found, request.root_partition
    )
    former = _file_system(disk, root, shift).superblock
    if former.needs_recovery:
        root_edit.replay_journal(tools, disk, root.start + shift, former.size_bytes)
    tools.check(root.start + shift, repair=True)
    system, plan = _planned(request, disk, found, shift)
    progress.begin("moving files", max(1, sum(one.tree.data_bytes for one in plan.partitions)))
    _write_table(tools, disk, plan)
    for one in plan.partitions:
        _fill(tools, system, one, disk, progress)
    trees = [one.tree for one in plan.partitions]
    pieces = root_edit.moved_pieces(system, trees)
    root_edit.remove_moved(tools, system, trees)
    root_edit.write_fstab(tools, system, plan)
    tools.check(system.start, repair=True)
    root_edit.clear_pieces(disk, system, pieces)
    if plan.root_size_bytes is not None:
        old_size = system.superblock.size_bytes
        root_edit.grow(tools, disk, system.start, old_size, plan.root_size_bytes)
    tools.check(system.start)
    _check_result(disk, plan)
    return plan


class _Shifted:
    """A disk that begins later than its file."""

    def __init__(self, disk: WorkDisk, shift: int) -> None:
        self._disk, self._shift = disk, shift

    @property
    def size_bytes(self) -> int:
        """Length."""
        return self._disk.size_bytes - self._shift

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of it."""
        return self._disk.read(self._shift + offset, size)


def _write_table(tools: Tools, disk: WorkDisk, plan: Plan) -> None:
    """Add the partitions to the table; those that are there stay as and where they are."""
    disk.grow(plan.disk_size_bytes)
    if plan.kind is TableKind.NONE:
        size = plan.root_size_bytes or plan.partitions[0].start - plan.root_start
        text = f"label: gpt\n{_line(plan.root_start, size, plan.kind)}, name=root\n"
        tools.must(["sfdisk", "-q", tools.disk_path], content=text.encode())
    elif plan.kind is TableKind.GPT:
        tools.must(["sfdisk", "-q", "--relocate", "gpt-bak-std", tools.disk_path])
    if plan.kind is not TableKind.NONE and plan.root_size_bytes is not None:
        text = f",{plan.root_size_bytes // SECTOR}\n"
        number = str(plan.root_number)
        tools.must(["sfdisk", "-q", "-N", number, tools.disk_path], content=text.encode())
    lines = [
        _line(one.start, one.size_bytes, plan.kind)
        + ("" if plan.kind is TableKind.MBR else f', name="{one.rule.partition_name}"')
        for one in plan.partitions
    ]
    text = "\n".join(lines) + "\n"
    tools.must(["sfdisk", "-q", "--append", tools.disk_path], content=text.encode())


def _line(start: int, size_bytes: int, kind: TableKind) -> str:
    linux = _LINUX_MBR if kind is TableKind.MBR else _LINUX_GPT
    return f"start={start // SECTOR}, size={size_bytes // SECTOR}, type={linux}"


def _fill(
    tools: Tools,
    system: Ext4FileSystem,
    one: NewPartition,
    disk: WorkDisk,
    progress: Progress,
) -> None:
    shape = system.superblock
    # What was there before a table that ends earlier is no part of any file system.
    options = ["-t", _FILE_SYSTEM, "-O", ",".join(["none", *shape.features])]
    options += ["-I", str(shape.inode_size), "-N", str(one.inode_count), "-m", "0"]
    options += ["-U", str(one.uuid)]
    tools.make_file_system(one.start, one.size_bytes // shape.block_size, shape.block_size, options)
    copied = Ext4FileSystem(disk, one.start)
    Population(system, one.tree, tools, one.start).fill(copied, progress)
    tools.check(one.start)


def _check_result(disk: WorkDisk, plan: Plan) -> None:
    """Refuse an outcome whose partitions are not those of the plan.

    :raises InternalError: then.
    """
    found = {one.start: one for one in layout.read_layout(disk).partitions}
    for one in plan.partitions:
        present = found.get(one.start)
        if present is None or present.size_bytes != one.size_bytes:
            raise exception.InternalError(f"there is no partition for {one.rule.path}")
        is_named = plan.kind is TableKind.MBR or present.name == one.rule.partition_name
        if not is_named or present.file_system != "ext":
            raise exception.InternalError(
                f"the partition for {one.rule.path} is {present.name!r}, {present.file_system}"
            )


def _finish(request: Request, tools: Tools, folder: str, progress: Progress) -> None:
    """Write the output, and give it its name.

    :raises ConflictError: when that is taken by now.
    """
    path = os.path.join(folder, f"output-{uuid.uuid4()}")
    with contextlib.closing(WorkDisk(path, 0)) as output:
        progress.begin("writing the output (per cent)", 100)
        tools.convert(output.descriptor, request.output_format, progress.advance)
        try:
            os.fchown(output.descriptor, os.geteuid(), os.getegid())
            os.fchmod(output.descriptor, _MODE & ~_mask())
            os.fsync(output.descriptor)
            # By its descriptor: tools may write in the folder, and its names are theirs.
            link = f"/proc/self/fd/{output.descriptor}"
            # Only with a folder, of whatever, os.link() follows it.
            os.link(link, request.output_path, src_dir_fd=output.descriptor)
            files.sync_directory(os.path.dirname(os.path.abspath(request.output_path)))
        except FileExistsError:
            _check_output(request)
            raise
        except OSError as error:
            raise cannot_write(request.output_path, error) from error


def _mask() -> int:
    """Return the mask of new files; the one of this process can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def summary(plan: Plan) -> Sequence[dict[str, Any]]:
    """Return the partitions of a plan as plain JSON types."""
    return [
        {
            "path": one.rule.path,
            "partition": one.rule.partition_name,
            "class": one.rule.durability_class.value,
            "start": one.start,
            "size": one.size_bytes,
            "files": len(one.tree.nodes),
            "bytes": one.tree.data_bytes,
            "sockets_left_out": one.tree.sockets,
            "uuid": str(one.uuid),
        }
        for one in plan.partitions
    ]
