"""The threshold of the paper, for a declared tree.

Source: ACStor, section 3.6, Algorithm 2: level by level from the edge up, when more than half of
the switches of a level carry more than 80 % of their bandwidth, the threshold is the least number
of hops of a request that goes through a switch of that level: 1 at the edge, 3 at the aggregate,
5 at the root. The paper starts from 7, which skips nobody in its tree; here that is None, or the
plain threshold that an operator sets (``threshold_max``).

A switch's traffic is what it forwards where its ``capacity`` is declared: that is the paper's.
Where only its uplink is, it is what that carries in the busier direction, and the threshold is the
least number of hops of a request that takes such an uplink: 3 at the edge, 5 at the aggregate.
(With the paper's 3 there the hosts of each rack would be left to themselves, although those of the
whole pod can be reached without a busy uplink.) Both are estimated
(:mod:`acstor.policy.switch_loads`). Half of an even number of switches is not enough, as in the
pseudo-code (the text has "half").

Neither knows what the origin can bear: a lower threshold has each rack, or pod, read all chunks
from there once.

Not for networks that are no tree, nor for levels of very unequal switches: take ``uplinks``.
"""

from collections.abc import Mapping

from acstor.policy import switch_loads
from acstor.policy.collection import HostLoad
from acstor.policy.settings import PolicySettings
from acstor.policy.thresholds.base import STAY_SHARE, affected_level, hops_through
from acstor.policy.topology import Topology


class Algorithm2:
    """Algorithm 2."""

    def __init__(self, settings: PolicySettings) -> None:
        self._limit = settings.switch_overload
        self._lowest = settings.threshold_min

    def choose(
        self, loads: Mapping[str, HostLoad], topology: Topology | None, in_force: int | None
    ) -> int | None:
        """Return the threshold, hops; None without a topology."""
        if topology is None:
            return None
        for switches in switch_loads.estimate(loads, topology):
            judged = [switch for switch in switches if switch.share is not None]
            if not judged:
                continue
            # Of one level; exceptions may be declared with another kind of speed than the rest.
            level = min(affected_level(switch) for switch in judged)
            threshold = max(self._lowest, hops_through(level))
            limit = self._limit * (STAY_SHARE if in_force == threshold else 1.0)
            if sum((switch.share or 0.0) > limit for switch in judged) > len(judged) * 0.5:
                return threshold
        return None
