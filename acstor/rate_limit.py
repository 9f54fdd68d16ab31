"""A bound on bytes per second, shared by threads."""

import threading
import time
from collections.abc import Callable

BURST_SECONDS = 0.5
"""Burst after a pause, in seconds at the full rate."""


class RateLimit:
    """A token bucket.

    :param rate_bytes_per_s: 0: no limit.
    :param clock: monotonic seconds.
    """

    def __init__(self, rate_bytes_per_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with a full bucket."""
        self._rate = rate_bytes_per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._paid_until = clock()
        """Until when what was taken so far uses the rate up."""

    def change_rate(self, rate_bytes_per_s: int) -> None:
        """Go on at another rate; what is to be paid still is paid at that one.

        :param rate_bytes_per_s: 0: no limit.
        """
        with self._lock:
            if self._rate and rate_bytes_per_s:
                now = self._clock()
                owed = max(0.0, self._paid_until - now) * self._rate
                if owed:
                    self._paid_until = now + owed / rate_bytes_per_s
            self._rate = rate_bytes_per_s

    def take(self, size_bytes: int) -> float:
        """Note that so many bytes were moved; return the seconds to wait before the next."""
        with self._lock:
            if not self._rate:
                return 0.0
            now = self._clock()
            self._paid_until = max(self._paid_until, now - BURST_SECONDS)
            self._paid_until += size_bytes / self._rate
            return max(0.0, self._paid_until - now)
