"""Deployment as the API reads and changes it: members, ring, decision, pins, desired states."""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from acstor import exception
from acstor.agent.reconcilers.desired_host import (
    DesiredState,
    read_desired_state,
    write_desired_state,
)
from acstor.api.cluster.host_watch import HeardState, HostWatch
from acstor.cluster.member import Member
from acstor.cluster.ring.decision import MEAN_WEIGHT, Decision, read_decision
from acstor.cluster.ring.published_ring import read_ring
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore
from acstor.origin.replicated.member_records import MembersRecord, read_members
from acstor.origin.replicated.members_status import MembersStatus, read_status
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.states import MemberEvent, MemberState
from acstor.policy.pins import PINS_REF, Pins, read_pins


@dataclasses.dataclass(frozen=True, slots=True)
class RingHost:
    """A host in the ring."""

    name: str
    vnodes: int


@dataclasses.dataclass(frozen=True, slots=True)
class RingView:
    """The ring in force."""

    generation: int
    hosts: tuple[RingHost, ...]

    @property
    def shares(self) -> dict[str, float]:
        """Share of each host, 0 to 1."""
        total = sum(host.vnodes for host in self.hosts)
        return {host.name: host.vnodes / total if total else 0.0 for host in self.hosts}


@dataclasses.dataclass(frozen=True, slots=True)
class OriginMembers:
    """Members of the origin."""

    record: MembersRecord
    status: MembersStatus | None
    """As the registrar that leads saw them last; None: none has looked yet."""


class Deployment(Protocol):
    """Deployment; every method may raise :class:`~acstor.exception.UnavailableError`."""

    @property
    def max_age(self) -> float:
        """Seconds for which what one viewer was shown is shown to others."""

    def members(self) -> Mapping[str, Member]:
        """Return the hosts that are alive, by name; as they were lately."""

    def ring(self) -> RingView | None:
        """Return the ring; None before the first."""

    def decision(self) -> Decision | None:
        """Return the decision in force; None before the first."""

    def pins(self) -> Pins:
        """Return what the operator insists on."""

    def pin(self, host: str, weight: int) -> None:
        """Pin the weight of a host.

        :raises InvalidError: when it is out of range.
        """

    def unpin(self, host: str) -> None:
        """Take a pin back.

        :raises NotFoundError: when the host is not pinned.
        """

    def is_drain_wanted(self, host: str) -> bool:
        """Return whether the operator wants a host to own nothing."""

    def want_drain(self, host: str, *, is_drained: bool) -> None:
        """Say whether a host is to own nothing; its agent follows."""

    def states(self) -> Mapping[str, HeardState]:
        """Return what hosts told lately."""

    def origin_members(self) -> OriginMembers | None:
        """Return the members of the origin; None where it is one store."""

    def drain_origin_member(self, name: str, *, is_draining: bool) -> None:
        """Have a member of the origin get nothing new, or take that back.

        :raises NotFoundError: when there is no such member.
        :raises ConflictError: when its state does not allow it, or it is the home.
        """


class OriginDeployment:
    """Deployment whose refs are in an origin; see :class:`Deployment`.

    :param open_refs: returns the refs; raises while the origin is away.
    :param read_members: asks the coordination back-end.
    :ivar max_age: seconds for which members are believed: many viewers ask once.
    """

    def __init__(
        self,
        open_refs: Callable[[], RefStore],
        read_members: Callable[[], Mapping[str, Member]],
        watch: HostWatch,
        max_age: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nobody yet."""
        self._open_refs = open_refs
        self._read_members = read_members
        self._watch = watch
        self.max_age = max_age
        self._clock = clock
        self._lock = threading.Lock()  # of what follows
        self._members: Mapping[str, Member] = {}
        self._read_at: float | None = None

    def members(self) -> Mapping[str, Member]:
        """Return the hosts that are alive; see :meth:`Deployment.members`."""
        with self._lock:
            now = self._clock()
            if self._read_at is None or now - self._read_at >= self.max_age:
                self._members = self._read_members()
                self._read_at = now
            return self._members

    def ring(self) -> RingView | None:
        """Return the ring; see :meth:`Deployment.ring`."""
        published = read_ring(self._open_refs())
        if published is None:
            return None
        hosts = tuple(RingHost(host.name, host.vnodes) for host in published.ring.hosts)
        return RingView(published.ring.generation, hosts)

    def decision(self) -> Decision | None:
        """Return the decision in force."""
        found = read_decision(self._open_refs())
        return None if found is None else found.decision

    def pins(self) -> Pins:
        """Return what the operator insists on."""
        return read_pins(self._open_refs())

    def pin(self, host: str, weight: int) -> None:
        """Pin the weight of a host; see :meth:`Deployment.pin`."""
        self._change(lambda pins: dataclasses.replace(pins, weights={**pins.weights, host: weight}))

    def unpin(self, host: str) -> None:
        """Take a pin back; see :meth:`Deployment.unpin`."""

        def without(pins: Pins) -> Pins:
            if host not in pins.weights:
                raise exception.NotFoundError(f"host {host} is not pinned")
            left = {name: weight for name, weight in pins.weights.items() if name != host}
            return dataclasses.replace(pins, weights=left)

        self._change(without)

    def _change(self, make: Callable[[Pins], Pins]) -> None:
        def content(before: bytes | None) -> bytes | None:
            after = make(Pins() if before is None else Pins.parse(before))
            return None if after == Pins() else after.encode()

        ref_replacement.change(self._open_refs(), PINS_REF, content)

    def is_drain_wanted(self, host: str) -> bool:
        """Return whether the operator wants a host to own nothing."""
        return read_desired_state(self._open_refs(), host).is_drained

    def want_drain(self, host: str, *, is_drained: bool) -> None:
        """Say whether a host is to own nothing."""
        write_desired_state(self._open_refs(), host, DesiredState(is_drained))

    def states(self) -> Mapping[str, HeardState]:
        """Return what hosts told lately."""
        return self._watch.states()

    def origin_members(self) -> OriginMembers | None:
        """Return the members of the origin; see :meth:`Deployment.origin_members`."""
        refs = self._open_refs()
        record, _ = read_members(refs)
        return None if record is None else OriginMembers(record, read_status(refs))

    def drain_origin_member(self, name: str, *, is_draining: bool) -> None:
        """Have a member get nothing new; see :meth:`Deployment.drain_origin_member`."""
        refs = self._open_refs()
        record, _ = read_members(refs)
        entry = None if record is None else record.members.get(name)
        if record is None or entry is None:
            raise exception.NotFoundError(f"the origin has no member {name}")
        if is_draining != (entry.state is MemberState.DRAINING):
            event = MemberEvent.DRAIN if is_draining else MemberEvent.KEEP
            Membership(record.home, {record.home: refs}).change(name, event)


def relative_weight(weight: int) -> float:
    """Return a weight in ordinary hosts'."""
    return weight / MEAN_WEIGHT


def absolute_weight(relative: float) -> int:
    """Return a weight as decisions have it, of one in ordinary hosts'."""
    return max(1, round(relative * MEAN_WEIGHT))
