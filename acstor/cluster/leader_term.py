"""Writing the decision as the leader, and only as the leader.

A term is acquired by compare-and-swap before anything is decided in it. From then on the leader
writes with the token that it wrote or read last, and a decision of another term, or a conflict,
ends its term. So whoever was paused, or believes in a lock that is lost, cannot change anything.
"""

import dataclasses
import logging
import time
from collections.abc import Callable

from acstor import exception
from acstor.cluster.leader_states import LeaderEvent, LeaderState, next_state
from acstor.cluster.ring.decision import (
    DECISION_REF,
    Decision,
    PublishedDecision,
    following,
    read_decision,
    replace_decision,
)
from acstor.origin.base import RefStore

LOG = logging.getLogger(__name__)


class LeaderTerm:
    """The term of the leader, as one service sees it.

    :param origin: that holds the decision.
    :param leader: name of this service, for people.
    :param patience: seconds for which a fenced service holds the lock before it acquires again.
    :param clock: monotonic seconds.
    :param posix_clock: seconds since the epoch.
    """

    def __init__(
        self,
        refs: RefStore,
        leader: str,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
        posix_clock: Callable[[], float] = time.time,
    ) -> None:
        self._refs = refs
        self._leader = leader
        self._patience = patience
        self._clock = clock
        self._posix_clock = posix_clock
        self._known: PublishedDecision | None = None
        self._term: int | None = None
        self._fenced_at = 0.0
        self.state = LeaderState.STANDBY

    @property
    def is_leading(self) -> bool:
        """True if this service may decide."""
        return self.state is LeaderState.LEADING

    @property
    def decision(self) -> Decision | None:
        """The decision in force, as it was read or written last."""
        return self._known.decision if self._known else None

    def refresh(self, *, is_elected: bool) -> Decision | None:
        """Read the decision in force; acquire a term where that is due.

        :param is_elected: whether this service holds the lock.
        :returns: the decision in force.
        :raises UnavailableError: when the origin cannot be reached.
        :raises UnsupportedError: when a newer release wrote the decision; it is left alone.
        """
        if not is_elected:
            self._move(LeaderEvent.LOST)
        try:
            self._known = read_decision(self._refs)
        except exception.CorruptError:
            if not is_elected:
                raise
            self._repair()
        if self.is_leading and not self._is_ours(self._known):
            self._fence()
        if is_elected and not self.is_leading:
            if self.state is LeaderState.DEPOSED and not self._is_patience_over():
                return self.decision
            self._move(LeaderEvent.ELECTED)
            self._acquire()
        return self.decision

    def publish(self, decision: Decision) -> Decision:
        """Put a decision in force, under this term and with this leader's name.

        :returns: the decision as it was written.
        :raises FencedError: when this service leads no more; nothing is changed.
        :raises UnavailableError: when the origin cannot be reached; the next look tells whether
            the decision is in force.
        """
        if not self.is_leading or self._term is None:
            raise exception.FencedError("this policy service does not lead")
        known = self._known
        wanted = dataclasses.replace(
            decision,
            term=self._term,
            leader=self._leader,
            sequence=following(known.decision.sequence if known else 0),
        )
        try:
            self._known = replace_decision(self._refs, known, wanted)
        except exception.ConflictError as error:
            found = read_decision(self._refs)
            if found is not None and found.decision == wanted:
                self._known = found  # a repeated write met what the first one wrote
                return wanted
            self._known = found
            self._fence()
            raise exception.FencedError("another policy service leads") from error
        return wanted

    def stop(self) -> None:
        """Decide nothing any more."""
        if self.state is not LeaderState.STOPPED:
            self._move(LeaderEvent.STOP)

    def _acquire(self) -> None:
        known = self._known
        former = known.decision if known else None
        term = following(former.term if former else 0)
        now_ms = max(0, int(self._posix_clock() * 1000))
        if former is None:
            claimed = Decision(term, 1, self._leader, now_ms, "none", reason="first term")
        else:
            claimed = dataclasses.replace(
                former,
                term=term,
                sequence=following(former.sequence),
                leader=self._leader,
                decided_at_ms=now_ms,
                similarity=(),
                reason="new leader",
            )
        try:
            self._known = replace_decision(self._refs, known, claimed)
        except exception.ConflictError:
            found = read_decision(self._refs)
            self._known = found
            if found is None or found.decision != claimed:
                self._move(LeaderEvent.CONFLICT)
                self._fenced_at = self._clock()
                LOG.info("another policy service was quicker to claim the term")
                return
        self._term = term
        self._move(LeaderEvent.CLAIMED)
        LOG.info("this policy service leads, term %d", term)

    def _repair(self) -> None:
        """Replace a malformed decision, of which nothing can be kept, by none."""
        ref = self._refs.get_ref(DECISION_REF)
        self._known = None
        if ref is None:
            return
        LOG.error("the decision in force is malformed: it is replaced, all weights are equal")
        fresh = Decision(0, 0, self._leader, 0, "none", reason="the one before was malformed")
        token = self._refs.swap_ref(DECISION_REF, ref.token, fresh.encode())
        if token is not None:
            self._known = PublishedDecision(fresh, token)

    def _is_ours(self, known: PublishedDecision | None) -> bool:
        return (
            known is not None
            and known.decision.term == self._term
            and known.decision.leader == self._leader
        )

    def _fence(self) -> None:
        decision = self.decision
        LOG.warning(
            "deposed: the decision in force is that of %s, term %s",
            decision.leader if decision else "nobody",
            decision.term if decision else "none",
        )
        self._move(LeaderEvent.OVERTAKEN)
        self._term = None
        self._fenced_at = self._clock()

    def _is_patience_over(self) -> bool:
        return self._clock() - self._fenced_at >= self._patience

    def _move(self, event: LeaderEvent) -> None:
        former, self.state = self.state, next_state(self.state, event)
        if former is LeaderState.LEADING and self.state is LeaderState.STANDBY:
            LOG.info("this policy service stands by")
