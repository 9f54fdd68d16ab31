"""Trees of switches: their links and the links between two hosts.

Links are directed and full duplex: each host and each switch has a link up and one down. The
root's capacity, where it is bounded, is one more link that everything through the root crosses.
The origin has a link each way, to the root; or it has a network of its own, to which each host has
a link each way as well (ACStor, section 5.8: "the bandwidth from any host to it is 1 Gbps").
"""

import math
from dataclasses import dataclass

from sim._simcore import Tree
from sim.exception import ScenarioError

GIGABIT = 1e9 / 8
"""Bytes per second."""
DEPTH_MAX = 4
HOSTS_MAX = 65_535


@dataclass(frozen=True)
class TreeSpec:
    """A tree of switches with the hosts as its leaves.

    The paper's is ``fanout=(4, 8, 8)``: a root, four aggregate switches, eight edge switches below
    each, eight hosts below each of these. ``fanout=(32,)`` is a star: one switch.
    """

    fanout: tuple[int, ...] = (32,)
    """From the root down."""
    rates: tuple[float, ...] = (GIGABIT,)
    """Of the links below the root first, bytes per second each way; the last is the hosts'."""
    root_rate: float = math.inf
    """Traffic that the root forwards, bytes per second."""
    origin_rate: float = GIGABIT
    """Of the origin's link, bytes per second each way."""
    storage_rate: float | None = None
    """Of each host's link to a network of the origin's own; None: the origin is at the root."""
    processor_rate: float | None = None
    """Bytes per second of chunks that a host's processors send and receive; None: no bound."""

    def __post_init__(self) -> None:
        """Refuse what is no tree.

        :raises ScenarioError: names what is wrong.
        """
        if not 1 <= len(self.fanout) <= DEPTH_MAX or len(self.rates) != len(self.fanout):
            raise ScenarioError(f"fanout {self.fanout} and rates {self.rates} do not match")
        if any(count < 1 for count in self.fanout) or self.host_count > HOSTS_MAX:
            raise ScenarioError(f"fanout {self.fanout} is not a tree of 1 to {HOSTS_MAX} hosts")
        rates = (*self.rates, self.root_rate, self.origin_rate, self.storage_rate or 1.0,
                 self.processor_rate or 1.0)  # fmt: skip
        if not all(rate > 0 for rate in rates):
            raise ScenarioError("a link has no rate above 0")

    @property
    def host_count(self) -> int:
        """Return the number of hosts."""
        return math.prod(self.fanout)

    @property
    def host_rate(self) -> float:
        """Return the rate of a host's link, bytes per second each way."""
        return self.rates[-1]


@dataclass(frozen=True)
class Topology:
    """A tree with its links numbered."""

    spec: TreeSpec
    tree: Tree

    @property
    def depth(self) -> int:
        """Return how many switches are on the way from a host to beyond the root."""
        return len(self.spec.fanout)

    def position(self, host: int) -> str:
        """Return a host's topology as the ring has it, ``s0/s3``; empty in a star."""
        segments = []
        for count in reversed(self.spec.fanout):
            segments.append(f"s{host % count}")
            host //= count
        return "/".join(reversed(segments[1:]))


def host_name(host: int) -> str:
    """Return the name of a host in the ring; names sort as numbers do."""
    return f"h{host:05d}"


def build(spec: TreeSpec) -> Topology:
    """Return the topology of a tree."""
    root_rate = spec.root_rate if math.isfinite(spec.root_rate) else None
    tree = Tree(
        spec.fanout, spec.rates, spec.origin_rate, root_rate, spec.storage_rate,
        spec.processor_rate,
    )  # fmt: skip
    return Topology(spec, tree)
