"""Coverage of the origin's log objects by volumes: the needed ones, and those that are not."""

import bisect
from collections import defaultdict
from collections.abc import Iterable

from acstor.repository.volumes.log_range import SEQUENCE_MAX, LogRange

RUN_LENGTH_MAX = 4096
"""Most log objects that are condemned together."""


class LogCoverage:
    """The log objects that the records of volumes and snapshots name."""

    def __init__(self) -> None:
        """Start with none."""
        self._ranges: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self._is_sorted = True

    def add(self, ranges: Iterable[LogRange]) -> None:
        """Note that these log objects are needed."""
        for one in ranges:
            self._ranges[one.volume, one.epoch].append((one.first, one.last))
            self._is_sorted = False

    def intersects(self, logs: LogRange) -> bool:
        """Return whether one of these log objects is needed."""
        return self._is_between((logs.volume, logs.epoch), logs.first, logs.last)

    def covers(self, volume: str, epoch: int, sequence: int) -> bool:
        """Return whether a log object is needed."""
        return self._is_between((volume, epoch), sequence, sequence)

    def _is_between(self, key: tuple[str, int], first: int, last: int) -> bool:
        self._sort()
        found = self._ranges.get(key)
        if not found:
            return False
        # The ranges are disjoint and sorted: the last one that begins in time decides.
        at = bisect.bisect_right(found, (last, SEQUENCE_MAX))
        return at > 0 and found[at - 1][1] >= first

    def _sort(self) -> None:
        if self._is_sorted:
            return
        for key, ranges in self._ranges.items():
            self._ranges[key] = _merged(ranges)
        self._is_sorted = True


def uncovered_runs(
    present: Iterable[tuple[str, int, int]], coverage: LogCoverage
) -> list[LogRange]:
    """Return the log objects that are in the origin but not needed, as ranges.

    A range has no gaps: it must not contain a name that is still to be used.

    :param present: (volume, epoch, sequence number) of the log objects in the origin.
    """
    runs: list[LogRange] = []
    volume, epoch, first, last = "", -1, 0, -1
    for one in sorted(present):
        if coverage.covers(*one):
            continue
        if one == (volume, epoch, last + 1) and last - first + 1 < RUN_LENGTH_MAX:
            last += 1
            continue
        if epoch >= 0:
            runs.append(LogRange(volume, epoch, first, last))
        volume, epoch, first = one
        last = first
    if epoch >= 0:
        runs.append(LogRange(volume, epoch, first, last))
    return runs


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return result
