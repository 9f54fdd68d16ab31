"""Following Nova's notifications of cached images, and starting preloads, one after the other."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from acstor.backoff import BackOff
from acstor.preload.image_caching import notification, starting
from acstor.preload.image_caching.notification import CachedImages
from acstor.preload.image_caching.starting import Agents, Outcome

LOG = logging.getLogger(__name__)

WAITING_MAX = 100_000
"""Pairs of host and image that may wait; what is beyond is told, and left out."""
ATTEMPTS_MAX = 5
"""Attempts of one pair whose host, or the broker, is silent."""
RETRY = BackOff(first=5.0, longest=120.0)
"""Delays between these attempts."""

OpenAgents = Callable[[], AbstractContextManager[Agents]]


@dataclass
class _Waiting:
    """One pair that waits for its turn."""

    aggregate: str
    due_at: float
    """Monotonic seconds."""
    attempts: int = 0


class CachedImageFollower:
    """Starts a preload for each image that Nova says was to be cached on a host.

    :param open_agents: opens calls to agents for as long as there is something to do.
    :param pin: whether what is preloaded so is kept.
    :param on_outcome: told each outcome, for metrics.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        open_agents: OpenAgents,
        *,
        pin: bool,
        on_outcome: Callable[[Outcome], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_agents = open_agents
        self._pin = pin
        self._on_outcome = on_outcome
        self._clock = clock
        self._condition = threading.Condition()  # of everything below
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="image-caching", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread within ``timeout`` seconds; what waits is forgotten."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def hear(self, event_type: str, payload: Any) -> None:
        """Take a notification; may be called from any thread."""
        try:
            found = notification.parse(event_type, payload)
        except ValueError as error:
            LOG.warning("ignoring a notification %s of Nova: %s", event_type, error)
            return
        if found is not None:
            self._request(found)

    def _request(self, found: CachedImages) -> None:
        with self._condition:
            for image in found.images:
                if len(self._waiting) >= WAITING_MAX:
                    LOG.error("more than %d images wait: image %s on %s is left out",
                              WAITING_MAX, image, found.host)  # fmt: skip
                    break
                waiting = _Waiting(found.aggregate, self._clock())
                self._waiting.setdefault((found.host, image), waiting)
            self._condition.notify()

    # The thread

    def _run(self) -> None:
        while self._wait():
            try:
                self.work()
            except Exception:
                LOG.exception("starting preloads of cached images failed")

    def _wait(self) -> bool:
        with self._condition:
            while not self._is_stopping and self._due() is None:
                due = min((each.due_at for each in self._waiting.values()), default=None)
                self._condition.wait(None if due is None else max(0.0, due - self._clock()))
            return not self._is_stopping

    def _due(self) -> tuple[str, str] | None:
        now = self._clock()
        return next((key for key, each in self._waiting.items() if each.due_at <= now), None)

    def work(self) -> None:
        """Start everything that is due."""
        with contextlib.ExitStack() as stack:
            agents = None
            while True:
                with self._condition:
                    key = None if self._is_stopping else self._due()
                    waiting = None if key is None else self._waiting.pop(key)
                if key is None or waiting is None:
                    return
                agents = agents or stack.enter_context(self._open_agents())
                host, image = key
                outcome, reason = starting.start(agents, host, image, pin=self._pin)
                self._note(host, image, waiting, outcome, reason)

    def _note(
        self, host: str, image: str, waiting: _Waiting, outcome: Outcome, reason: str
    ) -> None:
        what = f"image {image} on host {host}, aggregate {waiting.aggregate}"
        attempts = waiting.attempts + 1
        if outcome is Outcome.SILENT and attempts < ATTEMPTS_MAX:
            again = _Waiting(waiting.aggregate, self._clock() + RETRY.seconds(attempts), attempts)
            with self._condition:
                self._waiting.setdefault((host, image), again)
            LOG.info("preload of %s is tried again: %s", what, reason)
            return
        self._on_outcome(outcome)
        match outcome:
            case Outcome.STARTED:
                LOG.info("preload of %s has begun: Nova was asked to cache it", what)
            case Outcome.PRESENT | Outcome.NOT_SERVED:
                LOG.debug("nothing to preload of %s: %s", what, reason or outcome)
            case Outcome.UNKNOWN_HOST:
                LOG.warning(
                    "no preload of %s: %s; [DEFAULT] host there must be the name that Nova has "
                    "for it, in lower case", what, reason,
                )  # fmt: skip
            case _:
                LOG.warning("no preload of %s: %s", what, reason)
