"""Steps: their order, and what an error ends."""

import threading

import pytest

from testbed.onebox.steps import Step, run


def ignore(name: str, seconds: float) -> None:
    """Report nothing."""


def test_each_step_comes_after_those_that_it_names() -> None:
    done: list[str] = []
    plan = [
        Step("cloud", lambda: done.append("cloud"), ("nova", "glance")),
        Step("nova", lambda: done.append("nova"), ("database",)),
        Step("glance", lambda: done.append("glance"), ("database",)),
        Step("database", lambda: done.append("database")),
    ]
    reported: list[str] = []
    run(plan, lambda name, seconds: reported.append(name), lambda: None)
    assert done[0] == "database"
    assert done[-1] == "cloud"
    assert sorted(done) == sorted(reported) == ["cloud", "database", "glance", "nova"]


def test_independent_steps_are_done_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=20)
    run([Step(str(number), together.wait) for number in range(3)], ignore, lambda: None)


def test_an_error_begins_nothing_more_and_ends_what_waits() -> None:
    cancelled = threading.Event()
    done: list[str] = []

    def fail() -> None:
        raise ValueError("keystone")

    plan = [
        Step("fails", fail),
        Step("waits", lambda: cancelled.wait(20)),
        Step("never", lambda: done.append("never"), ("fails",)),
    ]
    reported: list[str] = []
    with pytest.raises(ValueError, match="keystone"):
        run(plan, lambda name, seconds: reported.append(name), cancelled.set)
    assert cancelled.is_set()
    assert done == []
    assert "fails" not in reported


def test_an_interruption_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    def interrupted(name: str, seconds: float) -> None:
        raise KeyboardInterrupt

    plan = [Step("first", lambda: None), Step("waits", lambda: cancelled.wait(20))]
    with pytest.raises(KeyboardInterrupt):
        run(plan, interrupted, cancelled.set)
    assert cancelled.is_set()
