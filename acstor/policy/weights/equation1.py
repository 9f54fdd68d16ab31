"""The weights of the paper: inversely proportional to the traffic.

Source: ACStor, section 3.6, Equation (1): vnode_count(i) = floor(lambda * sum(traffic) /
traffic(i)), lambda = 1.67; what ACStor itself moves is left out (section 4.2).

What the paper leaves open: a host without traffic would get infinitely many v-nodes. Here each
host counts as having at least a part of its link, so that hosts that are all but idle
are alike. lambda changes nothing but how much the floor function rounds (see Table 1).

Not for hosts whose links differ: the same traffic is more to the slower one. Nor where hosts are
close to full: twice the traffic halves the weight, whether that is 2 or 90 % of the link. Take
``headroom`` there.
"""

import math
from collections.abc import Mapping

from acstor.policy.collection import HostLoad
from acstor.policy.settings import PolicySettings
from acstor.policy.weights.base import traffic_of

TRAFFIC_FLOOR = 0.05
"""Part of its link that a host counts as using at least, unless the settings say another one."""


class Equation1:
    """Equation (1)."""

    def __init__(self, settings: PolicySettings) -> None:
        self._lambda = settings.weight_lambda
        self._kind = settings.traffic or "sum"
        self._floor = settings.traffic_floor or TRAFFIC_FLOOR

    def weigh(self, loads: Mapping[str, HostLoad]) -> dict[str, float]:
        """Return the number of v-nodes of each host; 1 where the equation has less."""
        traffic = {
            name: max(traffic_of(load, self._kind), self._floor * load.link)
            for name, load in loads.items()
        }
        # Not the same as adding up in another order; a replay must find the same.
        total = math.fsum(traffic.values())
        return {
            name: float(max(1, math.floor(self._lambda * total / own)))
            for name, own in traffic.items()
        }
