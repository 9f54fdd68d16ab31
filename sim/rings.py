"""Rings as the kernel uses them: who is asked for each place, looked up in the real ring.

The lookup is ``Ring.candidates`` of the data plane's own code. It is asked once per place and
group of hosts that see the same line (all hosts without a threshold, the hosts below one switch
with one), and the answers are kept as a table.
"""

import math

import numpy as np

from acstor.native import Ring, RingHost
from sim.exception import CapacityError, ScenarioError
from sim.programs import Programs
from sim.topology import Topology, host_name
from sim.world import LINE, SLOTS, World

THRESHOLD_MIN = 2
"""Hops; at 1 and below every host is alone."""


def ring_hosts(topology: Topology) -> list[RingHost]:
    """Return the hosts with equal weights."""
    return [
        RingHost(
            host_name(host), f"10.{host >> 16}.{host >> 8 & 255}.{host & 255}:7420", 100,
            topology.position(host),
        )
        for host in range(topology.spec.host_count)
    ]  # fmt: skip


def group_count(topology: Topology, thresholds: bool) -> int:
    """Return how many groups of hosts may see different lines."""
    if not thresholds or topology.depth == 1:
        return 1
    return topology.spec.host_count // topology.spec.fanout[-1]


class Rings:
    """Puts rings into the slots of a world."""

    def __init__(self, world: World, topology: Topology, programs: Programs) -> None:
        self._world = world
        self._topology = topology
        self._oids = [int(oid) for oid in programs.oids]
        self._busy: set[int] = set()
        self._numbers = 0
        self._ring_numbers: dict[int, int] = {}

    def install(self, ring: Ring, threshold: int | None, pending: set[int]) -> int:
        """Write a ring's lines and return its slot.

        :param pending: slots that hosts are yet to use.
        :raises CapacityError: when more rings are in use than there are slots.
        :raises ScenarioError: for a threshold that admits no peer: that is a local cache.
        """
        if threshold is not None and threshold < THRESHOLD_MIN:
            raise ScenarioError(
                f"threshold {threshold} admits no peer; the least is {THRESHOLD_MIN}"
            )
        world = self._world
        used = set(np.unique(world.host_slot)) | set(np.unique(world.host_previous)) | pending
        free = [slot for slot in range(SLOTS) if slot not in used]
        if not free:
            raise CapacityError(f"hosts use {SLOTS} different rings at a time")
        slot = free[0]
        groups, representatives = self._groups(threshold)
        world.group[slot] = groups
        world.line[slot] = -1
        for group, representative in enumerate(representatives):
            self._write(slot, group, ring, representative, threshold)
        number = self._ring_numbers.setdefault(ring.generation, len(self._ring_numbers) + 1)
        world.slot_ring[slot] = number
        return slot

    def _groups(self, threshold: int | None) -> tuple[np.ndarray, list[str | None]]:
        hosts, depth = self._topology.spec.host_count, self._topology.depth
        level = depth if threshold is None else max(0, math.ceil((threshold - 3) / 2))
        if level >= depth - 1:
            return np.zeros(hosts, np.int32), [None]
        switches = self._topology.switch[:, level]
        _, first, group = np.unique(switches, return_index=True, return_inverse=True)
        return group.astype(np.int32), [host_name(int(host)) for host in first]

    def _write(
        self, slot: int, group: int, ring: Ring, asking: str | None, threshold: int | None
    ) -> None:
        line = self._world.line[slot, group]
        for place, oid in enumerate(self._oids):
            names, _ = ring.candidates(oid, asking, threshold if asking else None, LINE)
            for index, name in enumerate(names):
                line[place, index] = int(name[1:])
