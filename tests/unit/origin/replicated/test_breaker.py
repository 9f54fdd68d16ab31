"""The circuit breaker of a member."""

import pytest

from acstor.origin.replicated import breaker
from acstor.origin.replicated.breaker import BreakerState, CircuitBreaker
from acstor.states import IllegalTransitionError
from testbed.doubles.virtual_time import VirtualTime

TRIAL_SECONDS = 3.0


@pytest.fixture
def clock() -> VirtualTime:
    return VirtualTime(100.0)


@pytest.fixture
def opened(clock: VirtualTime) -> CircuitBreaker:
    one = CircuitBreaker(clock)
    for _ in range(breaker.FAILURES_MAX):
        assert one.admit(TRIAL_SECONDS)
        one.failed()
    assert one.state is BreakerState.OPEN
    return one


def test_answer_between_failures_keeps_it_closed(clock: VirtualTime) -> None:
    one = CircuitBreaker(clock)
    for _ in range(3):
        for _ in range(breaker.FAILURES_MAX - 1):
            one.failed()
        one.succeeded()
    assert one.state is BreakerState.CLOSED
    assert one.retry_seconds == 0.0


def test_open_breaker_admits_one_trial_when_its_time_is_over(
    clock: VirtualTime, opened: CircuitBreaker
) -> None:
    assert not opened.admit(TRIAL_SECONDS)
    assert 0 < opened.retry_seconds <= breaker.OPEN.first
    clock.now += breaker.OPEN.first
    assert opened.admit(TRIAL_SECONDS)
    states = [opened.state]
    assert not opened.admit(TRIAL_SECONDS)
    opened.succeeded()
    assert opened.admit(TRIAL_SECONDS)
    assert [*states, opened.state] == [BreakerState.HALF_OPEN, BreakerState.CLOSED]


def test_failed_trials_open_it_for_longer_up_to_a_bound(
    clock: VirtualTime, opened: CircuitBreaker
) -> None:
    waits = []
    for _ in range(12):
        waits.append(opened.retry_seconds)
        clock.now += opened.retry_seconds
        assert opened.admit(TRIAL_SECONDS)
        opened.failed()
    assert waits[-1] > waits[0]
    assert max(waits) <= breaker.OPEN.longest


def test_trial_without_an_end_has_failed(clock: VirtualTime, opened: CircuitBreaker) -> None:
    clock.now += breaker.OPEN.first
    assert opened.admit(TRIAL_SECONDS)
    clock.now += TRIAL_SECONDS
    assert not opened.admit(TRIAL_SECONDS)
    assert opened.state is BreakerState.OPEN
    assert opened.retry_seconds > 0


def test_failure_of_a_call_that_began_before_it_opened_tells_nothing(
    opened: CircuitBreaker,
) -> None:
    left = opened.retry_seconds
    opened.failed()
    assert opened.retry_seconds == left


def test_unlisted_transitions_are_refused() -> None:
    with pytest.raises(IllegalTransitionError):
        breaker.TRANSITIONS.after(BreakerState.CLOSED, breaker.BreakerEvent.TRIAL_DUE)
