"""Publishing a new ring when the hosts or the decision in force have changed.

Whoever holds the tooz lock does it, in a term that it claims in the origin first
(:mod:`acstor.cluster.ring.publisher_term`). The ring is read before the members, and replaced by
compare-and-swap on that very reading: a publisher that was stopped anywhere in between, or believes
in a lock that is lost, changes nothing.
"""

import logging
import random
import time
from collections.abc import Callable

from acstor import exception
from acstor.cluster.membership import View
from acstor.cluster.ring.building import as_before, next_ring, staying, wanted_hosts, weighted
from acstor.cluster.ring.decision import Decision
from acstor.cluster.ring.published_ring import PublishedRing, RingReference
from acstor.cluster.ring.publisher_term import TermHolder
from acstor.cluster.ring.shrink_bound import ShrinkBound
from acstor.native import DataPlaneError, Ring, RingHost
from acstor.origin.base import OvertakenError

LOG = logging.getLogger(__name__)


def _described(hosts: list[RingHost]) -> list[tuple[str, str, int, str]]:
    return sorted((host.name, host.address, host.weight, host.topology) for host in hosts)


class RingPublisher:
    """Turns a change of the members, once it has settled, or of the decision into a generation.

    :param host: name of this host; a view without it is not gone by.
    :param term_holder: the term in which this host publishes.
    :param bound: how many hosts may leave the ring at once.
    :param weights: ``equal`` or ``capacity``: shares of hosts between which nothing is decided.
    :param settle_delay: seconds for which the members must be unchanged.
    :param vnode_count: of a deployment's first ring, and of the next where it was changed.
    :param is_elected: whether this host holds the lock at this moment, by its own clock.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        reference: RingReference,
        *,
        host: str,
        term_holder: TermHolder,
        bound: ShrinkBound,
        weights: str,
        vnode_count: int,
        settle_delay: float,
        is_elected: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reference = reference
        self._host = host
        self._term_holder = term_holder
        self._bound = bound
        self._weights = weights
        self._vnode_count = vnode_count
        self._settle_delay = settle_delay
        self._is_elected = is_elected
        self._clock = clock
        self._members: list[tuple[str, str, int, str]] = []
        self._members_since = 0.0
        self.held: frozenset[str] = frozenset()
        """Hosts that are no members and stay in the ring for now, as of the last pass."""

    @property
    def term(self) -> int | None:
        """The term in which this host publishes; None: it has none."""
        return self._term_holder.term

    @property
    def is_blind(self) -> bool:
        """True if none of several other hosts of the ring was a member at the last pass."""
        return self._bound.is_blind and bool(self.held)

    def stand_by(self) -> None:
        """Be no publisher any more, until the next :meth:`reconcile`."""
        self._term_holder.give_up()
        self.held = frozenset()

    def reconcile(
        self,
        membership: Callable[[], View],
        decision: Decision | None = None,
        *,
        is_decision_known: bool = True,
    ) -> Ring | None:
        """Publish a ring for the members where that is due; return it.

        :param membership: returns what is known of the group at this moment.
        :param decision: in force; None: there is none.
        :param is_decision_known: False: it cannot be read; weights stay as the ring has them.
        :raises FencedError: when another host publishes by now, or the lock was lost meanwhile.
        :raises UnavailableError: when the origin cannot be reached.
        :raises CorruptError: when the published ring or its term is not readable.
        :raises InvalidError: when no ring can be built of the members.
        """
        if self._term_holder.term is None and not self._is_member(membership()):
            return None
        try:
            self._term_holder.claim(self._reference)
        except exception.ConflictError:
            LOG.info("another host claims the ring or publishes one at this moment")
            return None
        # Not after the members: who was stopped here has an old ring, and cannot replace it.
        published = self._reference.current()
        view = membership()
        base = wanted_hosts(view.members, self._weights)
        if not base or not self._is_member(view):
            return None
        described, now = _described(base), self._clock()
        if described != self._members:
            self._members, self._members_since = described, now
        since = max(view.joined_at, self._term_holder.since)
        hosts = self._hosts_due(base, published, decision, is_decision_known, since)
        if hosts is None or now - self._members_since < self._settle_delay:
            return None
        return self._publish(hosts, published, decision)

    def _is_member(self, view: View) -> bool:
        return self._host in view.members

    def seconds_until_due(self) -> float:
        """Return the seconds until the present members have settled."""
        return max(0.0, self._members_since + self._settle_delay - self._clock())

    def _hosts_due(
        self,
        base: list[RingHost],
        published: PublishedRing | None,
        decision: Decision | None,
        is_decision_known: bool,
        present_since: float,
    ) -> list[RingHost] | None:
        """Return the hosts of the ring to publish, None when the published one is as wanted."""
        ring = published.ring if published else None
        if is_decision_known or ring is None:
            hosts = weighted(base, decision)
        else:
            hosts = as_before(base, ring)
        self.held = frozenset()
        if ring is not None:
            names = {host.name for host in base}
            self.held = self._bound.staying(ring, names, present_since=present_since)
            hosts += staying(self.held, hosts, ring)
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
        ring = self._built(hosts, previous, decision)
        self._term_holder.check()
        if not self._is_elected():
            raise exception.FencedError("the lock of the ring's publisher was lost meanwhile")
        names = {host.name for host in hosts}
        owners = previous.hosts if previous else []
        left = [host.name for host in owners if host.weight and host.name not in names]
        # First: a swap without an answer may have had its effect. A process that is killed here is
        # followed by one whose term is new, which lets an interval pass.
        self._bound.note(left)
        try:
            self._reference.replace(published, ring)
        except exception.ConflictError as error:
            if not isinstance(error, OvertakenError):
                self._bound.take_back()
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

    def _built(
        self, hosts: list[RingHost], previous: Ring | None, decision: Decision | None
    ) -> Ring:
        seed = previous.seed if previous else random.getrandbits(63)
        vnode_count = max(self._vnode_count, previous.vnode_count if previous else 0)
        try:
            return next_ring(hosts, previous, decision, vnode_count=vnode_count, seed=seed)
        except DataPlaneError as error:
            raise exception.InvalidError(
                f"no ring can be built of {len(hosts)} hosts: {error}",
                hint="check [DEFAULT] topology and [agent] ring_vnodes on all hosts",
            ) from error
