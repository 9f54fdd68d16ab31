"""Bandwidth of a member, divided between its users and the synchronisation.

Source: flexStore, §III-C, Equation 1: I1 = I - I2, with I2 at most a threshold, and a reserved
minimum, so that a busy member is synchronised nevertheless. Differs: I2 follows what users took in
the last control period, so that a member without load is synchronised as fast as it can be, up to
the threshold; both members of a copy pay.
"""

import dataclasses
import threading
import time
from collections.abc import Callable

from acstor.rate_limit import RateLimit


@dataclasses.dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bandwidth of a member, bytes per second."""

    total: int
    """I: what it can do, its network or its disks, whichever is less."""
    threshold: int
    """Largest I2. The larger, the closer are copies, and the more do users notice."""
    minimum: int
    """Smallest I2, reserved."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        :raises ValueError: unless 0 < minimum <= threshold <= total.
        """
        if not 0 < self.minimum <= self.threshold <= self.total:
            raise ValueError(
                f"a minimum of {self.minimum}, a threshold of {self.threshold} and a total of "
                f"{self.total} bytes per second do not ascend"
            )

    def divide(self, foreground: float) -> tuple[int, int]:
        """Return I1 and I2 (Equation 1), whose sum is I.

        :param foreground: what users take, bytes per second.
        """
        spare = self.total - round(foreground)
        i2 = max(self.minimum, min(self.threshold, spare))
        return self.total - i2, i2


class SyncBudget:
    """The synchronisation's share of one member: a token bucket whose rate follows the load.

    :param bandwidth: of the member.
    :param clock: monotonic seconds.
    """

    def __init__(self, bandwidth: Bandwidth, clock: Callable[[], float] = time.monotonic) -> None:
        self.bandwidth = bandwidth
        self._clock = clock
        self._lock = threading.Lock()
        self._foreground_bytes = 0
        self._began_at = clock()
        self._rate = bandwidth.minimum
        self._bucket = RateLimit(self._rate, clock)

    @property
    def rate(self) -> int:
        """I2 of this period, bytes per second."""
        return self._rate

    def note_foreground(self, size_bytes: int) -> None:
        """Note bytes that users read from the member, or wrote to it."""
        with self._lock:
            self._foreground_bytes += size_bytes

    def begin_period(self) -> int:
        """Divide anew by what users took since the last call, and return I2.

        What was taken on account stays to be paid, at the new rate.
        """
        with self._lock:
            now = self._clock()
            seconds = now - self._began_at
            if seconds > 0:
                _, self._rate = self.bandwidth.divide(self._foreground_bytes / seconds)
                self._foreground_bytes, self._began_at = 0, now
            self._bucket.change_rate(self._rate)
            return self._rate

    def take(self, size_bytes: int) -> float:
        """Note that so many bytes were copied; return the seconds to wait before the next."""
        return self._bucket.take(size_bytes)
