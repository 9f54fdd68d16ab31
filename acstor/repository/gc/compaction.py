"""Compaction: moving the chunks that are needed out of packs of which little is needed.

No manifest changes. The chunks of a pack P are copied to new packs of its class, then ``moved/<P>``
says where they are. The next collection finds that nothing needs P any more, and deletes it after
the grace period. Why nothing is lost whatever runs at the same time, or is killed, is in RFD 23.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence

from acstor import exception, native
from acstor.repository import layout
from acstor.repository.gc import claim
from acstor.repository.gc.chunk_copier import ChunkCopier
from acstor.repository.gc.compaction_plan import Candidate, Limits, Plan, make_plan
from acstor.repository.gc.compaction_record import OwnRecord
from acstor.repository.gc.remembered_packs import RememberedPacks
from acstor.repository.origin_reserve import OriginReserve
from acstor.repository.progress import Progress
from acstor.repository.repository import Repository
from acstor.repository.subjects import UNREADABLE

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class Report:
    """Report of a compaction."""

    stored_bytes: int = 0
    """Bytes of all packs of which something is needed and that could be moved."""
    dead_bytes: int = 0
    """Bytes of chunks in them that nothing needs."""
    moved: int = 0
    """Packs whose needed chunks are elsewhere now."""
    overtaken: int = 0
    """Packs that another compaction had moved first, or a collection deleted."""
    damaged: int = 0
    """Packs that could not be read, or whose copies could not; they stay as they are."""
    bytes_read: int = 0
    packs: int = 0
    """New packs."""
    bytes_written: int = 0
    """Bytes of the new packs."""
    bytes_to_free: int = 0
    """Bytes of the packs that collections can delete now."""
    seconds: float = 0.0


class Compactor:
    """Compacts the packs of one repository.

    :param host: name of this host, whose record says what is being made.
    :param pace: called after so many bytes were read; may wait.
    :param check: called between steps; ends the compaction by raising, and nothing is then left
        but packs that nothing names.
    :param reserve_percent: share of the origin's room that is left to others.
    """

    def __init__(
        self,
        repository: Repository,
        host: str,
        limits: Limits,
        progress: Progress | None = None,
        *,
        remembered: RememberedPacks | None = None,
        pace: Callable[[int], None] = lambda size: None,
        check: Callable[[], None] = lambda: None,
        reserve_percent: int = 0,
    ) -> None:
        """Keep what to compact with."""
        self._repository = repository
        self._origin = repository.origin
        self._limits = limits
        self._progress = progress or Progress()
        self._remembered = remembered
        self._pace = pace
        self._check = check
        self._reserve = OriginReserve(repository.origin, reserve_percent)
        self._record = OwnRecord(repository.origin, host)
        self._report = Report()

    def begin(self) -> None:
        """Take the place of a compaction of this host that was killed, or still runs.

        :raises UnsupportedError: when the repository's version is older than compaction.
        """
        self._repository.check_compaction_allowed()
        self._record.clear()

    def plan(self) -> Plan:
        """Choose what to move, and move nothing.

        :raises CorruptError: when a record or a manifest cannot be read.
        :raises UnsupportedError: when a newer release wrote one of them.
        """
        return make_plan(self._repository, self._limits, self._remembered)

    def compact(self, plan: Plan | None = None) -> Report:
        """Move what is to be moved.

        :param plan: made by :meth:`plan` just now, after :meth:`begin`; None: both are done.
        :raises UnsupportedError: when the repository's version is older than compaction.
        :raises ConflictError: when another compaction of this host has begun.
        :raises CorruptError: when a record or a manifest cannot be read.
        :raises ExhaustedError: when there is no room but what is left to volumes.
        """
        started = time.monotonic()
        if plan is None:
            self.begin()
            plan = self.plan()
        report = self._report = Report(plan.stored_bytes, plan.dead_bytes)
        self._progress.begin("compacting", plan.live_bytes)
        try:
            for batch in plan.batches(self._limits):
                self._check()
                self._move(batch)
        finally:
            report.seconds = time.monotonic() - started
        return report

    def _move(self, batch: Sequence[Candidate]) -> None:
        self._record.begin([one.pack for one in batch])
        try:
            self._move_named(batch)
        except (exception.AcstorError, KeyboardInterrupt):
            self._abandon()
            raise
        self._record.end()

    def _abandon(self) -> None:
        """Let collections have what was made; where that fails the next compaction does it."""
        try:
            self._record.end()
        except exception.AcstorError as error:
            LOG.warning("the record of a compaction is left: %s", error)

    def _move_named(self, batch: Sequence[Candidate]) -> None:
        # Named first, then claimed, as in RFD 5: what is there now stays while it is named.
        lost = claim.claim_names(
            self._origin, {one.pack.hex(): layout.pack_key(one.pack.hex()) for one in batch},
            is_of_hosts=True,
        )  # fmt: skip
        report, copier = self._report, self._new_copier(batch[0].pack_class)
        copied: list[tuple[Candidate, native.ChunkRecords]] = []
        for one in batch:
            if one.pack.hex() in lost:
                report.overtaken += 1
                continue
            self._check()
            try:
                copied.append((one, copier.copy(one)))
            except UNREADABLE as error:
                LOG.warning("pack %s is not moved: %s", one.pack.hex(), error)
                report.damaged += 1
        copier.finish()
        report.packs += copier.packs
        report.bytes_written += copier.bytes_stored
        for one, table in copied:
            if one.pack in copier.unsound:
                report.damaged += 1
            else:
                self._publish(one, table, copier)

    def _new_copier(self, pack_class: str) -> ChunkCopier:
        return ChunkCopier(
            self._origin,
            pack_class,
            self._repository.chunk_size,
            self._limits.pack_size,
            self._record.announce,
            self._reserve.check,
            self._advance,
        )

    def _advance(self, size: int) -> None:
        self._report.bytes_read += size
        self._progress.advance(size)
        self._pace(size)
        self._check()

    def _publish(self, one: Candidate, table: native.ChunkRecords, copier: ChunkCopier) -> None:
        """Say where the copies of a pack's chunks are, unless somebody else has moved it."""
        with native.map_errors(f"listing what was copied of pack {one.pack.hex()}"):
            moved = native.MovedPack.build(
                one.pack,
                one.pack_class,
                self._repository.chunk_size,
                table,
                copier.copies_of(one.pack),
            )
        self._record.check_current()
        key = layout.moved_key(one.pack.hex())
        if self._origin.put_if_absent(key, [moved.to_bytes()]):
            self._report.moved += 1
            self._report.bytes_to_free += one.size_bytes
        else:
            self._report.overtaken += 1
