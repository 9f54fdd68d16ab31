"""What switches carry, estimated from what their hosts send and receive.

Hosts tell how much they send, not to whom. The destinations are taken to be in proportion to what
each host receives (a gravity model): of what the hosts under a switch send, the part that the
hosts under it receive of everything stays below it, and the rest goes up. What all hosts together
send more than they receive, or receive more than they send, passes the root.

Right where traffic has no preferred direction. Traffic that stays in a rack is over-estimated
above it, so that the threshold comes earlier than it must; hosts that say nothing are left out,
so that it comes later. Only extra traffic is counted: what the data planes move depends on the
threshold, which would chase itself.

Source of the model: Y. Zhang et al., Fast accurate computation of large-scale IP traffic matrices
from link loads (SIGMETRICS 2003). ACStor's Algorithm 2 takes the switches' traffic as known.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from acstor.policy.collection import HostLoad
from acstor.policy.topology import Path, Topology


@dataclass(frozen=True)
class SwitchLoad:
    """What one switch carries; bytes per second."""

    switch: Path
    level: int
    host_count: int
    up: float
    """To the switch above."""
    down: float
    """From the switch above."""
    forwarded: float
    """Between what is below it, and up and down."""
    uplink: float | None
    capacity: float | None

    @property
    def uplink_share(self) -> float | None:
        """What part of the uplink is used in its busier direction; None: it has none."""
        return None if self.uplink is None else max(self.up, self.down) / self.uplink

    @property
    def share(self) -> float | None:
        """What part of its bandwidth is used; of its uplink's where no capacity is declared."""
        return self.uplink_share if self.capacity is None else self.forwarded / self.capacity


@dataclass
class _Sums:
    sent: float = 0.0
    received: float = 0.0
    leaving_children: float = 0.0
    host_count: int = 0


def estimate(loads: Mapping[str, HostLoad], topology: Topology) -> list[list[SwitchLoad]]:
    """Return the loads of all switches above hosts, by level from the hosts up.

    Hosts without a position in the topology are left out of the switches, not of the totals.
    """
    everything = max(
        math.fsum(load.extra_out for load in loads.values()),
        math.fsum(load.extra_in for load in loads.values()),
    )
    found: list[list[SwitchLoad]] = []
    for level in range(len(topology.levels)):
        sums: dict[Path, _Sums] = {}
        for name, load in sorted(loads.items()):
            switch = topology.switch_above(name, level)
            if switch is not None:
                own = sums.setdefault(switch, _Sums())
                own.sent += load.extra_out
                own.received += load.extra_in
                own.host_count += 1
                if level == 0:
                    own.leaving_children += load.extra_out
        if level > 0:
            _add_children(sums, found[-1])
        found.append(
            [
                _loaded(switch, level, own, everything, topology)
                for switch, own in sorted(sums.items())
            ]
        )
    return found


def _add_children(sums: Mapping[Path, _Sums], below: list[SwitchLoad]) -> None:
    for child in below:
        parent = sums.get(child.switch[:-1]) if child.switch else None
        if parent is not None:
            parent.leaving_children += child.up


def _loaded(
    switch: Path, level: int, sums: _Sums, everything: float, topology: Topology
) -> SwitchLoad:
    speeds = topology.speeds_of(switch, level)
    up = sums.sent * (1 - sums.received / everything) if everything else 0.0
    down = sums.received * (1 - sums.sent / everything) if everything else 0.0
    return SwitchLoad(
        switch,
        level,
        sums.host_count,
        up,
        down,
        sums.leaving_children + down,
        speeds.uplink,
        speeds.capacity,
    )
