"""A history of one ref as its users saw it, and a check that it is linearisable.

Contents are never written twice, so that each names one state of the ref. The states from a
creation to a removal are an incarnation: a chain in which each state has one successor.
"""

import collections
import dataclasses
import enum
import math


class Outcome(enum.Enum):
    """Answer to a swap."""

    YES = "it took place"
    NO = "it did not"
    UNKNOWN = "nobody said; it may take place later"


@dataclasses.dataclass(frozen=True, slots=True)
class Swap:
    """A call that changes the ref from one content (None: none) to another."""

    begin: float
    end: float
    before: str | None
    after: str | None
    outcome: Outcome


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """A call that returns the ref's content, None where there is no ref."""

    begin: float
    end: float
    content: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Seen:
    """A state, by its number in its incarnation, that the ref was in at a moment of a call."""

    begin: float
    end: float
    number: int


class HistoryError(Exception):
    """A history that no single ref has."""


class History:
    """Calls in the order in which they ended."""

    def __init__(self) -> None:
        self.swaps: list[Swap] = []
        self.reads: list[Read] = []

    def check(self) -> None:
        """Check what was seen.

        :raises HistoryError: when there is no order of moments, one in each call, that explains it.
        """
        effective = self._effective()
        successors = self._successors(effective)
        incarnations = self._incarnations(effective, successors)
        places = {
            content: (first, number)
            for first, chain in incarnations.items()
            for number, content in enumerate(chain)
        }
        seen = self._seen(effective, places)
        for one in seen.values():
            _check_order(one)
        self._check_removals(effective, places, seen)
        _check_apart(seen)
        self._check_absences(places, seen)

    def _effective(self) -> list[Swap]:
        """Return the swaps that certainly took place: the answer, or somebody, says so."""
        witnessed = {read.content for read in self.reads}
        witnessed |= {swap.before for swap in self.swaps if swap.outcome is Outcome.YES}
        effective = []
        for swap in self.swaps:
            is_witnessed = swap.after is not None and swap.after in witnessed
            if swap.outcome is Outcome.NO and is_witnessed:
                raise HistoryError(f"{swap.after} was refused, and is there")
            if swap.outcome is Outcome.YES or is_witnessed:
                effective.append(swap)
        written = {swap.after for swap in effective}
        unknown = witnessed - written - {None}
        if unknown:
            raise HistoryError(f"nobody wrote {unknown}")
        return effective

    @staticmethod
    def _successors(effective: list[Swap]) -> dict[str, Swap]:
        successors: dict[str, Swap] = {}
        for swap in effective:
            if swap.before is not None:
                if swap.before in successors:
                    raise HistoryError(f"two changed {swap.before}")
                successors[swap.before] = swap
        return successors

    @staticmethod
    def _incarnations(effective: list[Swap], successors: dict[str, Swap]) -> dict[str, list[str]]:
        found = {}
        for swap in effective:
            if swap.before is None and swap.after is not None:
                chain = [swap.after]
                while (after := successors.get(chain[-1])) is not None and after.after is not None:
                    chain.append(after.after)
                found[swap.after] = chain
        return found

    def _seen(
        self, effective: list[Swap], places: dict[str, tuple[str, int]]
    ) -> dict[str, list[_Seen]]:
        seen: dict[str, list[_Seen]] = collections.defaultdict(list)
        for swap in effective:
            if swap.after is not None:
                first, number = places[swap.after]
                # One without an answer takes place when it does: others saw it, which counts.
                if swap.outcome is Outcome.YES:
                    seen[first].append(_Seen(swap.begin, swap.end, number))
            begun = math.inf if swap.after is None else swap.begin
            for read in self.reads:
                if read.content == swap.after and read.end < begun and swap.after is not None:
                    raise HistoryError(f"{swap.after} was read before it was written")
        for read in self.reads:
            if read.content is not None:
                first, number = places[read.content]
                seen[first].append(_Seen(read.begin, read.end, number))
        return seen

    def _check_removals(
        self,
        effective: list[Swap],
        places: dict[str, tuple[str, int]],
        seen: dict[str, list[_Seen]],
    ) -> None:
        removed = set()
        for swap in self.swaps:
            if swap.after is None and swap.before in places and swap.outcome is not Outcome.NO:
                first, number = places[swap.before]
                removed.add(first)
                if swap.outcome is Outcome.YES:
                    late = [one for one in seen[first] if one.begin > swap.end]
                    further = [one for one in seen[first] if one.number > number]
                    if late or further:
                        raise HistoryError(f"{swap.before} was removed, and went on")
        first_ones = {first for first, _ in places.values()}
        if len(first_ones - removed) > 1:
            raise HistoryError(f"refs were made over others: {sorted(first_ones - removed)}")

    def _check_absences(
        self, places: dict[str, tuple[str, int]], seen: dict[str, list[_Seen]]
    ) -> None:
        for read in self.reads:
            if read.content is not None:
                continue
            for first, sights in seen.items():
                is_before = any(one.end < read.begin for one in sights)
                is_after = any(one.begin > read.end for one in sights)
                if is_before and is_after:
                    raise HistoryError(f"there was no ref in the life of {first}")


def _check_order(seen: list[_Seen]) -> None:
    """Check that nobody saw an older state than somebody had seen before."""
    highest = -1
    ended = sorted(seen, key=lambda one: one.end)
    position = 0
    for one in sorted(seen, key=lambda one: one.begin):
        while position < len(ended) and ended[position].end < one.begin:
            highest = max(highest, ended[position].number)
            position += 1
        if one.number < highest:
            raise HistoryError(f"state {one.number} was seen after state {highest}")


def _check_apart(seen: dict[str, list[_Seen]]) -> None:
    """Check that no incarnation began before another one that it had already followed."""
    spans = [
        (first, min(one.end for one in sights), max(one.begin for one in sights))
        for first, sights in seen.items()
        if sights
    ]
    for one, one_start, one_last in spans:
        for other, other_start, other_last in spans:
            if one < other and one_start < other_last and other_start < one_last:
                raise HistoryError(f"{one} and {other} were there by turns")
