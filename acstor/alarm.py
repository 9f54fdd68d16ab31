"""Waiting for the next pass of a service: until its interval is over, or somebody asks for it."""

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

    @property
    def is_over(self) -> bool:
        """True if nobody waits any more."""
        return self._is_over

    def ask(self, within: float = 0.0) -> None:
        """Have the next pass soon.

        :param within: seconds of which a random part is waited, so that hosts that are told the
            same do not act in the same instant.
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
        """Note that a pass begins: what is asked for from now on is another one."""
        with self._condition:
            self._asked_for = math.inf

    def wait(self, seconds: float) -> bool:
        """Wait until a pass is due: ``seconds`` from now, or when it was asked for.

        :returns: whether it was asked for, or the end.
        """
        due = self._clock() + seconds
        with self._condition:
            while not self._is_over and (left := min(due, self._asked_for) - self._clock()) > 0:
                self._condition.wait(left)
            return self._is_over or self._asked_for <= self._clock()

    def pause(self, seconds: float) -> bool:
        """Wait within a pass, whatever is asked for but the end; return whether that was asked."""
        due = self._clock() + seconds
        with self._condition:
            while not self._is_over and (left := due - self._clock()) > 0:
                self._condition.wait(left)
            return self._is_over
