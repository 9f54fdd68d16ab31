"""Metrics of a policy service, for Prometheus. ``doc/source/admin/policy.rst`` lists them.

Names are constants so that a test can compare them with the page.
"""

from collections.abc import Mapping

import prometheus_client
from prometheus_client.openmetrics import exposition

from acstor.cluster.leader_states import LeaderState
from acstor.cluster.ring.decision import Decision
from acstor.policy.collection import Collection
from acstor.policy.evaluation_result import EvaluationResult
from acstor.telemetry.dependency_gauge import DependencyGauge

STATE = "acstor_policy_state"
UP = "acstor_policy_up"
HOSTS = "acstor_policy_hosts"
OVERLOADED = "acstor_policy_overloaded_hosts"
SAMPLES = "acstor_policy_samples"
FEED_AGE = "acstor_policy_feed_age_seconds"
COLLECTIONS = "acstor_policy_collections"
COLLECTION_SECONDS = "acstor_policy_collection_seconds"
DECISIONS = "acstor_policy_decisions"
MOVED_SHARE = "acstor_policy_moved_share"
TERM = "acstor_policy_term"
SEQUENCE = "acstor_policy_sequence"
THRESHOLD = "acstor_policy_threshold_hops"

ALL = (
    STATE, UP, HOSTS, OVERLOADED, SAMPLES, FEED_AGE, COLLECTIONS, COLLECTION_SECONDS, DECISIONS,
    MOVED_SHARE, TERM, SEQUENCE, THRESHOLD,
)  # fmt: skip

_SECONDS_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)


class PolicyMetrics:
    """The metrics of a policy service in a registry of their own."""

    def __init__(self) -> None:
        registry = self._registry = prometheus_client.CollectorRegistry()
        self._state = prometheus_client.Gauge(
            STATE, "1 for the state that the service is in", ["state"], registry=registry
        )
        self.up = DependencyGauge(UP, "Whether a dependency was in order when last asked", registry)
        self._hosts = prometheus_client.Gauge(
            HOSTS, "Hosts, by what is known of them", ["kind"], registry=registry
        )
        self._overloaded = prometheus_client.Gauge(
            OVERLOADED, "Hosts that were overloaded at the last collection", registry=registry
        )
        self._samples = prometheus_client.Gauge(
            SAMPLES, "Samples since the start, by feed and what became of them",
            ["feed", "outcome"], registry=registry,
        )  # fmt: skip
        self._feed_age = prometheus_client.Gauge(
            FEED_AGE, "Seconds since the last sample of a feed", ["feed"], registry=registry
        )
        self._collections = prometheus_client.Counter(
            COLLECTIONS, "Collections, by what came out", ["reason"], registry=registry
        )
        self.seconds = prometheus_client.Histogram(
            COLLECTION_SECONDS, "Time that collecting and deciding took",
            buckets=_SECONDS_BUCKETS, registry=registry,
        )  # fmt: skip
        self._decisions = prometheus_client.Counter(
            DECISIONS, "Decisions put in force by this service", ["reason"], registry=registry
        )
        self._moved_share = prometheus_client.Gauge(
            MOVED_SHARE, "Part of the circle that the last of them moves at least",
            registry=registry,
        )  # fmt: skip
        self._term = prometheus_client.Gauge(
            TERM, "Term of the decision in force", registry=registry
        )
        self._sequence = prometheus_client.Gauge(
            SEQUENCE, "Sequence number of the decision in force", registry=registry
        )
        self._threshold = prometheus_client.Gauge(
            THRESHOLD, "Threshold in force, hops; 0: none", registry=registry
        )
        self.set_state(LeaderState.STANDBY)

    def set_state(self, state: LeaderState) -> None:
        """Show the state."""
        for each in LeaderState:
            self._state.labels(each.value).set(each is state)

    def note_collection(self, collection: Collection, outcome: EvaluationResult) -> None:
        """Show a collection and what came out of it."""
        fresh = sum(load.age == 0 for load in collection.hosts.values())
        for kind, count in (
            ("fresh", fresh),
            ("carried", len(collection.hosts) - fresh),
            ("missing", len(collection.missing)),
        ):
            self._hosts.labels(kind).set(count)
        overloaded = sum(each.is_overloaded for each in outcome.explanations.values())
        self._overloaded.set(overloaded)
        self._collections.labels(outcome.reason.value).inc()

    def note_decision(self, outcome: EvaluationResult) -> None:
        """Count a decision that was put in force."""
        self._decisions.labels(outcome.reason.value).inc()
        self._moved_share.set(outcome.moved_share)

    def set_decision(self, decision: Decision | None) -> None:
        """Show the decision in force."""
        self._term.set(decision.term if decision else 0)
        self._sequence.set(decision.sequence if decision else 0)
        self._threshold.set((decision.threshold or 0) if decision else 0)

    def set_feeds(self, counts: Mapping[tuple[str, str], int], ages: Mapping[str, float]) -> None:
        """Show what the feeds brought."""
        for (feed, outcome), count in counts.items():
            self._samples.labels(feed, outcome).set(count)
        for feed, age in ages.items():
            self._feed_age.labels(feed).set(age)

    def text(self) -> str:
        """Return the OpenMetrics text."""
        return str(exposition.generate_latest(self._registry).decode())  # type: ignore[no-untyped-call]
