"""The control loop: what agents report, what the policy decides, when hosts follow.

The load book, the decision maker, the decision and the ring are the real ones (``acstor.policy``,
``acstor.ring``); modelled are the times: each agent reports its rates every ``collection_interval``
with jitter, at its own phase. The policy collects once per interval what the agents told last. A
decision is turned into a ring by the publishing agent at its next look, and each agent follows at
its own next look after that. While nothing is decided nothing is published.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acstor.dataplane import Ring
from acstor.policy import load_book
from acstor.policy.collection import Collection
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.load_book import LoadBook, Sample
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology as DeclaredTopology
from acstor.ring import building
from acstor.ring.decision import Decision
from sim import events
from sim.rings import Rings, ring_hosts
from sim.topology import Topology, host_name
from sim.world import World

_MESSAGE_BYTES = 1500
"""Of a report with AMQP's and TCP's headers; without sketch and images it is some 700 bytes."""


REF_BYTES = 500
"""Of reading one small ref over HTTP, headers included."""
REFS_PER_LOOK = 3
"""Ring generation, decision, membership."""


@dataclass(frozen=True)
class Timing:
    """Seconds."""

    collection_interval: float
    look_interval: float
    publication_delay: float
    """From a decision to its ring at the earliest: two writes to the origin."""


@dataclass
class ControlLog:
    """What the loop did."""

    decisions: list[dict[str, Any]] = field(default_factory=list)
    message_bytes: int = 0
    ring_bytes: int = 0
    decide_seconds: float = 0.0


class Control:
    """Collects, decides and publishes, for one run."""

    def __init__(
        self,
        world: World,
        handle: World,
        topology: Topology,
        rings: Rings,
        ring: Ring,
        settings: PolicySettings,
        timing: Timing,
        seed: int,
    ) -> None:
        self._world, self._handle, self._topology, self._rings = world, handle, topology, rings
        self._ring = ring
        self._timing = timing
        self._random = np.random.default_rng(seed + 77)
        self._phase = self._random.uniform(0, timing.look_interval, len(world.is_alive))
        self._hosts = ring_hosts(topology)
        self._maker = DecisionMaker(settings, topology=declared(topology))
        self.decision: Decision | None = None
        self._threshold: int | None = None
        self._pending: dict[int, float] = {}
        self._member_since: float | None = None
        self.lies: Mapping[int, float] = {}
        self._now = 0.0
        # An agent's first figures are those of a whole interval.
        self._noted = np.full(len(world.is_alive), timing.collection_interval)
        self._book = LoadBook(timing.collection_interval, lambda: self._now)
        self.log = ControlLog()

    def collect(self, now: float) -> Collection:
        """Return what the agents told since the last collection, as the service's book has it."""
        world, link = self._world, self._topology.spec.host_rate
        self._now = now
        for host in np.flatnonzero(world.report_time > self._noted):
            told = float(world.report_time[host])
            self._noted[host] = told
            received, sent, moved_in, moved_out = (float(rate) for rate in world.report_rate[host])
            if int(host) in self.lies:
                received = sent = self.lies[int(host)]
            self._book.note(
                Sample(
                    host_name(int(host)), load_book.DIRECT, told, received, sent, moved_in,
                    moved_out, link, sequence=int(told * 1e6),
                )
            )  # fmt: skip
            self.log.message_bytes += _MESSAGE_BYTES
        return self._book.collect(now)

    def tick(self, now: float) -> None:
        """Take one collection and act on what comes out."""
        outcome = self._maker.decide(self.collect(now), self.decision)
        record = {
            "at": now,
            "reason": str(outcome.reason),
            "moved_share": float(outcome.moved_share),
            "overloaded": sum(one.is_overloaded for one in outcome.explanations.values()),
        }
        self.log.decisions.append(record)
        if outcome.decision is None:
            return
        self.decision = outcome.decision
        record["sequence"] = outcome.decision.sequence
        record["threshold"] = outcome.decision.threshold
        self.publish(now, record)

    def members_changed(self, now: float) -> None:
        """Publish a ring of the hosts that are left."""
        names = {host_name(int(host)) for host in np.flatnonzero(self._world.is_alive)}
        self._hosts = [host for host in self._hosts if host.name in names]
        self.publish(now, {"at": now, "reason": "members"})

    def publish(self, now: float, record: dict[str, Any]) -> None:
        """Turn the decision into a ring, and let each host follow at its next look."""
        hosts = building.weighted(self._hosts, self.decision)
        threshold = self.decision.threshold if self.decision else None
        previous = self._ring
        ring = building.next_ring(
            hosts, previous, self.decision, vnode_count=previous.vnode_count, seed=previous.seed
        )
        moved, least = ring.moved_share(previous), previous.least_moved_share(hosts)
        if moved > 0 or len(ring.hosts) != len(previous.hosts):
            self._ring = ring
            self.log.ring_bytes += len(ring.encode())
            record["generation"] = ring.generation
        elif threshold == self._threshold:
            return
        self._threshold = threshold
        record["ring_moved_share"], record["least_moved_share"] = moved, least
        publisher = int(self._random.integers(len(self._phase)))
        published = self._next_look(publisher, now + self._timing.publication_delay)
        self._pending = {slot: until for slot, until in self._pending.items() if until > now}
        slot = self._rings.install(self._ring, threshold, set(self._pending))
        for host in np.flatnonzero(self._world.is_alive):
            at = self._next_look(int(host), published)
            events.push(self._handle, at, events.APPLY, int(host), slot)
        self._pending[slot] = published + 2 * self._timing.look_interval
        record["published"] = published
        record["followed"] = published + self._timing.look_interval

    def bytes_per_host_and_second(self, seconds: float) -> float:
        """Return what the control loop costs a host's link: reports, looks, rings."""
        reports = self.log.message_bytes / max(1, len(self._phase)) / seconds
        looks = REFS_PER_LOOK * REF_BYTES / self._timing.look_interval
        return reports + looks + self.log.ring_bytes / seconds

    def _next_look(self, host: int, after: float) -> float:
        interval = self._timing.look_interval
        looks = math.ceil((after - self._phase[host]) / interval)
        return float(self._phase[host] + looks * interval)


def declared(topology: Topology) -> DeclaredTopology | None:
    """Return the tree as an operator declares it to the policy; None: a star."""
    spec = topology.spec
    if len(spec.fanout) == 1:
        return None
    mbit = 8 / 1e6
    levels: list[dict[str, Any]] = [
        {"name": f"level {number}", "uplink": rate * mbit}
        for number, rate in enumerate(reversed(spec.rates[:-1]))
    ]
    root = spec.root_rate if math.isfinite(spec.root_rate) else spec.rates[0] * spec.fanout[0]
    levels.append({"name": "root", "capacity": root * mbit})
    hosts = {host_name(host): topology.position(host) for host in range(spec.host_count)}
    return DeclaredTopology.parse({"version": 1, "levels": levels, "hosts": hosts})
