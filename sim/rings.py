"""Rings for the simulation: the hosts with equal weights, and who may be asked."""

from acstor.native import Ring, RingHost
from sim._simcore import Simulation
from sim.exception import ScenarioError
from sim.topology import Topology, host_name

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


def install(simulation: Simulation, topology: Topology, ring: Ring, threshold: int | None) -> int:
    """Make a ring with a threshold known to a simulation, and return its number.

    :raises ScenarioError: for a threshold that admits no peer: that is a local cache.
    """
    if threshold is not None and threshold < THRESHOLD_MIN:
        raise ScenarioError(f"threshold {threshold} admits no peer; the least is {THRESHOLD_MIN}")
    names = [host_name(host) for host in range(topology.spec.host_count)]
    return simulation.install_ring(ring.encode(), threshold, names)
