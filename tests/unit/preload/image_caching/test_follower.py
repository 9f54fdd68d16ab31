"""Preloads of what Nova was asked to cache: each begun once, and what stands against it told."""

import contextlib
import logging
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.preload.image_caching.follower import ATTEMPTS_MAX, CachedImageFollower
from acstor.preload.image_caching.notification import PROGRESS
from acstor.preload.image_caching.starting import Outcome, start
from testbed.fixtures.conditions import wait_for
from tests.unit.agent.conftest import Clock
from tests.unit.preload.image_caching.conftest import (
    HOST,
    IMAGE,
    OTHER,
    START,
    Agents,
    progress,
    status,
)


class Follower:
    """A follower whose work the test has done."""

    def __init__(self) -> None:
        self.agents = Agents()
        self.clock = Clock()
        self.outcomes: list[Outcome] = []
        self.opened = 0
        self.follower = CachedImageFollower(
            self._open, pin=False, on_outcome=self.outcomes.append, clock=self.clock
        )

    @contextlib.contextmanager
    def _open(self) -> Iterator[Agents]:
        self.opened += 1
        yield self.agents


def test_image_is_preloaded_whole() -> None:
    agents = Agents()
    assert start(agents, HOST, IMAGE, pin=False) == (Outcome.STARTED, "")
    ((host, arguments),) = agents.started
    assert host == HOST
    assert (arguments["image"], arguments["what"], arguments["pin"]) == (IMAGE, "full", False)


@pytest.mark.parametrize(
    ("present", "pin", "is_enough"),
    [
        (status(), False, True),
        (status(), True, False),
        (status(pin=True), True, True),
        (status(what="working-set"), False, False),
        (status(state="done"), False, False),
        (status(state="done", pin=True), True, True),
        (status(state="missed", pin=True), False, True),
        (status(state="stopped", pin=True), True, False),
        (status(image=OTHER), False, False),
    ],
)
def test_what_is_there_is_not_begun_again(
    present: dict[str, object], pin: bool, is_enough: bool
) -> None:
    agents = Agents()
    agents.known = [present]
    outcome, _ = start(agents, HOST, IMAGE, pin=pin)
    assert outcome is (Outcome.PRESENT if is_enough else Outcome.STARTED)


def test_pin_of_a_working_set_is_not_lost() -> None:
    agents = Agents()
    agents.known = [status(what="working-set", state="done", pin=True)]
    start(agents, HOST, IMAGE, pin=False)
    assert agents.started[0][1]["pin"] is True


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (exception.NotFoundError("image x is not attached"), Outcome.NOT_SERVED),
        (exception.ExhaustedError("no room"), Outcome.REFUSED),
        (exception.OverloadedError("no time"), Outcome.REFUSED),
        (exception.InvalidError("it preloads the image"), Outcome.REFUSED),
        (exception.UnavailableError("no agent listens on host h"), Outcome.UNKNOWN_HOST),
        (exception.UnavailableError("the message broker cannot be reached"), Outcome.SILENT),
        (exception.DeadlineError("host h did not answer"), Outcome.SILENT),
        (exception.InternalError("host h failed"), Outcome.FAILED),
    ],
)
def test_refusal_has_its_outcome(error: exception.AcstorError, outcome: Outcome) -> None:
    agents = Agents()
    agents.error = error
    assert start(agents, HOST, IMAGE, pin=False) == (outcome, error.message)


def test_notifications_are_followed_once() -> None:
    follower = Follower()
    for _ in range(3):
        follower.follower.hear(PROGRESS, progress(images_cached=[IMAGE, OTHER]))
    follower.follower.hear("aggregate.cache_images.end", START)
    follower.follower.work()
    assert [each["image"] for _, each in follower.agents.started] == [IMAGE, OTHER]
    assert follower.opened == 1
    follower.follower.work()
    assert follower.opened == 1, "nothing is connected for nothing"


def test_silent_host_is_asked_again_and_not_for_ever() -> None:
    follower = Follower()
    follower.agents.error = exception.DeadlineError("host compute did not answer")
    follower.follower.hear(PROGRESS, progress())
    for attempt in range(1, ATTEMPTS_MAX + 1):
        follower.follower.work()
        assert follower.agents.calls == 2 * attempt
        follower.follower.work()
        assert follower.agents.calls == 2 * attempt, "not before its time"
        follower.clock.now += 1000
    follower.follower.work()
    assert follower.agents.calls == 2 * ATTEMPTS_MAX
    assert follower.outcomes == [Outcome.SILENT]


def test_unknown_host_is_told(caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower()
    follower.agents.error = exception.UnavailableError("no agent listens on host compute")
    with caplog.at_level(logging.WARNING):
        follower.follower.hear(PROGRESS, progress())
        follower.follower.work()
    assert f"image {IMAGE} on host compute, aggregate my-aggregate" in caplog.text
    assert "[DEFAULT] host" in caplog.text


def test_malformed_notification_is_told_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower()
    with caplog.at_level(logging.WARNING):
        follower.follower.hear(PROGRESS, {"nova_object.name": "AggregateCachePayload"})
    assert "ignoring" in caplog.text
    follower.follower.work()
    assert follower.agents.calls == 0


def test_thread_follows_what_it_hears() -> None:
    follower = Follower()
    follower.follower.start()
    try:
        follower.follower.hear(PROGRESS, progress())
        wait_for("a preload", lambda: follower.agents.started)
    finally:
        follower.follower.stop(10)
