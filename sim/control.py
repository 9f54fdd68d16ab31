"""The control loop: what agents report, what the policy decides, when hosts follow.

Load samples, decision maker, decision and ring are the real ones (``acstor.policy``,
``acstor.cluster.ring``); modelled are the times: each agent reports its rates every
``collection_interval`` with jitter, at its own phase. The policy collects once per interval, and at
once when a host's reports have shown overload for long enough (``acstor/policy/service.py``). A
decision is announced: the publishing agent writes a ring, whose announcement has each agent follow
within some time that grows with their number. Where announcements are lost (``timing.announced`` is
false) both happen at the agents' next looks. While nothing is decided nothing is published.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acstor.cluster.ring import building
from acstor.cluster.ring.decision import Decision
from acstor.native import Ring
from acstor.policy import load_samples
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.evaluation_result import EvaluationResult, Part
from acstor.policy.load_samples import LoadSamples, Sample
from acstor.policy.observation import is_overloaded
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology as DeclaredTopology
from sim import rings
from sim._simcore import Simulation
from sim.onsets import Onsets
from sim.topology import Topology, host_name

_MESSAGE_BYTES = 1500
"""Of a report with AMQP's and TCP's headers; without sketch and images it is some 700 bytes."""
EARLY_AFTER = 0.25
"""Part of the interval that is between two collections at least (``acstor/policy/service.py``)."""
SPREAD_EACH, SPREAD_MAX = 1e-3, 1.0
"""Seconds per host, and at most, over which hosts spread their reading of a new ring."""
_INSTANT = 1e-9

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
    announced: bool = True
    """True if agents hear of decisions and rings; else they find them at their next pass."""


@dataclass(frozen=True)
class Operator:
    """Settings of the network in the configuration."""

    topology: DeclaredTopology | None
    threshold: int | None
    """``[readpath] distance_threshold``."""


@dataclass
class ControlLog:
    """Record of the loop's decisions and of their cost."""

    decisions: list[dict[str, Any]] = field(default_factory=list)
    message_bytes: int = 0
    ring_bytes: int = 0
    decide_seconds: float = 0.0


class Control:
    """Collects, decides and publishes, for one run."""

    def __init__(
        self,
        simulation: Simulation,
        topology: Topology,
        ring: Ring,
        settings: PolicySettings,
        timing: Timing,
        seed: int,
        operator: Operator,
    ) -> None:
        self._plain_threshold = operator.threshold
        self._simulation, self._topology = simulation, topology
        count = topology.spec.host_count
        self._ring = ring
        self._timing = timing
        self._random = np.random.default_rng(seed + 77)
        self._phase = self._random.uniform(0, timing.look_interval, count)
        self._hosts = rings.ring_hosts(topology)
        self._maker = DecisionMaker(settings, topology=operator.topology)
        self.decision: Decision | None = None
        self._threshold: int | None = None
        self._member_since: float | None = None
        self.lies: Mapping[int, float] = {}
        self._now = 0.0
        # An agent's first figures are those of a whole interval.
        self._noted = np.full(count, timing.collection_interval)
        self._load_samples = LoadSamples(timing.collection_interval, lambda: self._now)
        self._load_samples.watch(
            lambda load: is_overloaded(load, settings), settings.successive, self._hear_overload
        )
        self._collected_at = 0.0
        self._due = timing.collection_interval
        self._relieved: dict[int, float] = {}
        """Hosts, and the overload of which they were relieved."""
        self._onsets = Onsets(simulation, settings, topology.spec.host_rate)
        self._is_overload_heard = False
        self.log = ControlLog()

    def _hear_overload(self) -> None:
        self._is_overload_heard = True

    def listen(self, now: float) -> None:
        """Note what agents have told, in its order."""
        self._onsets.check(now)
        link = self._topology.spec.host_rate
        times, rates = (np.frombuffer(one) for one in self._simulation.reports())
        rates = rates.reshape(-1, 4)
        new = np.flatnonzero(times > self._noted)
        for host in new[np.argsort(times[new], kind="stable")]:
            told = float(times[host])
            self._noted[host] = self._now = told
            received, sent, moved_in, moved_out = (float(rate) for rate in rates[host])
            if int(host) in self.lies:
                received = sent = self.lies[int(host)]
            self._load_samples.note(
                Sample(
                    host_name(int(host)), load_samples.DIRECT, told, received, sent, moved_in,
                    moved_out, link, sequence=int(told * 1e6),
                )
            )  # fmt: skip
            self.log.message_bytes += _MESSAGE_BYTES
        self._now = now

    def step(self, now: float) -> None:
        """Listen, and take a collection when it is due or when a host is overloaded lastingly."""
        self.listen(now)
        interval = self._timing.collection_interval
        early = self._collected_at + EARLY_AFTER * interval
        if now >= self._due - _INSTANT:
            self._due += interval
        elif self._is_overload_heard and not self._maker.history.cool_down and now >= early:
            self._due = now + interval
        else:
            return
        self._collected_at, self._is_overload_heard = now, False
        self.tick(now)

    def tick(self, now: float) -> None:
        """Take one collection and act on what comes out."""
        outcome = self._maker.decide(self._load_samples.collect(now), self.decision)
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
        record["relieves_since"] = self._longest_overload(outcome)
        record["sequence"] = outcome.decision.sequence
        record["threshold"] = outcome.decision.threshold
        self.publish(now, record)

    def _longest_overload(self, outcome: EvaluationResult) -> float | None:
        """Return the first begin of overload among hosts that a decision relieves; None: of none.

        A host whose overload goes on was relieved by the first decision since it began.
        """
        first = math.inf
        for host in range(len(self._phase)):
            found = outcome.explanations.get(host_name(host))
            if found is None or not found.is_overloaded or found.part is not Part.GIVES:
                continue
            since = self._onsets.of(host)
            if math.isfinite(since) and self._relieved.get(host) != since:
                self._relieved[host] = since
                first = min(first, since)
        return first if math.isfinite(first) else None

    def members_changed(self, now: float) -> None:
        """Publish a ring of the hosts that are left."""
        names = {host_name(int(host)) for host in np.flatnonzero(self._simulation.is_alive())}
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
        published, follows = self._times(now)
        hops = self._plain_threshold if threshold is None else threshold
        slot = rings.install(self._simulation, self._topology, self._ring, hops)
        followers = np.flatnonzero(self._simulation.is_alive())
        self._simulation.follow_ring(slot, followers.tolist(), follows[followers].tolist())
        record["published"] = published
        record["followed"] = float(follows.max())

    def _times(self, now: float) -> tuple[float, NDArray[np.float64]]:
        """Return when a ring is published that is decided now, and when each host follows."""
        count = len(self._phase)
        ready = now + self._timing.publication_delay
        if self._timing.announced:
            spread = min(SPREAD_MAX, SPREAD_EACH * count)
            return ready, ready + self._random.uniform(0.0, spread, count)
        published = self._next_pass(int(self._random.integers(count)), ready)
        return published, np.array([self._next_pass(host, published) for host in range(count)])

    def bytes_per_host_and_second(self, seconds: float) -> float:
        """Return what the control loop costs a host's link: reports, looks, rings."""
        reports = self.log.message_bytes / max(1, len(self._phase)) / seconds
        looks = REFS_PER_LOOK * REF_BYTES / self._timing.look_interval
        return reports + looks + self.log.ring_bytes / seconds

    def _next_pass(self, host: int, after: float) -> float:
        interval = self._timing.look_interval
        looks = math.ceil((after - self._phase[host]) / interval)
        return float(self._phase[host] + looks * interval)


def declared(topology: Topology, speed: str = "uplink") -> DeclaredTopology | None:
    """Return the tree as an operator declares it to the policy; None: a star.

    :param speed: what the rate of a switch is declared as: ``uplink``, which it is; ``capacity``,
        what it forwards altogether: ACStor's Algorithm 2 to the letter.
    """
    spec = topology.spec
    if len(spec.fanout) == 1:
        return None
    mbit = 8 / 1e6
    levels: list[dict[str, Any]] = [
        {"name": f"level {number}", speed: rate * mbit}
        for number, rate in enumerate(reversed(spec.rates[:-1]))
    ]
    root = spec.root_rate if math.isfinite(spec.root_rate) else spec.rates[0] * spec.fanout[0]
    levels.append({"name": "root", "capacity": root * mbit})
    hosts = {host_name(host): topology.position(host) for host in range(spec.host_count)}
    return DeclaredTopology.parse({"version": 1, "levels": levels, "hosts": hosts})
