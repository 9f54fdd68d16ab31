"""Synchronisation of the members: what one has and another shall have is copied, by the budget.

One process leads it. All that it knows it reads from the members: their change logs, or their
listings. So it may die anywhere, and another one goes on: a segment of a log is deleted only after
all that it names is where it shall be.

Source: flexStore, §III-C and §IV-C (``moveData``). Differs: RFD 38.
"""

import concurrent.futures
import dataclasses
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from acstor import exception
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.placement import Placement
from acstor.origin.replicated.sync.backlog import COMPARED_DISK, Backlog
from acstor.origin.replicated.sync.budget import SyncBudget
from acstor.origin.replicated.sync.change_log import (
    CHANGES_PREFIX,
    PERIOD_SECONDS,
    Change,
    Segment,
    UnreadableSegment,
    read_segments,
)
from acstor.origin.replicated.sync.member_copy import SETTLED, MemberCopy, Outcome
from acstor.origin.replicated.sync.pairs import Pair, Room, choose

LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class SyncReport:
    """Outcome of one control period."""

    rates: Mapping[Pair, float]
    """Pairs that were chosen, bytes per second."""
    outcomes: Counter[Outcome] = dataclasses.field(default_factory=Counter)
    bytes: int = 0
    errors: dict[Pair, str] = dataclasses.field(default_factory=dict)
    """Pairs that were given up in this period, with the reason."""
    left_bytes: int = 0
    """Bytes that are owed after it."""


class Synchronisation:
    """Copies between members, in control periods.

    :param members: by name.
    :param placement: says which members shall have an object.
    :param budgets: of each member.
    :param copy: copies single objects; pays by the same budgets.
    :param period_seconds: T_s.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        placement: Placement,
        budgets: Mapping[str, SyncBudget],
        copy: MemberCopy,
        *,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._members = members
        self._placement = placement
        self._budgets = budgets
        self._copy = copy
        self._period_seconds = period_seconds
        self._segments: dict[tuple[str, str], Segment] = {}
        self._unreadable: dict[tuple[str, str], UnreadableSegment] = {}
        self._compared: set[tuple[str, str]] = set()
        self.backlog = Backlog(placement)

    @property
    def needs_comparison(self) -> bool:
        """True if a segment cannot be read: the listings have to be compared in its place."""
        return bool(self._unreadable.keys() - self._compared)

    def look(self) -> None:
        """Read the segments of the change logs that are new.

        :raises UnavailableError: when a member cannot be asked; what the others owe is known then.
        """
        unavailable: exception.AcstorError | None = None
        for name, member in self._members.items():
            try:
                self._look_at(name, member)
            except (exception.UnavailableError, exception.OverloadedError) as error:
                unavailable = error
        if unavailable is not None:
            raise unavailable

    def _look_at(self, name: str, member: Member) -> None:
        for found in read_segments(member):
            if not isinstance(found, Segment):
                if (name, found.key) not in self._unreadable:
                    LOG.warning("member %s: %s", name, exception.one_line(found.error))
                self._unreadable[name, found.key] = found
            elif (name, found.key) not in self._segments:
                self._segments[name, found.key] = found
                for disk, changes in found.disks.items():
                    for change in changes:
                        self.backlog.add(name, disk, change)

    def compare(self, folders: Sequence[str] = ("",), left_out: Collection[str] = ()) -> int:
        """Find what is owed by the members' listings; return the number of objects.

        What could not be copied before is tried again afterwards. An object that the first member
        decides and does not have was deleted: it is owed to nobody.

        After a member was away, a writer died, or a segment was damaged; and now and then, as a
        writer that died tells nobody.

        :param folders: each ends with ``/``; one that is empty: all.
        :param left_out: members that cannot be asked now; what is owed by and to the others counts.
        :raises UnavailableError: when another member cannot be asked.
        """
        unreadable = set(self._unreadable)
        self.backlog.retry()
        found = sum(self._compare_folder(folder, left_out) for folder in folders)
        if not left_out:
            self._compared |= unreadable
        return found

    def _compare_folder(self, folder: str, left_out: Collection[str]) -> int:
        listings = {
            name: member.list(folder)
            for name, member in self._members.items()
            if name not in left_out
        }
        found = 0
        for key in sorted(set().union(*listings.values())):
            placed = self._placement.place(key)
            shall_have = [name for name in placed.members if name in listings]
            if key.startswith(CHANGES_PREFIX) or all(key in listings[name] for name in shall_have):
                continue
            if placed.is_decided and key not in listings.get(placed.members[0], ()):
                continue
            holders = [name for name in (*shall_have, *listings) if key in listings[name]]
            size = _size(self._members[holders[0]], key)
            self.backlog.add(holders[0], COMPARED_DISK, Change(key, size))
            for name in shall_have:
                if key in listings[name]:
                    self.backlog.settle(Pair(holders[0], name), key)
            found += 1
        return found

    def run_period(self, needed: Mapping[str, str] | None = None) -> SyncReport:
        """Choose pairs, and copy between them what their rates let them in a control period.

        :param needed: disks that are about to go to a member, with that member.
        """
        needed = needed or {}
        rooms = {
            name: Room(budget.begin_period(), budget.rate) for name, budget in self._budgets.items()
        }
        demands = self.backlog.demands(needed)
        choice = choose(demands, rooms, self._period_seconds)
        report = SyncReport(choice.rates)
        if choice.rates:
            with concurrent.futures.ThreadPoolExecutor(len(choice.rates), "member-sync") as pool:
                jobs = [
                    pool.submit(self._copy_pair, pair, rate, needed)
                    for pair, rate in choice.rates.items()
                ]
                for job in jobs:
                    self._add(report, job.result())
        self._settle_segments()
        report.left_bytes = self.backlog.total_bytes
        return report

    def _copy_pair(self, pair: Pair, rate: float, needed: Mapping[str, str]) -> SyncReport:
        """Copy in one pair until its share of the period is used up; at least one object."""
        report = SyncReport({})
        for change in self.backlog.objects(pair, needed):
            if report.bytes and report.bytes >= rate * self._period_seconds:
                break
            try:
                outcome, size = self._copy.copy(pair, change.key)
            except exception.AcstorError as error:
                report.errors[pair] = exception.one_line(error)
                break
            report.outcomes[outcome] += 1
            report.bytes += size
            if outcome in SETTLED:
                self.backlog.settle(pair, change.key)
            else:
                self.backlog.defer(pair, change.key)
                LOG.error(
                    "object %s, which member %s owes to %s: %s",
                    change.key, pair.source, pair.target, outcome.value,
                )  # fmt: skip
        return report

    @staticmethod
    def _add(report: SyncReport, more: SyncReport) -> None:
        report.outcomes.update(more.outcomes)
        report.bytes += more.bytes
        report.errors.update(more.errors)

    def _settle_segments(self) -> None:
        """Delete the segments of which nothing is owed any more.

        One that is damaged goes once all that a comparison found since is settled; one of a newer
        release stays, for that release.
        """
        for (name, key), segment in list(self._segments.items()):
            if not self._is_owed(name, segment) and self._is_deleted(name, key):
                del self._segments[name, key]
        if self.backlog.owes_disk(COMPARED_DISK):
            return
        for name, key in list(self._compared):
            is_damaged = isinstance(self._unreadable[name, key].error, exception.CorruptError)
            if is_damaged and self._is_deleted(name, key):
                self._compared.discard((name, key))
                del self._unreadable[name, key]

    def _is_deleted(self, name: str, key: str) -> bool:
        """Delete a segment; return whether it is gone."""
        try:
            self._members[name].call(lambda origin: origin.delete(key))
        except exception.AcstorError as error:
            LOG.warning("member %s keeps %s: %s", name, key, exception.one_line(error))
            return False
        return True

    def _is_owed(self, name: str, segment: Segment) -> bool:
        return any(
            self.backlog.owes(Pair(name, target), change.key)
            for changes in segment.disks.values()
            for change in changes
            for target in self._placement.place(change.key).members
            if target != name
        )


def _size(member: Member, key: str) -> int:
    """Return the size of an object, 0 where it is gone by now."""
    try:
        return member.call(lambda origin: origin.size(key))
    except exception.NotFoundError:
        return 0
