"""Finding out which base files the instances below Nova's instances_path use.

What counts is what QEMU will open: each regular file in each instance's directory (also while it
is resized, rescued or deleted: ``<uuid>``, ``<uuid>_resize``, ``<uuid>_del``), the temporary files
of live snapshots, and disks that are pinned, by the backing file that its qcow2 header names.
Nova's database is not asked: an instance that Nova has forgotten, but whose guest runs, counts as
well.
"""

import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from acstor.drivers.nova.image_links.base_names import is_base_name, is_other_digest
from acstor.drivers.nova.image_links.nova_settings import NovaSettings
from acstor.drivers.nova.image_links.qcow2_header import read_backing_names

LOG = logging.getLogger(__name__)

FILES_MAX = 200_000
"""Files that one scan looks at; with more it is incomplete."""
_SNAPSHOTS = "snapshots"


@dataclass(frozen=True)
class OverlayScan:
    """Result of one scan."""

    used_names: frozenset[str]
    """Names of base files that overlays refer to and that are no regular files: without a link
    of ours the instance would not start."""
    overlay_count: int = 0
    """Files that have a base file."""
    problem: str | None = None
    """Reason for which there may be overlays that were not seen; None: every one was."""
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By name in :attr:`used_names`, the directories of the instances that need it."""
    other_digest: str | None = None
    """One base file that overlays refer to and that is called by another digest than links are;
    None: there is none. Nova does not use links there."""

    @property
    def is_complete(self) -> bool:
        """True if a name that is not in :attr:`used_names` is not in use."""
        return self.problem is None


def scan(settings: NovaSettings, files_max: int = FILES_MAX) -> OverlayScan:
    """Look at every overlay once; raises nothing, what cannot be read is :attr:`problem`."""
    users: dict[str, set[str]] = {}
    regular: dict[str, bool] = {}
    overlay_count = file_count = 0
    problem: str | None = None
    other_digest: str | None = None
    try:
        for owner, path in _overlay_candidates(settings):
            file_count += 1
            if file_count > files_max:
                problem = f"more than {files_max} files below {settings.instances_path}"
                break
            try:
                backings = read_backing_names(path)
            except FileNotFoundError:
                continue  # deleted meanwhile
            names = _base_names(backings)
            other_digest = other_digest or _other_digest(settings, backings)
            overlay_count += bool(names)
            for backing, name in names:
                if backing not in regular:
                    regular[backing] = _is_regular(backing)
                if not regular[backing]:
                    users.setdefault(name, set()).add(owner)
    except OSError as error:
        problem = f"{error.filename or settings.instances_path}: {error.strerror or error}"
    named = {name: tuple(sorted(owners)) for name, owners in users.items()}
    return OverlayScan(frozenset(named), overlay_count, problem, named, other_digest)


def _overlay_candidates(settings: NovaSettings) -> Iterator[tuple[str, str]]:
    """Yield (name of the instance's directory, path) of the regular files that may be overlays.

    :raises OSError: when a directory cannot be read; one that is gone meanwhile is no error.
    """
    yield from _pinned(settings)
    left_out = {settings.base_directory, settings.lock_directory}
    for directory in _entries(settings.instances_path, missing_ok=False):
        if not directory.is_dir(follow_symlinks=False) or directory.path in left_out:
            continue
        if directory.name == _SNAPSHOTS:  # [libvirt] snapshots_directory: one directory for each
            for inner in _entries(directory.path):
                if inner.is_dir(follow_symlinks=False):
                    yield from ((inner.name, path) for path in _regular_files(inner.path))
        yield from ((directory.name, path) for path in _regular_files(directory.path))


def _pinned(settings: NovaSettings) -> Iterator[tuple[str, str]]:
    """Yield the disks of servers that may be gone, and whose last state is to be captured."""
    for server in _entries(settings.pins_directory):
        for pin in _entries(server.path):
            yield from ((server.name, path) for path in _regular_files(pin.path))


def _regular_files(directory: str) -> Iterator[str]:
    for entry in _entries(directory):
        if entry.is_file(follow_symlinks=False):
            yield entry.path


def _entries(directory: str, *, missing_ok: bool = True) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        if missing_ok:
            return []
        raise


def _base_names(backings: Iterable[str]) -> list[tuple[str, str]]:
    """Return (path, name) of the base files among the files that an overlay refers to."""
    return [
        (backing, name) for backing in backings if is_base_name(name := os.path.basename(backing))
    ]


def _other_digest(settings: NovaSettings, backings: Iterable[str]) -> str | None:
    for backing in backings:
        folder, name = os.path.split(backing)
        if folder == settings.base_directory and is_other_digest(name):
            return name
    return None


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
