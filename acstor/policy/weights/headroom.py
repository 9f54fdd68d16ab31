"""Weights in proportion to the bandwidth that extra traffic leaves.

Ours, not the paper's: a host that has half its link to spare serves half of what an idle one does,
whatever the speed of either, so that with these weights the links of all hosts fill up together.
Takes what hosts send, for that is what serving adds to; ``traffic`` in the settings takes another
direction.

Not where the links' speeds are not known, nor where extra traffic gives way to ours (TCP with
many flows): there less than what the counters say is in the way.
"""

from collections.abc import Mapping

from acstor.policy.collection import HostLoad
from acstor.policy.settings import PolicySettings
from acstor.policy.weights.base import traffic_of

SPARE_FLOOR = 0.005
"""Part of its link that a host counts as having to spare at least, unless the settings say another
one. A full host still owns a little: what it holds is found there."""


class Headroom:
    """Weight policy by the bandwidth that is left on each link."""

    def __init__(self, settings: PolicySettings) -> None:
        self._kind = settings.traffic or "out"
        self._floor = settings.traffic_floor or SPARE_FLOOR

    def weigh(self, loads: Mapping[str, HostLoad]) -> dict[str, float]:
        """Return the spare bandwidth of each host, bytes per second."""
        return {name: self._spare(load) for name, load in loads.items()}

    def _spare(self, load: HostLoad) -> float:
        capacity = 2 * load.link if self._kind == "sum" else load.link
        return max(capacity - traffic_of(load, self._kind), self._floor * capacity)
