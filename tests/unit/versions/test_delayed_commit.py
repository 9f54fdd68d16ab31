"""Delayed commit: the example of CloudVS' Figure 5, and the bounds of time and bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.versions.delayed_commit import (
    Bounds,
    CapturedDelta,
    DelayedCommits,
    Savings,
    savings,
    share,
)


def captured(version_id: str, *chunks: str, slot: str = "monday", size: int = 10) -> CapturedDelta:
    return CapturedDelta(version_id, slot, tuple(chunk.encode() for chunk in chunks), size)


FIGURE_5 = [
    captured("a", "a1", "common", "a6"),
    captured("b", "b2", "common"),
    captured("c", "common", "c4", "c5", "c6"),
]
"""Three VMs with nine changed chunks; the 3rd chunk of each has the same content."""


def test_figure_5_commits_seven_chunks_in_place_of_nine() -> None:
    assert savings(FIGURE_5) == Savings(changed=9, stored=7)
    commits = share(FIGURE_5)
    assert [len(commit.stored) for commit in commits] == [3, 1, 3]
    assert [dict(commit.shared) for commit in commits] == [{}, {b"common": "a"}, {b"common": "a"}]


def test_where_one_fails_the_next_stores_what_it_had() -> None:
    commits = share(FIGURE_5[1:])
    assert [dict(commit.shared) for commit in commits] == [{}, {b"common": "b"}]


def test_chunks_that_come_twice_in_one_capture_are_stored_once() -> None:
    (commit,) = share([captured("a", "x", "x", "y")])
    assert (commit.stored, commit.shared) == ((b"x", b"y"), {})


deltas = st.lists(st.lists(st.sampled_from("uvwxyz"), max_size=8), max_size=5)


@given(deltas)
def test_every_chunk_is_stored_once_by_somebody_before(chunks: list[list[str]]) -> None:
    captures = [captured(str(number), *each) for number, each in enumerate(chunks)]
    commits = share(captures)
    stored = [digest for commit in commits for digest in commit.stored]
    assert len(stored) == len(set(stored)) == savings(captures).stored
    for capture, commit in zip(captures, commits, strict=True):
        assert {*commit.stored, *commit.shared} == set(capture.digests)
        for digest, owner in commit.shared.items():
            assert digest in commits[int(owner)].stored
            assert int(owner) < int(commit.version_id)


# Bounds


def test_a_slot_waits_until_its_last_capture_has_come() -> None:
    held = DelayedCommits(Bounds(100, 1000))
    held.expect("monday", ["a", "b"])
    held.add(captured("a"), 0)
    assert held.take_due(1) == []
    assert held.ages(5) == {"a": 5}
    held.add(captured("b"), 6)
    assert [one.version_id for one in held.take_due(7)] == ["a", "b"]
    assert (held.held_bytes, held.take_due(8)) == (0, [])


def test_a_capture_that_fails_keeps_nobody_waiting() -> None:
    held = DelayedCommits(Bounds(100, 1000))
    held.expect("monday", ["a", "b"])
    held.add(captured("a"), 0)
    held.abandon("monday", "b")
    assert [one.version_id for one in held.take_due(1)] == ["a"]
    held.abandon("monday", "b")


def test_a_capture_by_hand_waits_for_nobody() -> None:
    held = DelayedCommits(Bounds(100, 1000))
    held.expect("monday", ["a"])
    held.add(captured("b", slot="by hand"), 0)
    assert [one.version_id for one in held.take_due(0)] == ["b"]


def test_the_bound_of_time_sends_everything() -> None:
    held = DelayedCommits(Bounds(100, 1000))
    held.expect("monday", ["a", "b"])
    held.expect("noon", ["c", "d"])
    held.add(captured("a"), 10)
    held.add(captured("c", slot="noon"), 90)
    assert held.due_at() == 110
    assert held.take_due(109) == []
    assert [one.version_id for one in held.take_due(110)] == ["a", "c"]
    assert held.due_at() is None


def test_the_bound_of_bytes_sends_everything() -> None:
    held = DelayedCommits(Bounds(100, 25))
    held.expect("monday", ["a", "b", "c", "d"])
    for number, version_id in enumerate("abc"):
        assert held.take_due(0) == []
        assert held.has_room(10) == (number < 2)
        held.add(captured(version_id), 0)
    assert [one.version_id for one in held.take_due(0)] == ["a", "b", "c"]


def test_negative_bounds_are_refused() -> None:
    for bounds in ((-1.0, 1), (1.0, -1), (float("nan"), 1)):
        with pytest.raises(exception.InvalidError):
            Bounds(*bounds)
