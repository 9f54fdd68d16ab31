"""Construction of the next ring from the members and the decision in force."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from acstor.cluster.ring.decision import MEAN_WEIGHT, WEIGHT_MAX, Decision
from acstor.native import Ring, RingHost, build_ring

EQUAL_WEIGHT = 100
"""Weight of every host where shares are equal and nothing has been decided."""
RING_WEIGHT_MAX = (1 << 32) - 1
"""Largest weight that a ring takes."""
_WEIGHT_UNIT = 1 << 20
"""Bytes per unit of weight where shares follow the capacities."""


class RingMember(Protocol):
    """Properties of a member of the deployment that a ring is built from."""

    @property
    def peer_address(self) -> str:
        """``ip:port`` of its peer server."""

    @property
    def capacity_bytes(self) -> int:
        """Capacity of its chunk store."""

    @property
    def topology(self) -> str:
        """Place in the network topology; empty: unknown."""

    @property
    def is_draining(self) -> bool:
        """True if it is to own nothing."""


def wanted_hosts(members: Mapping[str, RingMember], weights: str) -> list[RingHost]:
    """Return the hosts of the next ring before any decision, ordered by name.

    A draining host stays in the ring with weight 0, so that it can still be asked for what it
    holds, as long as another one can take its share.

    :param weights: ``equal`` or ``capacity``.
    """
    hosts = []
    for name, member in sorted(members.items()):
        weight = EQUAL_WEIGHT
        if weights == "capacity":
            weight = max(1, min(RING_WEIGHT_MAX, member.capacity_bytes // _WEIGHT_UNIT))
        if member.is_draining:
            weight = 0
        hosts.append(RingHost(name, member.peer_address, weight, member.topology))
    return hosts if any(host.weight for host in hosts) else []


def weighted(hosts: Iterable[RingHost], decision: Decision | None) -> list[RingHost]:
    """Return the hosts with their weights changed as a decision says.

    Each weight is multiplied by the decision's, in units of an ordinary host's; 0 stays 0. Where
    that leaves no host with a weight, the decision is not followed: somebody has to own the circle.
    """
    listed = list(hosts)
    if decision is None or not decision.weights:
        return listed
    # One scale for all hosts: keeps the decision's resolution, and the largest product in range.
    largest = max((host.weight for host in listed), default=0) or 1
    scale = min(MEAN_WEIGHT / EQUAL_WEIGHT, RING_WEIGHT_MAX * MEAN_WEIGHT / WEIGHT_MAX / largest)
    changed = [
        RingHost(host.name, host.address, _scaled(host, decision, scale), host.topology)
        for host in listed
    ]
    return changed if any(host.weight for host in changed) else listed


def as_before(hosts: Iterable[RingHost], ring: Ring) -> list[RingHost]:
    """Return the hosts with the weights that they have in ``ring``, new ones with the mean.

    For an agent that cannot read the decision: whoever can goes on from the same weights.
    """
    former = {host.name: host.weight for host in ring.hosts if host.weight}
    mean = max(1, round(sum(former.values()) / len(former))) if former else EQUAL_WEIGHT
    return [
        RingHost(
            host.name,
            host.address,
            former.get(host.name, mean) if host.weight else 0,
            host.topology,
        )
        for host in hosts
    ]


def staying(names: Collection[str], hosts: Iterable[RingHost], ring: Ring) -> list[RingHost]:
    """Return hosts of ``ring`` that stay in it beside ``hosts``, which were weighted anew.

    Where the others' weights have another scale by now, as with the first decision, theirs get it
    too. Without such a change they have the very weights that they had, so that asking again
    changes nothing.
    """
    listed = list(hosts)
    now = {host.name: host.weight for host in listed if host.weight}
    former = {host.name: host.weight for host in ring.hosts if host.weight}
    common = now.keys() & former.keys()
    scale = (
        sum(now[name] for name in common) / sum(former[name] for name in common) if common else 1
    )
    depths = {_depth(host.topology) for host in listed if host.topology}
    return [
        RingHost(
            host.name,
            host.address,
            max(1, min(RING_WEIGHT_MAX, round(host.weight * scale))),
            # A ring has one depth; those who are there have another one by now.
            host.topology if not depths or _depth(host.topology) in depths else "",
        )
        for host in ring.hosts
        if host.name in names
    ]


def next_ring(
    hosts: Iterable[RingHost],
    previous: Ring | None,
    decision: Decision | None,
    *,
    vnode_count: int | None = None,
    seed: int = 0,
) -> Ring:
    """Build the ring after ``previous`` for hosts that :func:`weighted` returned.

    :param decision: its similarities say to whom v-nodes go first.
    :param vnode_count: and ``seed``: as in :func:`acstor.native.build_ring`, which see for the
        errors too.
    """
    listed = list(hosts)
    names = {host.name for host in listed}
    known = names | {host.name for host in previous.hosts} if previous else names
    pairs = decision.similarity_map() if decision else {}
    # Hosts of the decision may have left since.
    similarity = {pair: share for pair, share in pairs.items() if known.issuperset(pair)}
    return build_ring(listed, vnode_count, seed, previous, similarity=similarity or None)


def _scaled(host: RingHost, decision: Decision, scale: float) -> int:
    if not host.weight:
        return 0
    weight = decision.weight_of(host.name)
    if not weight:
        return 0
    return max(1, min(RING_WEIGHT_MAX, round(host.weight * scale * weight / MEAN_WEIGHT)))


def _depth(topology: str) -> int:
    return len(topology.split("/")) if topology else 0
