"""Samples that were held up on their way, told from those of a host whose clock is off.

A time stamp far from now is one or the other. What was held up comes sooner and sooner after its
time stamp while what waits is worked off; a clock that is off stays off by as much.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from acstor.policy.load_samples import FUTURE_MAX, HOSTS_MAX

LATE_MAX = 120.0
"""Seconds after which a sample says nothing of now any more."""
SHRINK_MAX = 2.0
"""Seconds by which the lag may fall below what it was, and still count as the same."""
STEADY_AFTER = 5.0
"""Seconds for which the lag must have been the same before time stamps far from now are trusted."""


@dataclass(frozen=True, slots=True)
class _Lag:
    seconds: float
    """From a time stamp of the host to the arrival of its sample, from some beginning."""
    since: float


class LagWatch:
    """Judges time stamps of hosts by when they arrive. Not thread-safe.

    :param clock: POSIX seconds.
    :param steady_clock: monotonic seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._steady_clock = steady_clock
        self._lags: dict[str, _Lag] = {}

    def problem(self, host: str, at: float) -> str | None:
        """Return what is wrong with a sample that came now: ``late``, ``future``; None: nothing.

        :param at: its time stamp by the clock of the host, POSIX seconds.
        """
        now, ahead = self._steady_clock(), at - self._clock()
        seconds = now - at
        lag = self._lags.get(host)
        if lag is None or not -SHRINK_MAX <= seconds - lag.seconds <= LATE_MAX:
            lag = _Lag(seconds, now)
            if host in self._lags or len(self._lags) < HOSTS_MAX:
                self._lags[host] = lag
        if -LATE_MAX <= ahead <= FUTURE_MAX or now - lag.since >= STEADY_AFTER:
            return None
        return "future" if ahead > 0 else "late"
