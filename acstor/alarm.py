"""Waiting for the next look of a service: until its interval is over, or somebody asks for it."""

import math
import random
import threading
import time
from collections.abc import Callable


class Alarm:
    """Waited for by one thread, set off by any, signal handlers included.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Re-entrant: a signal handler may come while this very thread holds it.
        self._condition = threading.Condition(threading.RLock())  # of the two below
        self._asked_for = math.inf
        self._is_over = False

    def ask(self, within: float = 0.0) -> None:
        """Have the next look soon.

        :param within: seconds of which a random part is waited, so that hosts that are told the
            same do not look in the same instant.
        """
        at = self._clock() + random.uniform(0.0, within)
        with self._condition:
            if at < self._asked_for:
                self._asked_for = at
                self._condition.notify_all()

    def end(self) -> None:
        """Let nobody wait any more."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()

    def begin(self) -> None:
        """Note that a look begins: what is asked for from now on is another one."""
        with self._condition:
            self._asked_for = math.inf

    def wait(self, seconds: float) -> None:
        """Wait until a look is due: ``seconds`` from now, or when it was asked for."""
        due = self._clock() + seconds
        with self._condition:
            while not self._is_over and (left := min(due, self._asked_for) - self._clock()) > 0:
                self._condition.wait(left)
