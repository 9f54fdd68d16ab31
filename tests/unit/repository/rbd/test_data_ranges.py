"""Ranges of data in bounded memory: nothing that was told of is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.repository.source.rbd.data_ranges import GRAIN, DataRanges

SIZE = 64 * GRAIN + 17


@given(
    st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 3 * GRAIN)), max_size=40),
    st.integers(1, 40),
)
def test_ranges_cover_what_was_told_within_their_bound(
    told: list[tuple[int, int]], ranges_max: int
) -> None:
    ranges = DataRanges(SIZE, ranges_max)
    told = sorted((start, min(length, SIZE - start)) for start, length in told)
    for offset, length in told:
        ranges.add(offset, length)
    found = list(ranges)
    assert len(found) <= ranges_max
    end = -1
    for start, stop in found:
        assert end < start < stop <= SIZE
        end = stop
    for offset, length in told:
        assert not length or any(a <= offset and offset + length <= b for a, b in found)


def test_touching_ranges_are_one() -> None:
    ranges = DataRanges(SIZE)
    for number in range(4):
        ranges.add(number * GRAIN, GRAIN)
    ranges.add(5 * GRAIN, 1)
    assert list(ranges) == [(0, 4 * GRAIN), (5 * GRAIN, 6 * GRAIN)]


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (SIZE - 1, 2), (2 * GRAIN, -1)])
def test_nonsense_is_refused(offset: int, length: int) -> None:
    ranges = DataRanges(SIZE)
    ranges.add(2 * GRAIN, 1)
    with pytest.raises(exception.InternalError):
        ranges.add(offset, length)
