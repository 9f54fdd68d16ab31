"""Faulty and retrying origins, and opening an origin by its URL."""

import pathlib

import pytest

from acstor import exception
from acstor.drivers.cinder.native_threads import NativeThreadOrigin
from acstor.origin import base, faulty, memory, opening, retrying
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from testbed.doubles.virtual_time import VirtualTime


def test_error_hits_the_call_it_is_armed_for() -> None:
    origin = FaultyOrigin(memory.MemoryOrigin(), [Fault(Operation.PUT, Effect.ERROR, call=2)])
    assert origin.put_if_absent("a", [b"x"])
    with pytest.raises(exception.UnavailableError):
        origin.put_if_absent("b", [b"x"])
    assert not origin.exists("b")
    assert origin.put_if_absent("b", [b"x"])
    assert origin.hits[Effect.ERROR] == 1


def test_lost_answer_does_the_work() -> None:
    origin = FaultyOrigin(memory.MemoryOrigin(), [Fault(Operation.SWAP_REF, Effect.LOST_ANSWER)])
    with pytest.raises(exception.UnavailableError):
        origin.swap_ref("ring", None, b"x")
    assert origin.get_ref("ring") is not None


def test_torn_write_shows_half_an_object() -> None:
    origin = FaultyOrigin(memory.MemoryOrigin(), [Fault(Operation.PUT, Effect.TORN_WRITE)])
    with pytest.raises(exception.UnavailableError):
        origin.put_if_absent("a", [b"abcd"])
    assert origin.get("a", 4) == b"ab"


def test_delay_waits_and_goes_on() -> None:
    waits: list[float] = []
    fault = Fault(Operation.SIZE, Effect.DELAY, delay_seconds=7.0)
    origin = FaultyOrigin(memory.MemoryOrigin(), [fault], sleep=waits.append)
    origin.put_if_absent("a", [b"abc"])
    assert origin.size("a") == 3
    assert waits == [7.0]


def test_probability_is_repeatable_by_its_seed() -> None:
    def pattern(seed: int) -> list[bool]:
        fault = Fault(Operation.GET_REF, Effect.ERROR, probability=0.5)
        origin = FaultyOrigin(memory.MemoryOrigin(), [fault], seed=seed)
        found = []
        for _ in range(50):
            try:
                origin.get_ref("ring")
                found.append(True)
            except exception.UnavailableError:
                found.append(False)
        return found

    assert pattern(1) == pattern(1) != pattern(2)
    assert 10 < sum(pattern(1)) < 40


def retried(
    *faults: Fault, deadline: float = 60.0
) -> tuple[retrying.RetryingOrigin, VirtualTime, faulty.FaultyOrigin]:
    time = VirtualTime()
    inner = faulty.FaultyOrigin(memory.MemoryOrigin(), faults)
    return retrying.RetryingOrigin(inner, deadline, clock=time, sleep=time.sleep), time, inner


def test_transient_errors_are_retried_with_bounded_random_waits() -> None:
    origin, time, _ = retried(*(Fault(Operation.PUT, Effect.ERROR, call=n) for n in (1, 2, 3)))
    assert origin.put_if_absent("a", [b"x"])
    assert len(time.waits) == 3
    assert all(0 <= wait <= retrying.WAIT_SECONDS_MAX for wait in time.waits)


@pytest.mark.parametrize("deadline", [0.5, 5.0, 30.0, 3600.0])
def test_errors_that_come_at_once_are_repeated_until_the_deadline(deadline: float) -> None:
    origin, time, inner = retried(Fault(Operation.GET_REF, Effect.ERROR), deadline=deadline)
    with pytest.raises(exception.UnavailableError):
        origin.get_ref("volumes/x")
    assert time.now == pytest.approx(deadline)
    # The mean wait is half of the largest bound: neither a busy loop nor a few long pauses.
    assert inner.calls[Operation.GET_REF] < 50 + 4 * deadline / retrying.WAIT_SECONDS_MAX
    assert max(time.waits) <= retrying.WAIT_SECONDS_MAX


def test_an_outage_a_little_shorter_than_the_deadline_is_no_error() -> None:
    time = VirtualTime()

    class AwayFor(memory.MemoryOrigin):
        def get_ref(self, name: str) -> base.Ref | None:
            if time.now < 29.9:
                raise exception.UnavailableError("stale file handle")
            return super().get_ref(name)

    origin = retrying.RetryingOrigin(AwayFor(), 30.0, clock=time, sleep=time.sleep)
    assert origin.get_ref("volumes/x") is None
    assert time.now <= 30.0


def test_attempts_that_take_their_time_end_with_the_deadline() -> None:
    time = VirtualTime()

    class Slow(memory.MemoryOrigin):
        calls = 0

        def size(self, key: str) -> int:
            Slow.calls += 1
            time.now += 11.0
            raise exception.UnavailableError("timed out")

    with pytest.raises(exception.UnavailableError):
        retrying.RetryingOrigin(Slow(), 30.0, clock=time, sleep=time.sleep).size("a")
    assert Slow.calls == 3


def test_waits_are_spread_over_the_hosts() -> None:
    seconds = set()
    for _ in range(20):
        origin, time, _ = retried(*(Fault(Operation.SIZE, Effect.ERROR, call=n) for n in (1, 2)))
        with pytest.raises(exception.NotFoundError):
            origin.size("a")
        seconds.add(time.now)
    assert len(seconds) == 20


def test_deadline_of_nothing_is_one_attempt() -> None:
    origin, time, _ = retried(Fault(Operation.PUT, Effect.ERROR), deadline=0.0)
    with pytest.raises(exception.UnavailableError):
        origin.put_if_absent("a", [b"x"])
    assert time.waits == []


def test_other_errors_are_not_retried() -> None:
    origin, time, _ = retried(Fault(Operation.PUT, Effect.ERROR, error=exception.ExhaustedError))
    with pytest.raises(exception.ExhaustedError):
        origin.put_if_absent("a", [b"x"])
    assert time.waits == []


def test_swap_with_lost_answer_succeeds() -> None:
    origin, _, _ = retried(Fault(Operation.SWAP_REF, Effect.LOST_ANSWER, call=1))
    token = origin.swap_ref("ring", None, b"x")
    present = origin.get_ref("ring")
    assert present is not None
    assert (present.token, present.content) == (token, b"x")


def test_swap_that_someone_else_won_conflicts() -> None:
    origin, _, _ = retried(Fault(Operation.SWAP_REF, Effect.ERROR, call=2))
    origin.swap_ref("ring", None, b"theirs")
    with pytest.raises(exception.ConflictError):
        origin.swap_ref("ring", None, b"ours")


def test_swap_that_was_overtaken_after_a_lost_answer_does_not_say_that_nothing_changed() -> None:
    class Overtaking(FaultyOrigin):
        """Somebody changes what the first attempt has made, before the second."""

        def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
            try:
                return super().swap_ref(name, expected, content)
            except exception.UnavailableError:
                made = self.get_ref(name)
                assert made is not None
                super().swap_ref(name, made.token, b"theirs")
                raise

    fault = Fault(Operation.SWAP_REF, Effect.LOST_ANSWER, call=1)
    time = VirtualTime()
    origin = retrying.RetryingOrigin(
        Overtaking(memory.MemoryOrigin(), [fault]), 5.0, clock=time, sleep=time.sleep
    )
    with pytest.raises(base.OvertakenError):
        origin.swap_ref("ring", None, b"ours")
    present = origin.get_ref("ring")
    assert present is not None
    with pytest.raises(exception.ConflictError) as caught:
        origin.swap_ref("ring", None, b"ours")
    assert not isinstance(caught.value, base.OvertakenError)


def test_torn_object_is_noticed_by_the_repeated_put() -> None:
    origin, _, _ = retried(Fault(Operation.PUT, Effect.TORN_WRITE, call=1))
    with pytest.raises(exception.CorruptError, match="has 1 bytes, 3 were"):
        origin.put_if_absent("a", [b"abc"])


def test_put_with_lost_answer_is_found_stored() -> None:
    origin, _, _ = retried(Fault(Operation.PUT, Effect.LOST_ANSWER, call=1))
    assert not origin.put_if_absent("a", [b"abc"])
    assert origin.get("a", 3) == b"abc"


def ranges_of(*keys: str) -> list[base.ReadRange]:
    return [base.ReadRange(key, 0, memoryview(bytearray(3))) for key in keys]


def test_only_ranges_that_failed_for_a_time_are_read_again() -> None:
    origin, _, inner = retried(
        Fault(Operation.READ, Effect.ERROR, call=2),
        Fault(Operation.READ, Effect.LOST_ANSWER, call=4),
    )
    for key in ("a", "b", "c"):
        origin.put_if_absent(key, [key.encode() * 3])
    ranges = ranges_of("a", "b", "none", "c")
    outcomes = origin.read_many(ranges)
    assert [type(outcome) for outcome in outcomes] == [
        type(None), type(None), exception.NotFoundError, type(None),
    ]  # fmt: skip
    assert [bytes(ranges[index].buffer) for index in (0, 1, 3)] == [b"aaa", b"bbb", b"ccc"]
    assert inner.calls[Operation.READ] == 6


def test_ranges_are_not_read_again_after_their_own_deadline() -> None:
    origin, time, _ = retried(Fault(Operation.READ, Effect.ERROR), deadline=60.0)
    origin.put_if_absent("a", [b"abc"])
    outcomes = origin.read_many(ranges_of("a", "none"), 2.0)
    assert all(isinstance(outcome, exception.UnavailableError) for outcome in outcomes)
    assert time.now == pytest.approx(2.0)


def test_open_by_url(tmp_path: pathlib.Path) -> None:
    for scheme in ("posix", "file"):
        origin = opening.open_origin(f"{scheme}://{tmp_path}", 5.0)
        origin.put_if_absent(f"by-{scheme}", [b"x"])
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "by-file", "by-posix",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", exception.InvalidError),
        ("/path", exception.InvalidError),
        ("posix://[", exception.InvalidError),
        ("nothing:///path", exception.UnsupportedError),
        ("memory://host", exception.InvalidError),
    ],
)
def test_bad_url_is_an_error_of_its_kind(url: str, expected: type[exception.AcstorError]) -> None:
    with pytest.raises(expected):
        opening.open_origin(url, 5.0)


@pytest.mark.parametrize("wrapper", [FaultyOrigin, retrying.RetryingOrigin, NativeThreadOrigin])
def test_wrapper_asks_the_inner_origin_for_everything(wrapper: type[base.Origin]) -> None:
    """The answers that origins have by default would else hide the inner one's."""
    made_of_others = {"read_exactly", "get_range", "get", "exists"}
    interfaces = (base.Store, base.ObjectStore, base.RefStore)
    names = {name for one in interfaces for name in vars(one) if not name.startswith("_")}
    assert {"put_if_absent", "read_many", "swap_ref", "sweep"} <= names
    assert names - made_of_others <= vars(wrapper).keys()
