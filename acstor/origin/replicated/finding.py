"""Finding objects: the order in which members are asked, and the next one after each failure."""

import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from acstor import exception
from acstor.origin import base, keys
from acstor.origin.replicated.breaker import BreakerState
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.placement import Placed, Placement
from acstor.origin.replicated.power.states import ASKED, PowerState
from acstor.origin.replicated.search import Absence, Search

Answer = TypeVar("Answer")


PowerOf = Callable[[str], PowerState]
"""Returns the power state of a member."""


def always_on(name: str) -> PowerState:
    """Return the power state of a member that never sleeps."""
    del name
    return PowerState.ACTIVE


class Fault(enum.StrEnum):
    """Reason for which a read was taken from the next member; a label of the counters."""

    UNREACHABLE = "unreachable"
    """It cannot be asked, or did not answer in time."""
    CORRUPT = "corrupt"
    """Its bytes are not what they should be."""
    FULL = "full"
    """It has no room for an object that another one took."""


class _RangeSearch:
    """The search for one range of several.

    :param one: the range.
    :param candidates: members in the order in which they are asked.
    """

    def __init__(self, one: base.ReadRange, search: Search, candidates: Sequence[Member]) -> None:
        self.range = one
        self.search = search
        self.candidates = iter(candidates)
        self.outcome: exception.AcstorError | None = None


class Finder:
    """Asks the members for objects, the best first.

    :param members: by name, in the order of the configuration; may change at any time.
    :param placement: says which members should have an object.
    :param power: one that sleeps is not asked, and what it has is not known.
    :param counted: whose counters it goes on with; None: they begin here.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        placement: Placement,
        power: PowerOf = always_on,
        counted: "Finder | None" = None,
    ) -> None:
        self._members = members
        self._placement = placement
        self._power = power
        self._lock: threading.Lock = threading.Lock() if counted is None else counted._lock
        self.faults: Counter[tuple[str, Fault]] = counted.faults if counted else Counter()
        self.absences: Counter[Absence] = counted.absences if counted else Counter()

    def find(self, key: str, action: Callable[[base.Origin], Answer]) -> Answer:
        """Return the answer of the best member that has an object.

        :raises NotFoundError: when every member says that it has none.
        :raises UnavailableError: when none has it that can be asked, and not all can be.
        :raises CorruptError: when those that have it have it damaged.
        """
        placed = self._placement.place(key)
        search = Search(key, placed)
        for member in self._candidates(placed, search):
            try:
                answer = member.call(action)
            except exception.AcstorError as error:
                if not self._is_next_asked(search, member, error):
                    raise
            else:
                self._count_absence(search.absence(is_found=True))
                return answer
        self._count_absence(search.absence(is_found=False))
        raise search.error()

    def read_many(
        self, ranges: Sequence[base.ReadRange], deadline_seconds: float | None
    ) -> Sequence[exception.AcstorError | None]:
        """Fill the buffers of several ranges; see :meth:`.base.ObjectStore.read_many`.

        Each range goes to the best member for it, and what that does not give to the next; those
        that go to one member are one call of it.
        """
        end = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        found = [self._range_search(one) for one in ranges]
        pending = [one for one in found if one.outcome is None]
        while pending:
            groups: dict[Member, list[_RangeSearch]] = {}
            for one in pending:
                member = next(one.candidates, None)
                if member is None:
                    self._count_absence(one.search.absence(is_found=False))
                    one.outcome = one.search.error(is_over=_is_over(end))
                else:
                    groups.setdefault(member, []).append(one)
            pending = []
            for member, group in groups.items():
                pending.extend(self._read_group(member, group, end))
        return [one.outcome for one in found]

    def count(self, member: str, fault: Fault) -> None:
        """Count a read or put that goes to another member."""
        with self._lock:
            self.faults[member, fault] += 1

    def _range_search(self, one: base.ReadRange) -> _RangeSearch:
        placed = self._placement.place(one.key)
        search = Search(one.key, placed)
        made = _RangeSearch(one, search, self._candidates(placed, search))
        try:
            keys.validate_key(one.key)
        except exception.InvalidError as error:
            made.outcome = error
        return made

    def _read_group(
        self, member: Member, group: Sequence[_RangeSearch], end: float | None
    ) -> Iterator[_RangeSearch]:
        """Read from one member; yield what has to be asked of another one."""
        left = member.seconds_max if end is None else end - time.monotonic()
        if left <= 0:
            for one in group:
                one.outcome = exception.DeadlineError(f"there was no time to read {one.range.key}")
            return
        seconds = min(left, member.seconds_max)
        wanted = [one.range for one in group]
        try:
            answers = member.call(
                lambda origin: _read_ranges(origin, wanted, seconds), seconds_max=seconds
            )
        except exception.AcstorError as error:
            answers = [error] * len(group)
        for one, answer in zip(group, answers, strict=True):
            if isinstance(answer, exception.AcstorError):
                if self._is_next_asked(one.search, member, answer):
                    yield one
                else:
                    one.outcome = answer
            else:
                one.range.buffer[:] = answer
                self._count_absence(one.search.absence(is_found=True))

    def _is_next_asked(self, search: Search, member: Member, error: exception.AcstorError) -> bool:
        """Note what a member said; return whether another one may say something else."""
        if isinstance(error, exception.NotFoundError):
            search.missed(member.name)
            if search.is_over:
                self._count_absence(search.absence(is_found=False))
            return not search.is_over
        if isinstance(error, exception.CorruptError):
            search.damaged(error)
            self.count(member.name, Fault.CORRUPT)
        else:
            # It may be the member's fault or the caller's: who gets nothing else gets the error.
            search.failed(member.name, error)
            self.count(member.name, Fault.UNREACHABLE)
        return True

    def _candidates(self, placed: Placed, search: Search) -> Sequence[Member]:
        """Return the members in the order in which they are asked; note those that sleep."""
        names = placed.members if placed.is_decided else tuple(self._members)
        found = []
        for name in names:
            if self._power(name) in ASKED:
                found.append(self._members[name])
            else:
                search.failed(name, exception.UnavailableError(f"member {name} sleeps"))
        for member in found:
            member.try_again()

        def rank(member: Member) -> tuple[bool, bool, bool, float]:
            is_open = member.breaker.state is not BreakerState.CLOSED
            is_leaving = self._power(member.name) is not PowerState.ACTIVE
            is_strange = member.name not in placed.members
            return (is_open, is_leaving, is_strange, member.estimate_seconds)

        return sorted(found, key=rank)

    def _count_absence(self, absence: Absence | None) -> None:
        if absence is not None:
            with self._lock:
                self.absences[absence] += 1


def _is_over(end: float | None) -> bool:
    return end is not None and time.monotonic() >= end


def _read_ranges(
    origin: base.Origin, wanted: Sequence[base.ReadRange], seconds: float
) -> list[exception.AcstorError | memoryview]:
    """Return the bytes of each range, or what keeps it from being read; in memory of its own.

    :raises UnavailableError: when none could be read for a time: so the breaker hears of it.
    """
    scratch = [
        base.ReadRange(one.key, one.offset, memoryview(bytearray(len(one.buffer))))
        for one in wanted
    ]
    outcomes = origin.read_many(scratch, seconds)
    if outcomes and all(error is not None and error.is_transient for error in outcomes):
        assert outcomes[0] is not None
        raise outcomes[0]
    return [
        one.buffer if error is None else error for one, error in zip(scratch, outcomes, strict=True)
    ]
