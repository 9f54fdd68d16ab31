"""Trees of switches: their links and the links between two hosts.

Links are directed and full duplex: each host and each switch has a link up and one down. The
root's capacity, where it is bounded, is one more link that everything through the root crosses.
The origin has a link each way, to the root; or it has a network of its own, to which each host has
a link each way as well (ACStor, section 5.8: "the bandwidth from any host to it is 1 Gbps").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.compiled import compiled
from sim.exception import ScenarioError

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

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
    """What the root forwards, bytes per second."""
    origin_rate: float = GIGABIT
    """Of the origin's link, bytes per second each way."""
    storage_rate: float | None = None
    """Of each host's link to a network of the origin's own; None: the origin is at the root."""

    def __post_init__(self) -> None:
        """Refuse what is no tree.

        :raises ScenarioError: names what is wrong.
        """
        if not 1 <= len(self.fanout) <= DEPTH_MAX or len(self.rates) != len(self.fanout):
            raise ScenarioError(f"fanout {self.fanout} and rates {self.rates} do not match")
        if any(count < 1 for count in self.fanout) or self.host_count > HOSTS_MAX:
            raise ScenarioError(f"fanout {self.fanout} is not a tree of 1 to {HOSTS_MAX} hosts")
        rates = (*self.rates, self.root_rate, self.origin_rate, self.storage_rate or 1.0)
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
    """The links of a tree as arrays."""

    spec: TreeSpec
    capacity: Floats
    """By link, bytes per second."""
    switch: Ints
    """(hosts, depth): the switch above a host; column 0 is the edge switch, the last the root."""
    up: Ints
    """(hosts, depth): links from a host up to the root."""
    down: Ints
    """(hosts, depth): links from the root down to a host, the host's own in column 0."""
    special: Ints
    """Root (or -1), origin up, origin down, first storage link up and down (or -1)."""

    @property
    def depth(self) -> int:
        """Return how many switches are on the way from a host to beyond the root."""
        return len(self.spec.fanout)

    @property
    def path_length_max(self) -> int:
        """Return how many links a path has at most."""
        return 2 * self.depth + 2

    def position(self, host: int) -> str:
        """Return a host's topology as the ring has it, ``s0/s3``; empty in a star."""
        segments = []
        for count in reversed(self.spec.fanout):
            segments.append(f"s{host % count}")
            host //= count
        return "/".join(reversed(segments[1:]))

    def path(self, source: int, target: int) -> list[int]:
        """Return the links from one host to another; the origin is host ``host_count``."""
        buffer = np.zeros(self.path_length_max, np.int32)
        count = write_path(self.switch, self.up, self.down, self.special, source, target, buffer)
        return [int(link) for link in buffer[:count]]


def host_name(host: int) -> str:
    """Return the name of a host in the ring; names sort as numbers do."""
    return f"h{host:05d}"


def build(spec: TreeSpec) -> Topology:
    """Return the topology of a tree, its links numbered."""
    depth, hosts = len(spec.fanout), spec.host_count
    capacity: list[float] = []

    def add(rate: float, count: int) -> int:
        first = len(capacity)
        capacity.extend([rate] * count)
        return first

    numbers = np.arange(hosts)
    switch, up, down = (np.zeros((hosts, depth), np.int32) for _ in range(3))
    below = 1  # hosts below one end of the links of this level
    for level, rate in enumerate(reversed(spec.rates)):
        ends = hosts // below
        first_up, first_down = add(rate, ends), add(rate, ends)
        up[:, level] = first_up + numbers // below
        down[:, level] = first_down + numbers // below
        below *= spec.fanout[depth - 1 - level]
        switch[:, level] = numbers // below
    root = add(spec.root_rate, 1) if math.isfinite(spec.root_rate) else -1
    origin_up, origin_down = add(spec.origin_rate, 1), add(spec.origin_rate, 1)
    storage_up = storage_down = -1
    if spec.storage_rate is not None:
        storage_up, storage_down = add(spec.storage_rate, hosts), add(spec.storage_rate, hosts)
    special = np.array([root, origin_up, origin_down, storage_up, storage_down], np.int32)
    return Topology(spec, np.array(capacity), switch, up, down, special)


@compiled
def _write_origin_path(
    up: Ints, down: Ints, special: Ints, source: int, target: int, path: Ints
) -> int:
    hosts, depth = up.shape
    count = 0
    if source == hosts:
        path[count] = special[1]
        count += 1
    if special[3] >= 0:
        path[count] = special[4] + target if source == hosts else special[3] + source
        count += 1
    else:
        for level in range(depth):
            path[count] = down[target, depth - 1 - level] if source == hosts else up[source, level]
            count += 1
    if target == hosts:
        path[count] = special[2]
        count += 1
    return count


@compiled
def write_path(
    switch: Ints, up: Ints, down: Ints, special: Ints, source: int, target: int, path: Ints
) -> int:
    """Write the links from ``source`` to ``target`` to ``path`` and return how many they are.

    The arrays are those of :class:`Topology`; the origin is the number after the last host.
    """
    hosts, depth = switch.shape
    if source == target:
        return 0
    if hosts in (source, target):
        return _write_origin_path(up, down, special, source, target, path)
    meet = 0
    while switch[source, meet] != switch[target, meet]:
        meet += 1
    count = 0
    for level in range(meet + 1):
        path[count] = up[source, level]
        count += 1
    if meet == depth - 1 and special[0] >= 0:
        path[count] = special[0]
        count += 1
    for level in range(meet, -1, -1):
        path[count] = down[target, level]
        count += 1
    return count


def hosts_below(spec: TreeSpec, level: int) -> Sequence[range]:
    """Return the hosts below each switch; level 0 are the edge switches."""
    size = math.prod(spec.fanout[len(spec.fanout) - 1 - level :])
    return [range(first, first + size) for first in range(0, spec.host_count, size)]
