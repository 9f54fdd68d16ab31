"""Publishing a new ring when the hosts or the decision in force have changed.

Whoever holds the tooz lock does it. Losing the lock without noticing harms nothing: the ref is
changed by compare-and-swap, so that of two publishers one is refused and looks again.
"""

import logging
import random
import time
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.agent.member import Member
from acstor.dataplane import DataPlaneError, Ring, RingHost
from acstor.ring.building import as_before, next_ring, wanted_hosts, weighted
from acstor.ring.decision import Decision
from acstor.ring.published_ring import PublishedRing, RingReference

LOG = logging.getLogger(__name__)


def _described(hosts: list[RingHost]) -> list[tuple[str, str, int, str]]:
    return sorted((host.name, host.address, host.weight, host.topology) for host in hosts)


class RingPublisher:
    """Turns a change of the members, once it has settled, or of the decision into a generation.

    :param weights: ``equal`` or ``capacity``: shares of hosts between which nothing is decided.
    :param settle_delay: seconds for which the members must be unchanged.
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
        self._members: list[tuple[str, str, int, str]] = []
        self._members_since = 0.0

    def look(
        self,
        members: Mapping[str, Member],
        decision: Decision | None = None,
        *,
        is_decision_known: bool = True,
    ) -> Ring | None:
        """Publish a ring for these members where that is due; return it.

        :param decision: in force; None: there is none.
        :param is_decision_known: False: it cannot be read; weights stay as the ring has them.
        :raises UnavailableError: when the origin cannot be reached.
        :raises CorruptError: when the published ring is not readable.
        :raises InvalidError: when no ring can be built of the members.
        """
        base = wanted_hosts(members, self._weights)
        if not base:
            return None
        described, now = _described(base), self._clock()
        if described != self._members:
            self._members, self._members_since = described, now
        if self._hosts_due(base, self._reference.look(), decision, is_decision_known) is None:
            return None
        if now - self._members_since < self._settle_delay:
            return None
        published = self._reference.read()
        hosts = self._hosts_due(base, published, decision, is_decision_known)
        return None if hosts is None else self._publish(hosts, published, decision)

    def seconds_until_due(self) -> float:
        """Return the seconds until the present members have settled."""
        return max(0.0, self._members_since + self._settle_delay - self._clock())

    def _hosts_due(
        self,
        base: list[RingHost],
        published: PublishedRing | None,
        decision: Decision | None,
        is_decision_known: bool,
    ) -> list[RingHost] | None:
        """Return the hosts of the ring to publish, None when the published one is as wanted."""
        ring = published.ring if published else None
        if is_decision_known or ring is None:
            hosts = weighted(base, decision)
        else:
            hosts = as_before(base, ring)
        # More v-nodes are no difference: their number never shrinks, and hosts that are
        # configured differently must agree in the end.
        is_as_wanted = (
            ring is not None
            and _described(ring.hosts) == _described(hosts)
            and ring.vnode_count >= self._vnode_count
        )
        return None if is_as_wanted else hosts

    def _publish(
        self, hosts: list[RingHost], published: PublishedRing | None, decision: Decision | None
    ) -> Ring | None:
        previous = published.ring if published else None
        seed = previous.seed if previous else random.getrandbits(63)
        vnode_count = max(self._vnode_count, previous.vnode_count if previous else 0)
        try:
            ring = next_ring(hosts, previous, decision, vnode_count=vnode_count, seed=seed)
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
