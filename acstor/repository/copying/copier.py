"""Copying a repository to another origin, while it is in use.

The order makes a copy that is cut off anywhere either none, or the former one:

1. a hold keeps collections from deleting;
2. the refs are read, then what they name is copied and verified: at the destination nothing names
   it yet, and a former copy there is whole as it was;
3. the hold is renewed once more: nothing was deleted until then. Then it is removed;
4. the destination's object ``format`` goes, and nobody opens it any more; the refs are written, and
   what they name is marked as a collection does;
5. ``format`` is stored, and there is a repository.

A second copy to the same place goes on where one was interrupted, or updates one that is complete.
"""

import dataclasses
import enum
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.origin import ref_replacement
from acstor.origin.base import Origin
from acstor.repository import layout
from acstor.repository.copying import copy_record, ref_kinds
from acstor.repository.copying.copy_record import CopyKind, CopyState, CopyTerm
from acstor.repository.copying.marked_copy import MarkedCopy
from acstor.repository.copying.object_check import UNREADABLE, check_object
from acstor.repository.copying.objects_phase import SAMPLE_SHARE, ObjectsPhase
from acstor.repository.copying.report import CopyReport
from acstor.repository.copying.roots import Root, RootReader
from acstor.repository.copying.settled_volumes import SealerOf, native_sealer, settled
from acstor.repository.copying.transfer import Check, Transfer
from acstor.repository.gc.hold import HoldKeeper
from acstor.repository.images.image_index import ImageIndexWriter
from acstor.repository.progress import Progress
from acstor.repository.repository import Format, Repository

LOG = logging.getLogger(__name__)

WORKERS = 4
"""Objects that are copied at the same time."""
VERSION_MIN = 3
"""First version whose refs every origin has in the layout of today."""


class Verify(enum.StrEnum):
    """Objects whose bytes are read back from the destination."""

    NONE = "none"
    SOME = "some"
    """A random part, see :data:`.objects_phase.SAMPLE_SHARE`."""
    ALL = "all"


@dataclasses.dataclass(frozen=True, slots=True)
class CopySettings:
    """Settings of a copy."""

    is_restore: bool = False
    """True if the destination is to be used as the live repository."""
    prunes: bool = False
    """True if what the source has no more is removed from a former copy."""
    takes_damaged: bool = False
    """True if damaged objects, and refs that name them or what is missing, are copied, too."""
    holds: bool = True
    """False if the source cannot be written to, and nobody collects there."""
    verify: Verify = Verify.SOME
    workers: int = WORKERS


class Copier:
    """Copies one repository to one destination.

    :param check: compares objects with their names; a test may put its own.
    :param sealer_of: seals logs of volumes at the destination; a test may put its own.
    :param wait: how to wait, seconds.
    """

    def __init__(
        self,
        source: Repository,
        destination: Origin,
        settings: CopySettings | None = None,
        *,
        progress: Progress | None = None,
        check: Check = check_object,
        sealer_of: SealerOf = native_sealer,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._source = source
        self._destination = destination
        self._settings = settings or CopySettings()
        self._progress = progress or Progress()
        self._check = check
        self._seal = sealer_of(destination)
        self._wait = wait
        self._report = CopyReport(repository=source.format.id)
        self._reader = RootReader(source, is_restore=self._settings.is_restore)
        self._roots: dict[str, Root] = {}

    def copy(self) -> CopyReport:
        """Copy, and return the report, in which damage is named.

        :raises InvalidError: when the destination is no place for this copy.
        :raises UnsupportedError: when the source has to be upgraded first.
        :raises ConflictError: when collections may have deleted something meanwhile, the source
            was upgraded, or another process copies to the same destination. Repeating helps.
        :raises ExhaustedError: when the destination is full; what is there is kept.
        :raises UnavailableError: when one of the two cannot be reached.
        """
        started = time.monotonic()
        _check_version(self._source.format)
        kind = CopyKind.RESTORE if self._settings.is_restore else CopyKind.BACKUP
        term = copy_record.begin(self._source.origin, self._source.format, self._destination, kind)
        if term.record.state is CopyState.FINISHING or self._is_written(term):
            self._complete(term)
            self._report.is_complete = True
        self._report.seconds = time.monotonic() - started
        return self._report

    def _is_written(self, term: CopyTerm) -> bool:
        """Copy all but the object ``format``; return whether that may be stored.

        What is damaged at the source is no part of a backup. A repository that goes live without it
        would be one in which images and volumes are gone.
        """
        failed = self._copy_objects()
        takes_damaged = self._settings.takes_damaged
        if self._settings.is_restore and self._report.damages and not takes_damaged:
            return False
        is_sound = self._write(term, failed)
        if self._settings.is_restore and self._report.damages:
            return takes_damaged
        return is_sound or takes_damaged

    def _copy_objects(self) -> set[str]:
        """Copy and verify; return the keys of what the destination does not have."""
        if not self._settings.holds:
            return self._copy_held(lambda: None)
        holder = f"{socket.gethostname()}:{os.getpid()}"
        with HoldKeeper(self._source.origin, holder) as hold:
            failed = self._copy_held(hold.check)
            hold.renew()
        return failed

    def _copy_held(self, check: Callable[[], None]) -> set[str]:
        settings = self._settings
        for root in self._reader.read_all():
            self._roots[root.name] = root
        self._report.refs_unknown = self._reader.unknown
        origin = self._source.origin
        phase = ObjectsPhase(
            Transfer(
                origin, self._destination, takes_damaged=settings.takes_damaged,
                check=self._check, wait=self._wait,
            ),
            self._reader,
            origin.size,
            self._report,
            workers=settings.workers,
            progress=self._progress,
            check=check,
        )  # fmt: skip
        phase.copy(self._roots)
        if Repository.open(origin).format != self._source.format:
            raise exception.ConflictError(
                "the repository was upgraded meanwhile", hint="run the same command again"
            )
        if settings.verify is not Verify.NONE:
            share = 1 if settings.verify is Verify.ALL else SAMPLE_SHARE
            phase.verify(share=share, choice=random.Random())
        for root in self._roots.values():
            for damage in root.damages:
                self._report.add_damage(damage.name, damage.what)
        self._report.objects = len(phase.copies.sizes)
        self._report.bytes = sum(phase.copies.sizes.values())
        return phase.copies.failed

    def _write(self, term: CopyTerm, failed: set[str]) -> bool:
        """Write the refs of what is whole; the destination cannot be opened meanwhile.

        :returns: whether everything that they name is there.
        """
        term.become(CopyState.COPYING)
        self._close()
        roots = sorted(self._roots.values(), key=lambda root: root.name)
        self._progress.begin("writing refs", len(roots))
        for root in roots:
            if self._is_whole(root, failed):
                self._write_root(root)
            else:
                self._report.refs_left += 1
            self._progress.advance(1)
        is_pruned = self._settings.prunes and not self._report.damages
        if is_pruned or self._settings.is_restore:
            # Those of a restore are of a run before, which was interrupted while they were written.
            term.become(CopyState.COPYING)
            self._remove_refs()
        marked = MarkedCopy(Repository(self._destination, self._source.format))
        missing = dict(marked.check())
        for name, what in missing.items():
            self._report.add_damage(name, what)
        if is_pruned and not self._report.damages:
            term.become(CopyState.COPYING)
            self._report.objects_removed = marked.remove_unneeded()
        return not missing

    def _close(self) -> None:
        """Take away what makes the destination a repository, where it is one already."""
        ref_replacement.replace(self._destination, layout.FORMAT_REF, None)
        self._destination.delete(layout.FORMAT_KEY)

    def _is_whole(self, root: Root, failed: set[str]) -> bool:
        if self._settings.takes_damaged:
            return bool(root.content)
        return not root.damages and failed.isdisjoint(root.keys)

    def _write_root(self, root: Root) -> None:
        content = root.content
        if self._settings.is_restore and root.name.startswith(layout.VOLUME_PREFIX):
            volume_id = root.name.removeprefix(layout.VOLUME_PREFIX)
            try:
                content = settled(volume_id, content, self._seal)
            except UNREADABLE as error:
                self._report.add_damage(root.name, error.message)
                self._report.refs_left += 1
                return
        self._report.refs += 1
        self._report.refs_written += ref_replacement.replace(self._destination, root.name, content)
        for prefix, counter in _COUNTERS:
            if root.name.startswith(prefix):
                self._report.count(**{counter: 1})

    def _remove_refs(self) -> None:
        """Remove what the source has no more."""
        for name in sorted(self._stale_refs()):
            self._report.refs_removed += ref_replacement.replace(self._destination, name, None)

    def _stale_refs(self) -> Iterator[str]:
        for name in self._destination.list_refs():
            if name not in self._roots and name != ref_kinds.COPY_REF:
                yield name

    def _complete(self, term: CopyTerm) -> None:
        """Make the destination a repository."""
        if not self._settings.is_restore:
            term.become(CopyState.COPYING)
            self._destination.put_if_absent(layout.FORMAT_KEY, [self._source.format.encode()])
            term.become(CopyState.COMPLETE)
            return
        # Hosts begin with an index of its own: see ref_kinds.py.
        is_kept = Repository(self._destination, self._source.format).has_image_index
        ImageIndexWriter(self._destination, is_kept=is_kept).ensure()
        term.become(CopyState.FINISHING)
        self._destination.put_if_absent(layout.FORMAT_KEY, [self._source.format.encode()])
        term.remove()


_COUNTERS = (
    (layout.IMAGE_PREFIX, "images"),
    (layout.VOLUME_PREFIX, "volumes"),
    (layout.SNAPSHOT_PREFIX, "snapshots"),
    (layout.VERSION_PREFIX, "versions"),
)


def _check_version(found: Format) -> None:
    """Refuse a repository whose refs may be in the former layout.

    :raises UnsupportedError: when it is of an older version.
    """
    if found.version < VERSION_MIN:
        raise exception.UnsupportedError(
            f"the repository has format version {found.version}, copies need {VERSION_MIN}",
            hint="when every machine runs this release: 'acstor repository upgrade'",
        )
