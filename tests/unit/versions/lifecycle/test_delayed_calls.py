"""Calls that are made later."""

import queue

import pytest

from acstor.versions.lifecycle import delayed_calls
from acstor.versions.lifecycle.delayed_calls import DelayedCalls


def test_calls_are_made_in_the_order_in_which_they_are_due() -> None:
    later, made = DelayedCalls(), queue.Queue[str]()
    assert later(0.05, lambda: made.put("second"))
    assert later(0.0, lambda: made.put("first"))
    assert [made.get(timeout=60), made.get(timeout=60)] == ["first", "second"]


def test_call_that_fails_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    later, made = DelayedCalls(), queue.Queue[str]()

    def fail() -> None:
        raise KeyError("odd")

    later(0.0, fail)
    later(0.01, lambda: made.put("after"))
    assert made.get(timeout=60) == "after"
    assert "a delayed call failed" in caplog.text


def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_calls, "WAITING_MAX", 2)
    later = DelayedCalls()
    assert [later(600.0, lambda: None) for _ in range(3)] == [True, True, False]
