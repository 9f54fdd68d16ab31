"""Which log objects of volumes are needed, and which of those in the origin are not."""

import bisect
from collections import defaultdict
from collections.abc import Iterable

from acstor.volumes.log_range import LogRange, appended

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
        self._sort()
        found = self._ranges.get((logs.volume, logs.epoch), [])
        # The ranges are disjoint and sorted: the last one that begins in time decides.
        at = bisect.bisect_right(found, (logs.last, logs.last))
        candidates = found[max(0, at - 1) : at + 1]
        return any(first <= logs.last and logs.first <= last for first, last in candidates)

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
    for volume, epoch, sequence in sorted(present):
        single = LogRange(volume, epoch, sequence, sequence)
        if coverage.intersects(single):
            continue
        joined = appended(runs[-1:], single)
        if runs and len(joined) == 1 and len(joined[0]) <= RUN_LENGTH_MAX:
            runs[-1] = joined[0]
        else:
            runs.append(single)
    return runs


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return result
