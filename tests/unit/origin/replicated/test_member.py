"""A member's calls: threads of its own, deadlines, the breaker and the estimate."""

import threading

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated import breaker, member
from acstor.origin.replicated.breaker import BreakerState
from acstor.origin.replicated.member import Member
from testbed.doubles.virtual_time import VirtualTime
from testbed.fixtures.conditions import wait_for
from tests.unit.origin.replicated.stores import HASTY_SECONDS, PATIENT_SECONDS, HangingOrigin, away


def test_call_returns_the_answer_and_errors_of_the_store() -> None:
    one = Member("a", MemoryOrigin(), PATIENT_SECONDS)
    assert one.call(lambda origin: origin.put_if_absent("key", [b"x"]))
    assert one.call(lambda origin: origin.get("key", 1)) == b"x"
    with pytest.raises(exception.NotFoundError):
        one.call(lambda origin: origin.get("other", 1))
    with pytest.raises(ZeroDivisionError):
        one.call(lambda origin: 1 // 0)
    one.close()


def test_call_that_hangs_ends_at_its_deadline() -> None:
    store = HangingOrigin(MemoryOrigin())
    one = Member("a", store, HASTY_SECONDS)
    with pytest.raises(exception.DeadlineError, match="member a"):
        one.call(lambda origin: origin.size("key"))
    assert one.reading.failures == 1
    store.gate.set()


def test_call_that_is_given_up_before_it_begins_is_never_made() -> None:
    store = HangingOrigin(MemoryOrigin())
    one = Member("a", store, HASTY_SECONDS)
    for _ in range(breaker.FAILURES_MAX - 1):
        with pytest.raises(exception.DeadlineError):
            one.call(lambda origin: origin.size("key"))
    made = threading.Event()

    def put(origin: base.Origin) -> None:
        made.set()

    with pytest.raises(exception.DeadlineError):
        one.call(put)
    store.gate.set()
    wait_for("all threads are idle", lambda: one._outstanding == 0)
    assert not made.is_set()


def test_call_that_hangs_keeps_no_other_one_waiting() -> None:
    one = Member("a", MemoryOrigin(), PATIENT_SECONDS)
    begun, gate = threading.Event(), threading.Event()

    def hang(origin: base.Origin) -> None:
        begun.set()
        gate.wait(PATIENT_SECONDS)

    hanging = [threading.Thread(target=one.call, args=(hang,)) for _ in range(member.THREADS - 1)]
    for thread in hanging:
        thread.start()
    assert begun.wait(PATIENT_SECONDS)
    assert one.call(lambda origin: origin.put_if_absent("key", [b"x"]))
    gate.set()
    for thread in hanging:
        thread.join(PATIENT_SECONDS)


def test_calls_that_would_wait_for_ever_are_refused() -> None:
    begun, gate = threading.Semaphore(0), threading.Event()
    one = Member("a", MemoryOrigin(), PATIENT_SECONDS)

    def hang(origin: base.Origin) -> None:
        begun.release()
        gate.wait(PATIENT_SECONDS)

    def start(count: int) -> list[threading.Thread]:
        threads = [threading.Thread(target=one.call, args=(hang,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        return threads

    threads = start(member.THREADS)
    for _ in threads:
        assert begun.acquire(timeout=PATIENT_SECONDS)
    threads += start(member.QUEUE_MAX)
    wait_for("the queue is full", lambda: one._outstanding == len(threads))
    with pytest.raises(exception.OverloadedError, match="member a"):
        one.call(lambda origin: origin.size("key"))
    gate.set()
    for thread in threads:
        thread.join(PATIENT_SECONDS)


def test_failing_member_is_left_alone_and_tried_again() -> None:
    clock = VirtualTime()
    store = away(MemoryOrigin())
    one = Member("a", store, PATIENT_SECONDS, clock=clock)
    for _ in range(breaker.FAILURES_MAX):
        with pytest.raises(exception.UnavailableError, match="on purpose"):
            one.call(lambda origin: origin.size("key"))
    with pytest.raises(exception.UnavailableError, match="left alone"):
        one.call(lambda origin: origin.size("key"))
    calls = store.calls[Operation.SIZE]
    one.try_again()
    assert store.calls[Operation.SIZE] == calls, "its time is not over"
    store.faults.clear()
    clock.now += breaker.OPEN.longest
    one.try_again()
    wait_for("it is asked again", lambda: one.breaker.state is BreakerState.CLOSED)
    with pytest.raises(exception.NotFoundError):
        one.call(lambda origin: origin.size("key"))


def test_not_found_is_an_answer() -> None:
    one = Member("a", MemoryOrigin(), PATIENT_SECONDS)
    for _ in range(2 * breaker.FAILURES_MAX):
        with pytest.raises(exception.NotFoundError):
            one.call(lambda origin: origin.size("key"))
    assert one.breaker.state is BreakerState.CLOSED
    assert one.reading.failures == 0


def test_estimate_follows_the_calls_and_fades() -> None:
    clock = VirtualTime()
    slow = FaultyOrigin(
        MemoryOrigin(),
        [Fault(Operation.LIST, Effect.DELAY, delay_seconds=4.0)],
        sleep=clock.sleep,
    )
    one = Member("a", slow, PATIENT_SECONDS, clock=clock)
    assert one.estimate_seconds == 0.0
    one.call(lambda origin: list(origin.list()))
    first = one.estimate_seconds
    assert first == pytest.approx(4.0 * member.ESTIMATE_WEIGHT)
    one.call(lambda origin: list(origin.list()))
    assert first < one.estimate_seconds < 4.0
    before = one.estimate_seconds
    clock.now += member.ESTIMATE_HALF_LIFE_SECONDS
    assert one.estimate_seconds == pytest.approx(before / 2)


def test_calls_of_many_threads_are_all_answered() -> None:
    one = Member("a", MemoryOrigin(), PATIENT_SECONDS)
    made: list[bool] = []

    def put(number: int) -> None:
        made.append(one.call(lambda origin: origin.put_if_absent(f"key/{number}", [b"x"])))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENT_SECONDS)
    assert made == [True] * 20
    assert one._threads <= member.THREADS
    one.close()
