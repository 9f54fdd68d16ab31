"""Leader of the policy service: terms, fenced leaders, writes that meet themselves."""

import dataclasses

import pytest

from acstor import exception
from acstor.cluster.ring.decision import DECISION_REF, Decision, read_decision
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.policy.office import Office
from acstor.policy.states import TRANSITIONS, PolicyEvent, PolicyState, next_state
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


def make_office(origin: FaultyOrigin, clock: Clock, name: str) -> Office:
    return Office(origin, name, PATIENCE, clock, lambda: 1000.0)


@pytest.fixture
def first(origin: FaultyOrigin, clock: Clock) -> Office:
    return make_office(origin, clock, "first")


@pytest.fixture
def second(origin: FaultyOrigin, clock: Clock) -> Office:
    return make_office(origin, clock, "second")


def in_force(origin: FaultyOrigin) -> Decision:
    published = read_decision(origin)
    assert published is not None
    return published.decision


def test_new_leader_raises_the_term_and_keeps_the_weights(
    origin: FaultyOrigin, first: Office, second: Office
) -> None:
    assert first.look(is_elected=False) is None
    first.look(is_elected=True)
    written = first.publish(WANTED)
    assert (written.term, written.sequence, written.leader) == (1, 2, "first")
    first.look(is_elected=False)
    assert first.state is PolicyState.STANDBY
    second.look(is_elected=True)
    found = in_force(origin)
    assert (found.term, found.sequence, found.leader) == (2, 3, "second")
    assert found.weights == WANTED.weights


def test_leader_that_was_paused_cannot_publish(
    origin: FaultyOrigin, first: Office, second: Office
) -> None:
    first.look(is_elected=True)
    second.look(is_elected=True)  # the lock went over while the first was paused
    written = second.publish(WANTED)
    with pytest.raises(exception.FencedError):
        first.publish(dataclasses.replace(WANTED, weights={"h1": 1}))
    assert in_force(origin) == written
    assert first.state is PolicyState.DEPOSED
    with pytest.raises(exception.FencedError):  # now without asking the origin
        first.publish(WANTED)


def test_leader_that_was_paused_notices_at_its_next_look_and_has_patience(
    origin: FaultyOrigin, first: Office, second: Office, clock: Clock
) -> None:
    first.look(is_elected=True)
    second.look(is_elected=True)
    for _ in range(3):  # it still believes that it holds the lock
        first.look(is_elected=True)
        assert first.state is PolicyState.DEPOSED
    assert in_force(origin).leader == "second"
    clock.now += PATIENCE
    first.look(is_elected=True)  # it holds the lock indeed
    assert first.is_leading
    assert in_force(origin).term == 3
    second.look(is_elected=False)
    assert second.state is PolicyState.STANDBY


def test_deposed_leader_that_lost_the_lock_leads_when_it_is_elected_again(
    origin: FaultyOrigin, first: Office, second: Office
) -> None:
    first.look(is_elected=True)
    second.look(is_elected=True)
    first.look(is_elected=True)
    first.look(is_elected=False)
    first.look(is_elected=True)
    assert first.is_leading
    with pytest.raises(exception.FencedError):
        second.publish(WANTED)
    assert in_force(origin).leader == "first"


def test_of_two_that_claim_at_once_one_leads(
    origin: FaultyOrigin, first: Office, second: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = origin.swap_ref

    def swap_late(name: str, expected: str | None, content: bytes | None) -> str | None:
        monkeypatch.setattr(origin, "swap_ref", swap)
        second.look(is_elected=True)
        return swap(name, expected, content)

    monkeypatch.setattr(origin, "swap_ref", swap_late)
    first.look(is_elected=True)
    assert (first.state, second.state) == (PolicyState.DEPOSED, PolicyState.LEADING)
    assert in_force(origin).leader == "second"


def test_write_that_succeeded_although_it_seemed_to_fail_does_not_depose(
    origin: FaultyOrigin, first: Office
) -> None:
    """A retry of a write whose answer was lost meets a conflict with itself."""
    first.look(is_elected=True)
    origin.faults.append(Fault(Operation.SWAP_REF, Effect.LOST_ANSWER))
    with pytest.raises(exception.UnavailableError):
        first.publish(WANTED)
    origin.faults.clear()
    assert in_force(origin).weights == WANTED.weights
    assert first.publish(WANTED).sequence == 2
    assert first.is_leading
    first.look(is_elected=True)
    assert first.is_leading


def test_malformed_decision_is_replaced_by_the_leader_only(
    origin: FaultyOrigin, first: Office
) -> None:
    origin.swap_ref(DECISION_REF, None, b"{")
    with pytest.raises(exception.CorruptError):
        first.look(is_elected=False)
    first.look(is_elected=True)
    assert first.is_leading
    assert in_force(origin).weights == {}


def test_decision_of_a_newer_release_is_left_alone(origin: FaultyOrigin, first: Office) -> None:
    newer = b'{"version": 2}'
    origin.swap_ref(DECISION_REF, None, newer)
    with pytest.raises(exception.UnsupportedError):
        first.look(is_elected=True)
    ref = origin.get_ref(DECISION_REF)
    assert ref is not None
    assert ref.content == newer


def test_every_pair_that_is_not_listed_is_refused() -> None:
    for state in PolicyState:
        for event in PolicyEvent:
            if (state, event) in TRANSITIONS:
                assert next_state(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(IllegalTransitionError):
                    next_state(state, event)
