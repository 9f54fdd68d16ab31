"""The circuit breaker in front of a member.

The states, the events and the rules are those of the origin's breaker in the data plane
(``crates/selection/src/circuit_breaker.rs``, ``BreakerRules::ORIGIN``), which Python cannot call.
"""

import enum
import threading
import time
from collections.abc import Callable

from acstor.backoff import BackOff
from acstor.states import TransitionTable

FAILURES_MAX = 5
"""Failures in a row that open it, as ``ORIGIN_FAILURES_MAX`` of the data plane."""
OPEN = BackOff(first=0.25, longest=5.0)
"""Seconds for which it stays open, as ``ORIGIN_OPEN_MIN`` and ``ORIGIN_OPEN_MAX``."""


class BreakerState(enum.StrEnum):
    """State of a breaker; it decides whether the member is asked.

    ::

                  opened                     trial due
        CLOSED ------------> OPEN  -------------------> HALF_OPEN
          ^                  |  ^                          |  |
          |                  |  '-------- opened ----------'  |
          '--- succeeded ----'                                |
          '--- succeeded -------------------------------------'
    """

    CLOSED = "closed"
    """Asked freely."""
    OPEN = "open"
    """Not asked until the back-off is over."""
    HALF_OPEN = "half-open"
    """One trial is under way."""


class BreakerEvent(enum.StrEnum):
    """Event of a breaker."""

    OPENED = "opened"
    """The last failure in a row that is allowed, or that of a trial."""
    TRIAL_DUE = "trial due"
    """The back-off is over, and somebody wants the member."""
    SUCCEEDED = "succeeded"
    """The member answered."""


_S, _E = BreakerState, BreakerEvent

TRANSITIONS = TransitionTable[BreakerState, BreakerEvent](
    {
        (_S.CLOSED, _E.OPENED): _S.OPEN,
        (_S.OPEN, _E.TRIAL_DUE): _S.HALF_OPEN,
        (_S.OPEN, _E.SUCCEEDED): _S.CLOSED,  # an attempt that began before the failure
        (_S.HALF_OPEN, _E.OPENED): _S.OPEN,
        (_S.HALF_OPEN, _E.SUCCEEDED): _S.CLOSED,
    },
    name="circuit breaker",
)
"""Every transition."""


class CircuitBreaker:
    """Keeps callers from a member that fails.

    Source: Nygard, *Release It!*, 2007, chapter 5. Differs: the open time grows with the failures
    in a row, and has jitter.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._until = 0.0

    @property
    def state(self) -> BreakerState:
        """Its state."""
        return self._state

    @property
    def retry_seconds(self) -> float:
        """Seconds until the back-off, or the trial's time, is over; 0 while closed."""
        if self._state is BreakerState.CLOSED:
            return 0.0
        return max(0.0, self._until - self._clock())

    def admit(self, trial_seconds: float) -> bool:
        """Return whether the member may be asked now.

        :param trial_seconds: longest time of a call: a trial without an end by then has failed.
        """
        with self._lock:
            if self._state is BreakerState.CLOSED:
                return True
            if self._clock() < self._until:
                return False
            if self._state is BreakerState.HALF_OPEN:
                self._open()
                return False
            self._apply(BreakerEvent.TRIAL_DUE)
            self._until = self._clock() + trial_seconds
            return True

    def succeeded(self) -> None:
        """Note an answer: the failures are forgotten."""
        with self._lock:
            self._failures = 0
            if self._state is not BreakerState.CLOSED:
                self._apply(BreakerEvent.SUCCEEDED)

    def failed(self) -> None:
        """Note a failure; while open it is one of a call that began before, and tells nothing."""
        with self._lock:
            if self._state is BreakerState.OPEN:
                return
            if self._state is BreakerState.HALF_OPEN or self._failures + 1 >= FAILURES_MAX:
                self._open()
            else:
                self._failures += 1

    def _open(self) -> None:
        self._failures += 1
        self._apply(BreakerEvent.OPENED)
        self._until = self._clock() + OPEN.seconds(max(1, self._failures - FAILURES_MAX + 1))

    def _apply(self, event: BreakerEvent) -> None:
        self._state = TRANSITIONS.after(self._state, event)
