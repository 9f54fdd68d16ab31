"""The reconcile loop, its problems and its back-off."""

import logging
import threading

import pytest

from acstor import exception
from acstor.backoff import BackOff, jittered
from acstor.service import Problems, ReconcileLoop, Watchdog

LOG = logging.getLogger("acstor.test")


def test_problem_is_told_when_it_appears_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = Problems(LOG)
    with caplog.at_level(logging.INFO, LOG.name):
        for found in ({"origin": "away"}, {"origin": "away still"}, {}, {}):
            problems.replace(found)
            assert problems.copy() == found
    assert [record.getMessage() for record in caplog.records] == [
        "origin: away",
        "origin: in order again",
    ]
    assert not problems


def test_step_that_fails_stops_no_other_and_a_fault_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = Problems(LOG, with_hints=True)

    def away() -> None:
        raise exception.UnavailableError("the origin\nis away", hint="look at it")

    for _ in range(2):
        found: dict[str, str] = {}
        assert problems.attempt(found, "origin", away) is None
        assert problems.attempt(found, "ring", lambda: 1 // 0) is None
        assert problems.attempt(found, "images", lambda: 7) == 7
        problems.replace(found)
    assert "ring" in problems
    assert problems.copy()["origin"] == "the origin is away; look at it"
    assert problems.copy()["ring"].startswith("a fault of ACStor: ZeroDivisionError: ")
    assert [record.getMessage() for record in caplog.records].count("ring failed") == 1


def test_loop_goes_on_after_a_pass_that_failed_and_ends_when_stopped() -> None:
    passes: list[int] = []
    faults: list[int] = []

    def reconcile() -> None:
        passes.append(len(passes))
        if len(passes) == 1:
            raise RuntimeError("a fault")
        if len(passes) == 3:
            loop.stop()

    loop = ReconcileLoop(reconcile, lambda: 0.0, logger=LOG, on_fault=lambda: faults.append(1))
    loop.run()
    assert len(passes) == 3
    assert faults == [1]
    assert loop.is_stopping
    assert loop.pause(60), "nobody waits for a service that ends"


def test_pass_that_is_asked_for_is_made_at_once() -> None:
    made = threading.Semaphore(0)
    loop = ReconcileLoop(made.release, lambda: 3600.0, logger=LOG)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        assert made.acquire(timeout=60)
        loop.reconcile_soon()
        assert made.acquire(timeout=60)
    finally:
        loop.stop()
        thread.join(60)
    assert not thread.is_alive()


def test_watchdog_is_told_after_a_pass_and_between_two() -> None:
    told: list[int] = []

    def pat() -> None:
        told.append(1)
        if len(told) == 4:
            loop.stop()

    loop = ReconcileLoop(lambda: None, lambda: 3600.0, logger=LOG)
    loop.run(Watchdog(0.02, pat))
    assert len(told) == 4


def test_delays_double_up_to_the_longest() -> None:
    backoff = BackOff(first=2.0, longest=30.0, shortest=0.5, spread=1.0)
    assert [backoff.bound(failures) for failures in (0, 1, 2, 3, 5, 5000)] == [2, 2, 4, 8, 30, 30]
    assert all(0.5 <= backoff.seconds(3) <= 8 for _ in range(100))
    assert all(15 <= BackOff(2.0, 30.0).seconds(9) <= 30 for _ in range(100))
    assert all(9 <= jittered(10.0) <= 11 for _ in range(100))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a\n  b"), "a b"),
        (ValueError(), "ValueError"),
        ("no error", "no error"),
    ],
)
def test_error_in_one_line(error: object, text: str) -> None:
    assert exception.one_line(error) == text
