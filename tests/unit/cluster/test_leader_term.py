"""Leader of the policy service: terms, fenced leaders, writes that meet themselves."""

import dataclasses

import pytest

from acstor import exception
from acstor.cluster.leader_states import TRANSITIONS, LeaderEvent, LeaderState, next_state
from acstor.cluster.leader_term import LeaderTerm
from acstor.cluster.ring.decision import DECISION_REF, Decision, read_decision
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.states import IllegalTransitionError

PATIENCE = 30.0
WANTED = Decision(0, 0, "", 5, "equation1", {"h1": 5000, "h2": 15000})


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def origin() -> FaultyOrigin:
    return FaultyOrigin(MemoryOrigin())


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_term(origin: FaultyOrigin, clock: Clock, name: str) -> LeaderTerm:
    return LeaderTerm(origin, name, PATIENCE, clock, lambda: 1000.0)


@pytest.fixture
def first(origin: FaultyOrigin, clock: Clock) -> LeaderTerm:
    return make_term(origin, clock, "first")


@pytest.fixture
def second(origin: FaultyOrigin, clock: Clock) -> LeaderTerm:
    return make_term(origin, clock, "second")


def in_force(origin: FaultyOrigin) -> Decision:
    published = read_decision(origin)
    assert published is not None
    return published.decision


def test_new_leader_raises_the_term_and_keeps_the_weights(
    origin: FaultyOrigin, first: LeaderTerm, second: LeaderTerm
) -> None:
    assert first.refresh(is_elected=False) is None
    first.refresh(is_elected=True)
    written = first.publish(WANTED)
    assert (written.term, written.sequence, written.leader) == (1, 2, "first")
    first.refresh(is_elected=False)
    assert first.state is LeaderState.STANDBY
    second.refresh(is_elected=True)
    found = in_force(origin)
    assert (found.term, found.sequence, found.leader) == (2, 3, "second")
    assert found.weights == WANTED.weights


def test_leader_that_was_paused_cannot_publish(
    origin: FaultyOrigin, first: LeaderTerm, second: LeaderTerm
) -> None:
    first.refresh(is_elected=True)
    second.refresh(is_elected=True)  # the lock went over while the first was paused
    written = second.publish(WANTED)
    with pytest.raises(exception.FencedError):
        first.publish(dataclasses.replace(WANTED, weights={"h1": 1}))
    assert in_force(origin) == written
    assert first.state is LeaderState.DEPOSED
    with pytest.raises(exception.FencedError):  # now without asking the origin
        first.publish(WANTED)


def test_leader_that_was_paused_notices_at_its_next_look_and_has_patience(
    origin: FaultyOrigin, first: LeaderTerm, second: LeaderTerm, clock: Clock
) -> None:
    first.refresh(is_elected=True)
    second.refresh(is_elected=True)
    for _ in range(3):  # it still believes that it holds the lock
        first.refresh(is_elected=True)
        assert first.state is LeaderState.DEPOSED
    assert in_force(origin).leader == "second"
    clock.now += PATIENCE
    first.refresh(is_elected=True)  # it holds the lock indeed
    assert first.is_leading
    assert in_force(origin).term == 3
    second.refresh(is_elected=False)
    assert second.state is LeaderState.STANDBY


def test_fenced_leader_that_lost_the_lock_leads_when_it_is_elected_again(
    origin: FaultyOrigin, first: LeaderTerm, second: LeaderTerm
) -> None:
    first.refresh(is_elected=True)
    second.refresh(is_elected=True)
    first.refresh(is_elected=True)
    first.refresh(is_elected=False)
    first.refresh(is_elected=True)
    assert first.is_leading
    with pytest.raises(exception.FencedError):
        second.publish(WANTED)
    assert in_force(origin).leader == "first"


def test_of_two_that_claim_at_once_one_leads(
    origin: FaultyOrigin, first: LeaderTerm, second: LeaderTerm, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = origin.swap_ref

    def swap_late(name: str, expected: str | None, content: bytes | None) -> str | None:
        monkeypatch.setattr(origin, "swap_ref", swap)
        second.refresh(is_elected=True)
        return swap(name, expected, content)

    monkeypatch.setattr(origin, "swap_ref", swap_late)
    first.refresh(is_elected=True)
    assert (first.state, second.state) == (LeaderState.DEPOSED, LeaderState.LEADING)
    assert in_force(origin).leader == "second"


def test_write_that_succeeded_although_it_seemed_to_fail_does_not_fence(
    origin: FaultyOrigin, first: LeaderTerm
) -> None:
    """A retry of a write whose answer was lost meets a conflict with itself."""
    first.refresh(is_elected=True)
    origin.faults.append(Fault(Operation.SWAP_REF, Effect.LOST_ANSWER))
    with pytest.raises(exception.UnavailableError):
        first.publish(WANTED)
    origin.faults.clear()
    assert in_force(origin).weights == WANTED.weights
    assert first.publish(WANTED).sequence == 2
    assert first.is_leading
    first.refresh(is_elected=True)
    assert first.is_leading


def test_malformed_decision_is_replaced_by_the_leader_only(
    origin: FaultyOrigin, first: LeaderTerm
) -> None:
    origin.swap_ref(DECISION_REF, None, b"{")
    with pytest.raises(exception.CorruptError):
        first.refresh(is_elected=False)
    first.refresh(is_elected=True)
    assert first.is_leading
    assert in_force(origin).weights == {}


def test_decision_of_a_newer_release_is_left_alone(origin: FaultyOrigin, first: LeaderTerm) -> None:
    newer = b'{"version": 2}'
    origin.swap_ref(DECISION_REF, None, newer)
    with pytest.raises(exception.UnsupportedError):
        first.refresh(is_elected=True)
    ref = origin.get_ref(DECISION_REF)
    assert ref is not None
    assert ref.content == newer


def test_every_pair_that_is_not_listed_is_refused() -> None:
    for state in LeaderState:
        for event in LeaderEvent:
            if (state, event) in TRANSITIONS:
                assert next_state(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(IllegalTransitionError):
                    next_state(state, event)
