"""Since when hosts are overloaded in truth, which nobody in the control loop knows.

A host's overload begins when its link begins to be busy beyond the policy's limit, in a direction
in which extra traffic has its part in that (``acstor.policy.observation.is_overloaded``), and lasts
while it is so on average since then: the sum of what is above the limit less what is below
(CUSUM; Page, Biometrika 1954) has not come back to 0. So a host does not stop being overloaded
because one machine's reads pause for a moment, and a begin that was none is forgotten.
"""

import numpy as np
from numpy.typing import NDArray

from acstor.policy.settings import PolicySettings
from sim.world import World

Floats = NDArray[np.float64]


class Onsets:
    """Watches the counters of all hosts.

    :param link: bytes per second each way, of every host.
    """

    def __init__(self, world: World, settings: PolicySettings, link: float) -> None:
        self._world = world
        self._limit = settings.overload * link
        self._extra_min = settings.overload_extra_min * link
        self._seen, self._at = self._counters(), 0.0
        self._above = np.zeros((2, len(world.is_alive)))
        self.since = np.full((2, len(world.is_alive)), np.inf)
        """Received and sent, by host; infinite: not overloaded."""

    def look(self, now: float) -> None:
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
        world, hosts = self._world, len(self._world.is_alive)
        extra = np.stack([world.extra_in, world.extra_out])
        moved = np.stack([world.moved_in[:hosts], world.moved_out[:hosts]])
        return np.stack([extra, extra + moved])
