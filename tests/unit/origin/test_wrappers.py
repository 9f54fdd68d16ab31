"""Faulty and retrying origins, and opening an origin by its URL."""

import pathlib

import pytest

from acstor import exception
from acstor.origin import faulty, memory, opening, retrying
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation


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


def retried(*faults: Fault, attempts_max: int = 4) -> tuple[retrying.RetryingOrigin, list[float]]:
    waits: list[float] = []
    inner = faulty.FaultyOrigin(memory.MemoryOrigin(), faults)
    origin = retrying.RetryingOrigin(inner, 60.0, attempts_max=attempts_max, sleep=waits.append)
    return origin, waits


def test_transient_errors_are_retried_with_bounded_random_waits() -> None:
    origin, waits = retried(*(Fault(Operation.PUT, Effect.ERROR, call=call) for call in (1, 2, 3)))
    assert origin.put_if_absent("a", [b"x"])
    assert len(waits) == 3
    assert all(0 <= wait <= retrying.WAIT_SECONDS_MAX for wait in waits)


def test_attempts_are_bounded() -> None:
    origin, waits = retried(Fault(Operation.PUT, Effect.ERROR))
    with pytest.raises(exception.UnavailableError):
        origin.put_if_absent("a", [b"x"])
    assert len(waits) == 3


def test_deadline_bounds_the_waits() -> None:
    inner = faulty.FaultyOrigin(memory.MemoryOrigin(), [Fault(Operation.PUT, Effect.ERROR)])
    waits: list[float] = []
    origin = retrying.RetryingOrigin(inner, 0.0, sleep=waits.append)
    with pytest.raises(exception.UnavailableError):
        origin.put_if_absent("a", [b"x"])
    assert waits == []


def test_other_errors_are_not_retried() -> None:
    origin, waits = retried(Fault(Operation.PUT, Effect.ERROR, error=exception.ExhaustedError))
    with pytest.raises(exception.ExhaustedError):
        origin.put_if_absent("a", [b"x"])
    assert waits == []


def test_swap_with_lost_answer_succeeds() -> None:
    origin, _ = retried(Fault(Operation.SWAP_REF, Effect.LOST_ANSWER, call=1))
    token = origin.swap_ref("ring", None, b"x")
    present = origin.get_ref("ring")
    assert present is not None
    assert (present.token, present.content) == (token, b"x")


def test_swap_that_someone_else_won_conflicts() -> None:
    origin, _ = retried(Fault(Operation.SWAP_REF, Effect.ERROR, call=2))
    origin.swap_ref("ring", None, b"theirs")
    with pytest.raises(exception.ConflictError):
        origin.swap_ref("ring", None, b"ours")


def test_torn_object_is_noticed_by_the_repeated_put() -> None:
    origin, _ = retried(Fault(Operation.PUT, Effect.TORN_WRITE, call=1))
    with pytest.raises(exception.CorruptError, match="has 1 bytes, 3 were"):
        origin.put_if_absent("a", [b"abc"])


def test_put_with_lost_answer_is_found_stored() -> None:
    origin, _ = retried(Fault(Operation.PUT, Effect.LOST_ANSWER, call=1))
    assert not origin.put_if_absent("a", [b"abc"])
    assert origin.get("a", 3) == b"abc"


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
