"""Ranges of a disk that may hold data, in bounded memory: finer ones become coarser."""

import array
from collections.abc import Iterator

from acstor import exception

GRAIN = 64 << 10
"""Bytes to whose multiples borders are rounded outwards at first: a chunk's, by default."""
RANGES_MAX = 1 << 20
"""Ranges that are kept, 16 bytes each: with more of them the grain doubles."""


class DataRanges:
    """Ascending ranges of a disk; what lies between them is known to be zero.

    :param size_bytes: of the disk.
    :param ranges_max: most of them.
    """

    def __init__(self, size_bytes: int, ranges_max: int = RANGES_MAX) -> None:
        """Begin with none: all of the disk is zero."""
        self._size_bytes = size_bytes
        self._ranges_max = ranges_max
        self._grain = GRAIN
        self._starts = array.array("Q")
        self._ends = array.array("Q")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield start and end of each, bytes."""
        return zip(self._starts, self._ends, strict=True)

    def add(self, offset: int, length: int) -> None:
        """Add a range that begins in the last one, or behind it.

        :raises InternalError: when it begins before the last one, or is not on the disk.
        """
        end = offset + length
        if length < 0 or offset < (self._starts[-1] if self._starts else 0):
            raise exception.InternalError(f"the data at byte {offset} are told of out of order")
        if end > self._size_bytes:
            raise exception.InternalError(f"there are data at byte {end}, behind the disk")
        if length:
            self._append(offset, end)
        while len(self) > self._ranges_max:
            self._coarsen()

    def _append(self, start: int, end: int) -> None:
        start = start // self._grain * self._grain
        end = min(-(-end // self._grain) * self._grain, self._size_bytes)
        if self._ends and start <= self._ends[-1]:
            self._ends[-1] = max(end, self._ends[-1])
            return
        self._starts.append(start)
        self._ends.append(end)

    def _coarsen(self) -> None:
        before = list(self)
        self._grain *= 2
        self._starts, self._ends = array.array("Q"), array.array("Q")
        for start, end in before:
            self._append(start, end)
