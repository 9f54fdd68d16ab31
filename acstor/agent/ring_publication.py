"""Publishing a new ring when the hosts have changed.

Whoever holds the tooz lock does it. Losing the lock without noticing harms nothing: the ref is
changed by compare-and-swap, so that of two publishers one is refused and looks again.
"""

import logging
import random
import time
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.agent.member import WEIGHT_MAX, Member
from acstor.agent.published_ring import PublishedRing, RingReference
from acstor.dataplane import DataPlaneError, Ring, RingHost, build_ring

LOG = logging.getLogger(__name__)

EQUAL_WEIGHT = 100
_WEIGHT_UNIT = 1 << 20
"""Bytes per unit of weight where shares follow the capacities."""


def wanted_hosts(members: Mapping[str, Member], weights: str) -> list[RingHost]:
    """Return the hosts of the next ring, ordered by name.

    A draining host stays in the ring with weight 0, so that it can still be asked for what it
    holds, as long as another one can take its share.

    :param weights: ``equal`` or ``capacity``.
    """
    hosts = []
    for name, member in sorted(members.items()):
        weight = EQUAL_WEIGHT
        if weights == "capacity":
            weight = max(1, min(WEIGHT_MAX, member.capacity_bytes // _WEIGHT_UNIT))
        if member.is_draining:
            weight = 0
        hosts.append(RingHost(name, member.peer_address, weight, member.topology))
    return hosts if any(host.weight for host in hosts) else []


def _described(hosts: list[RingHost]) -> list[tuple[str, str, int, str]]:
    return sorted((host.name, host.address, host.weight, host.topology) for host in hosts)


class RingPublisher:
    """Turns a change of the members into a new generation, once it has settled.

    :param settle_delay: seconds for which the wanted hosts must be unchanged.
    :param vnode_count: of a deployment's first ring, and of the next where it was changed.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        reference: RingReference,
        *,
        weights: str,
        vnode_count: int,
        settle_delay: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reference = reference
        self._weights = weights
        self._vnode_count = vnode_count
        self._settle_delay = settle_delay
        self._clock = clock
        self._wanted: list[tuple[str, str, int, str]] = []
        self._wanted_since = 0.0

    def look(self, members: Mapping[str, Member]) -> Ring | None:
        """Publish a ring for these members where that is due; return it.

        :raises UnavailableError: when the origin cannot be reached.
        :raises CorruptError: when the published ring is not readable.
        :raises InvalidError: when no ring can be built of the members.
        """
        hosts = wanted_hosts(members, self._weights)
        if not hosts:
            return None
        described, now = _described(hosts), self._clock()
        if described != self._wanted:
            self._wanted, self._wanted_since = described, now
        published = self._reference.look()
        if published is not None and self._is_as_wanted(published.ring):
            return None
        if now - self._wanted_since < self._settle_delay:
            return None
        published = self._reference.read()
        if published is not None and self._is_as_wanted(published.ring):
            return None
        return self._publish(hosts, published)

    def seconds_until_due(self) -> float:
        """Return the seconds until the present members have settled."""
        return max(0.0, self._wanted_since + self._settle_delay - self._clock())

    def _is_as_wanted(self, ring: Ring) -> bool:
        # More v-nodes are no difference: their number never shrinks, and hosts that are
        # configured differently must agree in the end.
        return _described(ring.hosts) == self._wanted and ring.vnode_count >= self._vnode_count

    def _publish(self, hosts: list[RingHost], published: PublishedRing | None) -> Ring | None:
        previous = published.ring if published else None
        seed = previous.seed if previous else random.getrandbits(63)
        vnode_count = max(self._vnode_count, previous.vnode_count if previous else 0)
        try:
            ring = build_ring(hosts, vnode_count, seed, previous)
        except DataPlaneError as error:
            raise exception.InvalidError(
                f"no ring can be built of {len(hosts)} hosts: {error}",
                hint="check [DEFAULT] topology and [agent] ring_vnodes on all hosts",
            ) from error
        try:
            self._reference.replace(published, ring)
        except exception.ConflictError:
            LOG.info("another host has published a ring meanwhile")
            return None
        moved = ring.moved_share(previous) if previous else 1.0
        LOG.info(
            "published ring generation %d: %d hosts, %.1f %% moved",
            ring.generation,
            len(hosts),
            100 * moved,
        )
        return ring
