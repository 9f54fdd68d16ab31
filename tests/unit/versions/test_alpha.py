"""Alpha: the examples of CloudVS' Figures 3, 4 and 6, both ends, both tie-breaks."""

import fractions

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.versions.alpha import (
    DeltaChunk,
    TieBreak,
    chunk_groups,
    differential_count,
    non_sequential_reads,
    regroup,
)

FIGURE_3 = [DeltaChunk(3, "v1"), DeltaChunk(5, "v2"), DeltaChunk(6, "v1"), DeltaChunk(7, "v2")]
"""Version 2 against the base: the 3rd and 6th chunk are as version 1 changed them."""
FIGURE_5_C = [DeltaChunk(3, "a"), DeltaChunk(4, "c"), DeltaChunk(5, "c"), DeltaChunk(6, "c")]
"""The version of VM C, whose 3rd chunk VM A has stored."""


def indexes(chunks: tuple[DeltaChunk[str], ...]) -> list[int]:
    return [chunk.index for chunk in chunks]


def test_restoring_version_2_has_three_non_sequential_reads() -> None:
    assert non_sequential_reads(FIGURE_3) == 3


def test_both_groups_of_the_example_have_one_inside() -> None:
    groups = list(chunk_groups(FIGURE_3, 2))
    assert [indexes(group.chunks) for group in groups] == [[3, 5], [6, 7]]
    assert [group.non_sequential_reads for group in groups] == [1, 1]


def test_figure_4_stores_the_first_group_as_a_differential_delta() -> None:
    found = regroup(FIGURE_3, "v2", 0.5, 2)
    assert [indexes(group.chunks) for group in found.differential] == [[3, 5]]
    assert indexes(found.anew) == [3]
    assert (found.groups, found.reads_before, found.reads_after) == (2, 3, 2)


def test_alpha_0_stores_the_incremental_delta() -> None:
    found = regroup(FIGURE_3, "v2", 0, 2)
    assert (found.differential, found.anew, found.reads_after) == ((), (), 3)


def test_alpha_1_stores_the_differential_delta() -> None:
    found = regroup(FIGURE_3, "v2", 1, 2)
    assert [indexes(group.chunks) for group in found.differential] == [[3, 5], [6, 7]]
    assert indexes(found.anew) == [3, 6]
    assert (found.reads_after, found.bytes_anew) == (0, 2)


def test_alpha_1_stores_groups_without_a_jump_too() -> None:
    chunks = [DeltaChunk(1, "v1"), DeltaChunk(2, "v1"), DeltaChunk(3, "v2")]
    assert indexes(regroup(chunks, "v2", 1, 2).anew) == [1, 2]


def test_figure_6_stores_the_chunk_of_another_vm_anew() -> None:
    groups = list(chunk_groups(FIGURE_5_C, 2))
    assert [group.non_sequential_reads for group in groups] == [1, 0]
    found = regroup(FIGURE_5_C, "c", 0.5, 2)
    assert [indexes(group.chunks) for group in found.differential] == [[3, 4]]
    assert indexes(found.anew) == [3]


def test_crossings_of_groups_do_not_count() -> None:
    """Counted with the group that a read leads into, the second one would win."""
    chunks = [DeltaChunk(1, "v1"), DeltaChunk(2, "v2"), DeltaChunk(3, "v1"), DeltaChunk(4, "v1")]
    groups = list(chunk_groups(chunks, 2))
    assert [group.non_sequential_reads for group in groups] == [1, 0]
    assert indexes(regroup(chunks, "v2", 0.5, 2).anew) == [1]


def test_ties_are_broken_in_the_order_of_the_disk() -> None:
    costly = [DeltaChunk(3, "v1", 900), *FIGURE_3[1:]]
    assert indexes(regroup(costly, "v2", 0.5, 2).anew) == [3]


def test_ties_are_broken_by_bytes_where_that_is_asked_for() -> None:
    costly = [DeltaChunk(3, "v1", 900), *FIGURE_3[1:]]
    found = regroup(costly, "v2", 0.5, 2, TieBreak.FEWEST_BYTES)
    assert indexes(found.anew) == [6]
    even = regroup(FIGURE_3, "v2", 0.5, 2, TieBreak.FEWEST_BYTES)
    assert indexes(even.anew) == [3]


def test_more_reads_come_before_fewer_bytes() -> None:
    chunks = [DeltaChunk(1, "v1", 1), DeltaChunk(2, "v1", 1), *FIGURE_3[1:3]]
    found = regroup(chunks, "v2", 0.5, 2, TieBreak.FEWEST_BYTES)
    assert indexes(found.anew) == [6]


@pytest.mark.parametrize(
    ("groups", "alpha", "count"),
    [(0, 1, 0), (5, 0.1, 0), (10, 0.1, 1), (100, 0.29, 29), (3, 0.5, 1), (7, 1.0, 7)],
)
def test_share_of_groups_is_never_exceeded(groups: int, alpha: float, count: int) -> None:
    assert differential_count(groups, alpha) == count


@pytest.mark.parametrize("alpha", [-0.1, 1.01, float("nan"), float("inf")])
def test_alpha_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(exception.InvalidError, match="alpha"):
        regroup(FIGURE_3, "v2", alpha, 2)


def test_wrong_order_and_empty_groups_are_refused() -> None:
    with pytest.raises(exception.InvalidError, match="order"):
        regroup(FIGURE_3[::-1], "v2", 1, 2)
    with pytest.raises(exception.InvalidError, match="group of 0"):
        regroup(FIGURE_3, "v2", 1, 0)


@st.composite
def deltas(draw: st.DrawFn) -> list[DeltaChunk[int]]:
    places = sorted(draw(st.sets(st.integers(0, 200), max_size=40)))
    homes = draw(st.lists(st.integers(0, 3), min_size=len(places), max_size=len(places)))
    sizes = draw(st.lists(st.integers(1, 9), min_size=len(places), max_size=len(places)))
    return [DeltaChunk(*each) for each in zip(places, homes, sizes, strict=True)]


@given(deltas(), st.sampled_from([0, 0.1, 0.25, 0.5, 0.9, 1]), st.integers(1, 6))
def test_groups_are_those_with_most_reads_and_no_more_than_alpha(
    chunks: list[DeltaChunk[int]], alpha: float, size: int
) -> None:
    found = regroup(chunks, 0, alpha, size)
    groups = list(chunk_groups(chunks, size))
    assert [chunk for group in groups for chunk in group.chunks] == chunks
    assert all(len(group.chunks) == size for group in groups[:-1])
    assert len(found.differential) <= fractions.Fraction(str(alpha)) * len(groups)
    chosen = set(found.differential)
    left = [group for group in groups if group not in chosen]
    least = min((group.non_sequential_reads for group in chosen), default=0)
    assert all(group.non_sequential_reads <= least for group in left) or not chosen
    assert all(chunk.home != 0 for chunk in found.anew)


@given(deltas(), st.integers(1, 6))
def test_alpha_1_leaves_no_jump_and_alpha_0_all(chunks: list[DeltaChunk[int]], size: int) -> None:
    assert regroup(chunks, 0, 1, size).reads_after == 0
    nothing = regroup(chunks, 0, 0, size)
    assert (nothing.bytes_anew, nothing.reads_after) == (0, nothing.reads_before)


@given(deltas(), st.integers(1, 6))
def test_more_alpha_never_stores_less(chunks: list[DeltaChunk[int]], size: int) -> None:
    stored = [regroup(chunks, 0, alpha, size).bytes_anew for alpha in (0, 0.25, 0.5, 0.75, 1)]
    assert stored == sorted(stored)
