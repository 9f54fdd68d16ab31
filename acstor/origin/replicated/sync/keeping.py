"""Upkeep of the members of an origin by the process that leads, pass by pass.

All that it knows it reads from the members, so it may die anywhere, and two at once do no harm:
each copies what is owed, and generations and states change by swaps.
"""

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from acstor import exception
from acstor.origin import base
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.logs.log_placement import LogPlacement, LogPlaces
from acstor.origin.replicated.member_calls.refs import MemberRefs
from acstor.origin.replicated.member_records import MEMBER_REF
from acstor.origin.replicated.members_status import (
    ERROR_LENGTH_MAX,
    MembersStatus,
    MemberStatus,
    PowerStatus,
    read_status,
    write_status,
)
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.placement import Placement
from acstor.origin.replicated.power.awake_placement import AwakePlacement
from acstor.origin.replicated.power.owed_deletions import NotOwed
from acstor.origin.replicated.power.states import FILLED, SYNCHRONISED
from acstor.origin.replicated.refs import RefCopier, RefLag
from acstor.origin.replicated.set_placement import COPIED_FOLDERS, LOG_FOLDER
from acstor.origin.replicated.states import MemberEvent, MemberState
from acstor.origin.replicated.sync.budget import Bandwidth, SyncBudget
from acstor.origin.replicated.sync.member_copy import Check, MemberCopy
from acstor.origin.replicated.sync.pairs import Pair
from acstor.origin.replicated.sync.synchronisation import Synchronisation, SyncReport

LOG = logging.getLogger(__name__)

COMPARE_SECONDS = 3600.0
"""Time after which listings are compared again, though nothing asks for it."""
COMPARE_SOON_SECONDS = 300.0
"""The same where refs wait for objects that no change log names, as those of folds are."""
REFS_SECONDS = 60.0
"""Time from one copy of the refs to the next, however fast passes follow each other."""
FIRST_GROWTH_SECONDS = 600.0
"""Time after which generations grow first: leaders that follow each other fast shall not."""
GROWTH_SECONDS = 3600.0
"""Time from one growth to the next."""


class MemberKeeping:
    """Keeps the members of one origin equal, and says how far they are.

    :param origin: all of them.
    :param check: compares objects with their names before they are copied.
    :param rate: largest rate of copies to and from a member, bytes per second.
    :param leader: name of this process, for operators.
    :param is_wanted: see :class:`.MemberCopy`.
    :param needed: keys of objects without which a ref of a name and a content is of no use.
    :param logs: says where logs of volumes were written; None: they are not copied.
    :param clock: monotonic seconds.
    :param now: seconds since the epoch.
    :param power_status: returns what is shown of the budget of power.
    """

    def __init__(
        self,
        origin: ReplicatedOrigin,
        check: Check,
        rate: int,
        leader: str,
        *,
        is_wanted: Callable[[str], bool] = lambda key: True,
        needed: Callable[[str, bytes], Iterable[str]] = lambda name, content: (),
        logs: LogPlaces | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        power_status: Callable[[], PowerStatus | None] = lambda: None,
    ) -> None:
        self.power_status = power_status
        self._origin = origin
        self._check = check
        self._is_wanted = NotOwed(origin, is_wanted)
        self._needed = needed
        self._logs = logs
        self._folders = COPIED_FOLDERS if logs is None else (*COPIED_FOLDERS, LOG_FOLDER)
        self._former: Mapping[str, MemberStatus] = {}
        self._bandwidth = Bandwidth(rate, rate, rate)
        self._leader = leader
        self._clock = clock
        self._now = now
        self._growth_at = clock() + FIRST_GROWTH_SECONDS
        self._away: dict[str, str] = {}
        self._refs_at = self._compare_at = self._looked_at = clock()
        self._soon = COMPARE_SOON_SECONDS
        self._waiting: set[tuple[str, str, str]] = set()
        self._begin({})

    def run(self) -> MembersStatus:
        """Make a pass, and return what was seen.

        :raises UnavailableError: when the home cannot be reached.
        """
        self._origin.view.refresh(is_due=True)
        states = {name: self._part(name) for name in self._origin.members}
        if states != self._states:
            self._begin(states)
        self._look_who_is_there()
        if self._clock() >= self._growth_at:
            self._grow()
        self._find_what_is_owed()
        self.report = self._sync.run_period()
        for pair, error in self.report.errors.items():
            LOG.warning("copies from member %s to %s: %s", pair.source, pair.target, error)
        if self._clock() >= self._refs_at:
            self._copier.copy()
            self._refs_at = self._clock() + REFS_SECONDS
            self._compare_soon()
        self._finish_joining()
        status = self._status(self._copier.lags())
        try:
            write_status(self._home, status)
        except exception.ConflictError:
            LOG.debug("another process wrote the status of the members")
        return status

    @property
    def is_behind(self) -> bool:
        """True if the last pass copied something and left something: the next one is due."""
        return bool(self.report.bytes and self.report.left_bytes)

    def is_compared(self, name: str) -> bool:
        """Return whether a member was compared with the others since it takes the part it has."""
        return name in self._compared and self._states.get(name) == self._part(name)

    def owes(self, name: str) -> bool:
        """Return whether a member has something that others shall have."""
        return any(self._sync.backlog.size_bytes(Pair(name, one)) for one in self._awake)

    def lacks(self, name: str) -> bool:
        """Return whether others have something that a member shall have, and can be copied."""
        return bool(self._sync.backlog.owed_to(name))

    def advance(self, name: str) -> None:
        """Have the generation of a member grow; errors as of :meth:`.Membership.advance`."""
        self._membership.advance(name)

    @property
    def away(self) -> Mapping[str, str]:
        """Members that did not answer in the last pass, and why; of those that do not sleep."""
        return self._away

    def _part(self, name: str) -> tuple[MemberState | None, bool, bool]:
        """Return the part of a member: its state, whether it is compared, and filled."""
        power = self._origin.view.power_state(name)
        return self._origin.view.state(name), power in SYNCHRONISED, power in FILLED

    def _begin(self, states: Mapping[str, tuple[MemberState | None, bool, bool]]) -> None:
        """Begin anew with members of these states; what they owe is found by their listings."""
        origin = self._origin
        self._states = states
        names = self._awake = tuple(name for name, (_, is_awake, _) in states.items() if is_awake)
        self._compared: set[str] = set()
        self._refs = {name: MemberRefs(origin.members[name]) for name in names}
        self._membership = Membership(origin.view.home, self._refs)
        self._home = origin.refs
        budgets = {name: SyncBudget(self._bandwidth, self._clock) for name in names}
        copy = MemberCopy(origin.replicated, budgets, self._check, is_wanted=self._is_wanted)
        members = {name: origin.members[name] for name in names}
        placement: Placement = origin.placement
        if self._logs is not None:
            placement = LogPlacement(placement, self._logs)
        placement = AwakePlacement(placement, origin.view.power_state)
        self._sync = Synchronisation(members, placement, budgets, copy)
        others = {name: refs for name, refs in self._refs.items() if name != origin.view.home}
        self._copier = RefCopier(self._home, others, self._clock, self._is_ready)
        self._compare_at = self._looked_at = self._clock()
        self._refs_at = self._clock()
        self._compared_at: float | None = None
        self._former = {**self._former, **self._read_former()}
        self.report = SyncReport({})

    def _compare_soon(self) -> None:
        """Have listings be compared for refs that wait, less often while that is in vain."""
        waiting = self._copier.waiting
        if waiting - self._waiting:
            self._soon = COMPARE_SOON_SECONDS
        self._waiting = waiting
        if waiting:
            self._compare_at = min(self._compare_at, self._looked_at + self._soon)

    def _is_ready(self, member: str, name: str, content: bytes) -> bool:
        """Return whether a member has what a ref names, as far as it gets that and the home has it.

        Of an object that cannot be looked for it is not known: then not.
        """
        home = self._origin.members[self._origin.view.home]
        store, placement = self._origin.members[member], self._origin.placement
        try:
            for key in self._needed(name, content):
                is_there = functools.partial(_exists, key)
                is_due = member in placement.place(key).members
                if is_due and not store.call(is_there) and home.call(is_there):
                    return False
        except exception.AcstorError as error:
            LOG.debug("objects of ref %s: %s", name, exception.one_line(error))
            return False
        return True

    def _look_who_is_there(self) -> None:
        """Ask each member for its ref; one that was away is compared once it is back."""
        away = {}
        for name, refs in self._refs.items():
            try:
                refs.get_ref(MEMBER_REF)
            except exception.AcstorError as error:
                away[name] = exception.one_line(error)
        if self._away.keys() - away.keys():
            self._compare_at = self._clock()
        self._away = away

    def _grow(self) -> None:
        for name in self._awake:
            if name in self._away:
                continue
            try:
                self._membership.advance(name)
            except exception.AcstorError as error:
                LOG.warning("the generation of member %s: %s", name, exception.one_line(error))
        self._growth_at = self._clock() + GROWTH_SECONDS

    def _find_what_is_owed(self) -> None:
        try:
            if self._logs is not None:
                # First: the epoch of what a change log names is in a record that is older.
                self._logs.refresh()
        except exception.AcstorError as error:
            # Logs whose place is not known are owed to nobody: a comparison would miss them.
            LOG.warning("the records of volumes: %s", exception.one_line(error))
            return
        try:
            self._sync.look()
        except exception.AcstorError as error:
            LOG.warning("change logs of members: %s", exception.one_line(error))
        is_due = self._sync.needs_comparison or self._clock() >= self._compare_at
        if not is_due:
            return
        try:
            self._sync.compare(self._folders, left_out=self._away)
        except exception.AcstorError as error:
            LOG.warning("what members owe is not known: %s", exception.one_line(error))
            return
        if self._waiting:
            self._soon = min(2 * self._soon, COMPARE_SECONDS)
        self._compared |= set(self._awake) - self._away.keys()
        self._looked_at = self._clock()
        self._compare_at = self._looked_at + COMPARE_SECONDS
        if not self._away:
            self._compared_at, self._former = self._now(), {}

    def _read_former(self) -> Mapping[str, MemberStatus]:
        """Return what the process that led before has seen: more than this one has by now."""
        try:
            status = read_status(self._home)
        except exception.CorruptError:
            return {}
        return {} if status is None else status.members

    def _finish_joining(self) -> None:
        """Have a member that has all that it shall have be in use."""
        for name in self._awake:
            if self._origin.view.state(name) is not MemberState.JOINING or name in self._away:
                continue
            # Of logs there is always something left, and nobody waits for it here.
            if self._compared_at is None or self._sync.backlog.owed_to(name, COPIED_FOLDERS):
                continue
            try:
                self._membership.change(name, MemberEvent.FILLED)
            except exception.ConflictError as error:
                LOG.warning("member %s is filled: %s", name, exception.one_line(error))
            else:
                LOG.info("member %s is filled, and in use from now on", name)
                self._origin.view.refresh(is_due=True)

    def _error_of_copies(self, name: str) -> str:
        """Return what hindered copies to a member in the last pass; empty: nothing did."""
        deferred = self._sync.backlog.deferred_of(name)
        if deferred:
            return f"{len(deferred)} objects are damaged or contradict each other: {deferred[0]}"
        return next((text for pair, text in self.report.errors.items() if pair.target == name), "")

    def _status(self, lags: Mapping[str, RefLag]) -> MembersStatus:
        found = {}
        for name in self._states:
            lag = lags.get(name, RefLag(0, None))
            alarm = self._origin.view.power.entry(name).alarm
            error = alarm or self._away.get(name) or self._error_of_copies(name) or lag.error
            power = self._origin.view.power_state(name)
            found[name] = MemberStatus(
                is_reachable=name not in self._away and name in self._awake,
                owed_bytes=self._bytes(Pair(one, name) for one in self._states if one != name),
                sole_bytes=self._sole_bytes(name),
                refs_behind=lag.refs,
                refs_age_seconds=lag.age_seconds,
                error=error[:ERROR_LENGTH_MAX],
                power=power,
            )
        return MembersStatus(
            self._now(), self._leader, self._compared_at, found, self.power_status()
        )

    def _sole_bytes(self, name: str) -> int:
        """Return what a member owes; what was known of it before all was compared counts, too."""
        former = self._former.get(name)
        owed = self._bytes(Pair(name, one) for one in self._states if one != name)
        return max(owed, 0 if former is None else former.sole_bytes)

    def _bytes(self, pairs: Iterable[Pair]) -> int:
        return max(map(self._sync.backlog.size_bytes, pairs), default=0)


def _exists(key: str, origin: base.ObjectStore) -> bool:
    return origin.exists(key)
