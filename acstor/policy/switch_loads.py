"""Traffic of switches, estimated from what their hosts send and receive.

Hosts tell how much they send, not to whom. The destinations are taken to be the other hosts, in
proportion to what each of them receives (a gravity model without traffic to oneself): of what a
host sends, the part that others under a switch receive stays below it, and the rest goes up. What
all hosts together send more than they receive, or receive more than they send, passes the root.

An uplink carries no more than its speed: where the model has more, the traffic cannot go where
the model has it go, and must stay below. So nothing is counted above a full uplink that did not
get through it.

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
    """Traffic of one switch; bytes per second."""

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
        """Part of the uplink that is used in its busier direction; None: it has none."""
        return None if self.uplink is None else max(self.up, self.down) / self.uplink

    @property
    def is_judged_whole(self) -> bool:
        """True if :attr:`share` is of all that it forwards, and not of its uplink."""
        return self.capacity is not None

    @property
    def share(self) -> float | None:
        """Part of its bandwidth that is used; of its uplink's where no capacity is declared."""
        return self.uplink_share if self.capacity is None else self.forwarded / self.capacity


@dataclass
class _Host:
    """Traffic of a host on its way up, and the traffic that comes down to it."""

    sent: float
    received: float
    reaches_up: float = 1.0
    """Part of what it sends that the uplinks so far let through."""
    reaches_down: float = 1.0


def estimate(loads: Mapping[str, HostLoad], topology: Topology) -> list[list[SwitchLoad]]:
    """Return the loads of all switches above hosts, by level from the hosts up.

    Hosts without a position in the topology are left out of the switches, not of the totals.
    """
    everything = max(
        math.fsum(load.extra_out for load in loads.values()),
        math.fsum(load.extra_in for load in loads.values()),
    )
    hosts = {name: _Host(load.extra_out, load.extra_in) for name, load in sorted(loads.items())}
    found: list[list[SwitchLoad]] = []
    for level in range(len(topology.levels)):
        below: dict[Path, list[_Host]] = {}
        for name, host in hosts.items():
            switch = topology.switch_above(name, level)
            if switch is not None:
                below.setdefault(switch, []).append(host)
        children = found[-1] if found else []
        found.append(
            [
                _loaded(switch, level, group, children, everything, topology)
                for switch, group in sorted(below.items())
            ]
        )
    return found


def _loaded(
    switch: Path,
    level: int,
    hosts: list[_Host],
    children: list[SwitchLoad],
    everything: float,
    topology: Topology,
) -> SwitchLoad:
    speeds = topology.speeds_of(switch, level)
    sent = math.fsum(host.sent for host in hosts)
    received = math.fsum(host.received for host in hosts)
    up = math.fsum(
        host.sent * host.reaches_up * _elsewhere(received, host.received, everything)
        for host in hosts
    )
    down = math.fsum(
        host.received * host.reaches_down * _elsewhere(sent, host.sent, everything)
        for host in hosts
    )
    if level == 0:
        entering = sent
    else:
        entering = math.fsum(child.up for child in children if child.switch[:-1] == switch)
    if speeds.uplink is not None:
        let_up, let_down = min(1.0, _part(speeds.uplink, up)), min(1.0, _part(speeds.uplink, down))
        for host in hosts:
            host.reaches_up *= let_up
            host.reaches_down *= let_down
        up, down = up * let_up, down * let_down
    return SwitchLoad(
        switch, level, len(hosts), up, down, entering + down, speeds.uplink, speeds.capacity
    )


def _elsewhere(here: float, own: float, everything: float) -> float:
    """Return what part of a host's traffic has its other end not under the same switch.

    :param here: what all under the switch take part in, of ``everything``; the host, in ``own``.
    """
    others = everything - own
    # Alone in the world: its traffic comes from or goes to what is none of the hosts.
    return max(0.0, everything - here) / others if others > 0 else 1.0


def _part(whole: float, of: float) -> float:
    return whole / of if of > 0 else 1.0
