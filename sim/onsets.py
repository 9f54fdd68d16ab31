"""Since when hosts are overloaded in truth, which nobody in the control loop knows.

A host's overload begins when its link begins to be busy beyond the policy's limit, in a direction
in which extra traffic has its part in that (``acstor.policy.observation.is_overloaded``), and lasts
while it is so on average since then: the sum of what is above the limit less what is below
(CUSUM; Page, Biometrika 1954) has not come back to 0. So a host does not stop being overloaded
because one machine's reads pause for a moment, and a begin that was none is forgotten.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from acstor.policy.settings import PolicySettings

Floats = NDArray[np.float64]


class Counting(Protocol):
    """Knows what hosts have carried: a :class:`sim._simcore.Simulation`."""

    def counters(self) -> dict[str, bytes]:
        """Return amounts by host and name."""


class Onsets:
    """Watches the counters of all hosts.

    :param link: bytes per second each way, of every host.
    """

    def __init__(self, simulation: Counting, settings: PolicySettings, link: float) -> None:
        self._simulation = simulation
        self._limit = settings.overload * link
        self._extra_min = settings.overload_extra_min * link
        self._seen, self._at = self._counters(), 0.0
        self._above = np.zeros(self._seen.shape[1:])
        self.since = np.full(self._seen.shape[1:], np.inf)
        """Received and sent, by host; infinite: not overloaded."""

    def check(self, now: float) -> None:
        """Take what has been carried since the last look."""
        duration = now - self._at
        if duration <= 0:
            return
        counters = self._counters()
        extra, busy = (counters - self._seen) / duration
        self._above += np.where(
            extra >= self._extra_min, (busy - self._limit) * duration, -np.inf
        )  # fmt: skip
        is_over = self._above > 0
        begins = is_over & np.isinf(self.since)
        self.since[begins] = self._at
        self.since[~is_over] = np.inf
        self._above[~is_over] = 0.0
        self._seen, self._at = counters, now

    def of(self, host: int) -> float:
        """Return when the overload of a host began; infinite: it is not overloaded."""
        return float(self.since[:, host].min())

    def _counters(self) -> Floats:
        """Return (extra or all, received or sent, host), bytes since the start."""
        counters = self._simulation.counters()
        carried = {name: np.frombuffer(amounts) for name, amounts in counters.items()}
        extra = np.stack([carried["extra_in"], carried["extra_out"]])
        moved = np.stack([carried["moved_in"], carried["moved_out"]])
        return np.stack([extra, extra + moved])
