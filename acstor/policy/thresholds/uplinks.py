"""A threshold from the loads of links instead of switches, for trees of any shape.

Ours: a request between hosts of two racks suffers from their uplinks, not from what their switches
forward below. When more than half of the hosts have a busy uplink at some level above them, the
hosts that are reached through it are too far. A busy host link cannot be avoided by choosing a
closer host, so that this never gives 1. A root without uplink counts by its capacity.

Not where several equal paths lead up and traffic is not spread over them evenly.
"""

from collections.abc import Mapping

from acstor.policy import switch_loads
from acstor.policy.collection import HostLoad
from acstor.policy.settings import PolicySettings
from acstor.policy.switch_loads import SwitchLoad
from acstor.policy.thresholds.base import STAY_SHARE, hops_through
from acstor.policy.topology import Topology


class Uplinks:
    """The closest level whose uplinks are busy for more than half of the hosts."""

    def __init__(self, settings: PolicySettings) -> None:
        self._limit = settings.switch_overload
        self._lowest = settings.threshold_min

    def choose(
        self, loads: Mapping[str, HostLoad], topology: Topology | None, in_force: int | None
    ) -> int | None:
        """Return the threshold, hops; None without a topology."""
        if topology is None:
            return None
        for level, switches in enumerate(switch_loads.estimate(loads, topology)):
            hosts = sum(switch.host_count for switch in switches)
            busy: dict[int, int] = {}
            for switch in switches:
                threshold = max(self._lowest, hops_through(_reached_level(switch, level)))
                limit = self._limit * (STAY_SHARE if in_force == threshold else 1.0)
                share = switch.share if switch.uplink is None else switch.uplink_share
                if share is not None and share > limit:
                    busy[threshold] = busy.get(threshold, 0) + switch.host_count
            for threshold, count in sorted(busy.items()):
                if count > hosts * 0.5:
                    return threshold
        return None


def _reached_level(switch: SwitchLoad, level: int) -> int:
    """Return the level of the switch that what is busy leads to."""
    return level if switch.uplink is None else level + 1
