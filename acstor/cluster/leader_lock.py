"""Leader election by a tooz lock: the process that holds it works, the others stand by.

A lock can be lost without notice, by a process that is stopped. What is done by the leader alone
has to be fenced where it is written: by a term, or by compare-and-swap with a token that was read
before everything that the change was decided on.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.cluster.endpoints import Endpoints
from acstor.cluster.membership import RECONNECT, CoordinationSettings, connect
from acstor.cluster.timed_lock import TimedLock

LOG = logging.getLogger(__name__)


class Leadership:
    """Wants the lock as long as it runs.

    :param settings: of the backend.
    :param role: what is led, such as ``registrar``; the lock is named after it.
    :param member_id: no other process's.
    :param on_change: called from the thread of this when :attr:`is_leader` or :attr:`problem`
        has changed.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: CoordinationSettings,
        role: str,
        member_id: str,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._endpoints = Endpoints(settings.urls())
        self._role = role
        self._member_id = member_id
        self._on_change = on_change
        self._clock = clock
        self._coordinator: Any = None
        self._lock: TimedLock | None = None
        self._failures = 0
        self._problem: str | None = None
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)
        self._is_stopping = False

    @property
    def is_leader(self) -> bool:
        """True if the lock was held at the last beat, and that is no longer ago than it lasts."""
        lock = self._lock
        return lock is not None and lock.is_held

    @property
    def problem(self) -> str | None:
        """Reason for which the backend cannot be reached; None: it can."""
        return self._problem

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Give the lock back and end, within ``timeout`` seconds."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._is_stopping:
            before = (self.is_leader, self._problem)
            try:
                self._beat()
            except Exception as error:
                # Backends raise what their clients raise; the next beat connects anew.
                self._lose(error)
            if (self.is_leader, self._problem) != before:
                self._on_change()
            self._wake.wait(self._delay())
        self._disconnect()

    def _beat(self) -> None:
        if self._lock is not None and self._lock.is_overdue:
            self._disconnect()
        if self._coordinator is None or self._lock is None:
            self._coordinator = connect(self._endpoints.current, self._member_id)
            lock = self._coordinator.get_lock(f"{self._settings.group}-{self._role}".encode())
            self._lock = TimedLock(lock, self._role, self._settings.lock_timeout, self._clock)
        started = self._clock()
        self._coordinator.heartbeat()
        self._lock.hold(started)
        if self._failures:
            LOG.info("coordination is up again")
        self._failures, self._problem = 0, None

    def _delay(self) -> float:
        if not self._failures:
            return self._settings.heartbeat_interval
        return RECONNECT.seconds(self._failures)

    def _lose(self, error: Exception) -> None:
        self._failures += 1
        self._problem = exception.one_line(error)
        if self._failures == 1:
            LOG.warning("coordination is away, no %s leads: %s", self._role, self._problem)
        if self._endpoints.is_alone:
            self._disconnect()
            return
        # As members do: an endpoint that does not answer is not waited for to take leave of it.
        self._endpoints.fail()
        self._coordinator = self._lock = None

    def _disconnect(self) -> None:
        coordinator, self._coordinator = self._coordinator, None
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(Exception):
                lock.release()
        if coordinator is not None:
            with contextlib.suppress(Exception):
                coordinator.stop()
