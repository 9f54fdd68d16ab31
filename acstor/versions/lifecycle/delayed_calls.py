"""Calls that are made later, one after the other, by one thread."""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

WAITING_MAX = 1000
"""Most calls that wait."""


class DelayedCalls:
    """Makes calls when they are due; what waits is lost with the process.

    Its thread begins with the first call.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._thread: threading.Thread | None = None

    def __call__(self, seconds: float, call: Callable[[], None]) -> bool:
        """Make a call after so many seconds; return False where too many wait already."""
        with self._changed:
            if len(self._waiting) >= WAITING_MAX:
                return False
            heapq.heappush(self._waiting, (self._clock() + seconds, next(self._numbers), call))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="delayed-calls", daemon=True)
                self._thread.start()
            self._changed.notify()
            return True

    def _run(self) -> None:
        while True:
            call = self._next()
            try:
                call()
            except Exception:
                LOG.exception("a delayed call failed")

    def _next(self) -> Callable[[], None]:
        """Wait until a call is due, and return it."""
        with self._changed:
            while True:
                if not self._waiting:
                    self._changed.wait()
                    continue
                left = self._waiting[0][0] - self._clock()
                if left <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(left)
