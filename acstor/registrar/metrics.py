"""Metrics of the registrar, for Prometheus. ``doc/source/admin/registrar.rst`` lists them.

Names are constants so that a test can compare them with the page.
"""

from collections import Counter

import prometheus_client
from prometheus_client.openmetrics import exposition

from acstor.origin.replicated.members_status import MembersStatus, PowerStatus
from acstor.origin.replicated.power.record import PowerRecord
from acstor.origin.replicated.power.states import SYNCHRONISED, PowerState
from acstor.registrar.registration.job import Outcome, OutcomeKind
from acstor.repository.images.image_registry import EntryState
from acstor.telemetry.dependency_gauge import DependencyGauge

LEADER = "acstor_registrar_leader"
UP = "acstor_registrar_up"
IMAGES = "acstor_registrar_images"
RUNNING = "acstor_registrar_running"
REGISTRATIONS = "acstor_registrar_registrations"
REGISTRATION_SECONDS = "acstor_registrar_registration_seconds"
READ_BYTES = "acstor_registrar_read_bytes"
DOWNLOADED_BYTES = "acstor_registrar_downloaded_bytes"
STORED_BYTES = "acstor_registrar_stored_bytes"
RECONCILIATIONS = "acstor_registrar_reconciliations"
RECONCILED_AT = "acstor_registrar_last_reconciliation_timestamp_seconds"
RECONCILIATION_SECONDS = "acstor_registrar_reconciliation_seconds"
NOTIFICATIONS = "acstor_registrar_notifications"
CACHED_IMAGES = "acstor_registrar_cached_images"
MOVES = "acstor_registrar_moves"
REMOVALS = "acstor_registrar_removals"
SILENT_HOSTS = "acstor_registrar_silent_hosts"
ORIGIN_FREE_BYTES = "acstor_registrar_origin_free_bytes"
ORIGIN_RESERVED_BYTES = "acstor_registrar_origin_reserved_bytes"
COLLECTIONS = "acstor_registrar_garbage_collections"
FREED_BYTES = "acstor_registrar_garbage_freed_bytes"
COMPACTIONS = "acstor_registrar_compactions"
COMPACTED_BYTES = "acstor_registrar_compacted_bytes"
COMPACTION_WRITTEN_BYTES = "acstor_registrar_compaction_written_bytes"
MEMBER_UP = "acstor_registrar_member_up"
MEMBER_OWED_BYTES = "acstor_registrar_member_owed_bytes"
MEMBER_SOLE_BYTES = "acstor_registrar_member_sole_bytes"
MEMBER_REFS_AGE_SECONDS = "acstor_registrar_member_refs_age_seconds"
MEMBER_COPIED_BYTES = "acstor_registrar_member_copied_bytes"
MEMBER_POWER_STATE = "acstor_registrar_member_power_state"
MEMBER_POWER_ALARM = "acstor_registrar_member_power_alarm"
MEMBER_SWITCHES = "acstor_registrar_member_switches"
POWER_BUDGET = "acstor_registrar_power_budget"
POWER_BUDGET_AGE_SECONDS = "acstor_registrar_power_budget_age_seconds"

ALL = (
    LEADER, UP, IMAGES, RUNNING, REGISTRATIONS, REGISTRATION_SECONDS, READ_BYTES,
    DOWNLOADED_BYTES, STORED_BYTES, RECONCILIATIONS, RECONCILED_AT, RECONCILIATION_SECONDS,
    NOTIFICATIONS, CACHED_IMAGES, MOVES, REMOVALS, SILENT_HOSTS, ORIGIN_FREE_BYTES,
    ORIGIN_RESERVED_BYTES, COLLECTIONS, FREED_BYTES, COMPACTIONS, COMPACTED_BYTES,
    COMPACTION_WRITTEN_BYTES, MEMBER_UP, MEMBER_OWED_BYTES, MEMBER_SOLE_BYTES,
    MEMBER_REFS_AGE_SECONDS, MEMBER_COPIED_BYTES, MEMBER_POWER_STATE, MEMBER_POWER_ALARM,
    MEMBER_SWITCHES, POWER_BUDGET, POWER_BUDGET_AGE_SECONDS,
)  # fmt: skip

_REGISTRATION_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)


class RegistrarMetrics:
    """The registrar's metrics in a registry of their own."""

    def __init__(self) -> None:
        registry = self._registry = prometheus_client.CollectorRegistry()
        self.leader = prometheus_client.Gauge(
            LEADER, "1 for the registrar that works, 0 for one that stands by", registry=registry
        )
        self.up = DependencyGauge(UP, "Whether a dependency was in order when last asked", registry)
        self._images = prometheus_client.Gauge(
            IMAGES, "Images in the image registry, by state", ["state"], registry=registry
        )
        self.running = prometheus_client.Gauge(
            RUNNING, "Registrations that are running", registry=registry
        )
        self._registrations = prometheus_client.Counter(
            REGISTRATIONS, "Registrations that ended, by outcome", ["outcome"], registry=registry
        )
        self._seconds = prometheus_client.Histogram(
            REGISTRATION_SECONDS, "Time that successful registrations took, download included",
            buckets=_REGISTRATION_BUCKETS, registry=registry,
        )  # fmt: skip
        self._read = prometheus_client.Counter(
            READ_BYTES, "Bytes of the disks that were registered", registry=registry
        )
        self._downloaded = prometheus_client.Counter(
            DOWNLOADED_BYTES, "Bytes downloaded from Glance", registry=registry
        )
        self._stored = prometheus_client.Counter(
            STORED_BYTES, "Bytes stored in the origin", registry=registry
        )
        self.reconciliations = prometheus_client.Counter(
            RECONCILIATIONS, "Comparisons of all images, by outcome", ["outcome"], registry=registry
        )
        self.reconciled_at = prometheus_client.Gauge(
            RECONCILED_AT, "When the last complete comparison ended", registry=registry
        )
        self.reconciliation_seconds = prometheus_client.Histogram(
            RECONCILIATION_SECONDS, "Time that comparisons took", registry=registry
        )
        self.notifications = prometheus_client.Counter(
            NOTIFICATIONS, "Notifications heard, by event", ["event"], registry=registry
        )
        self.cached_images = prometheus_client.Counter(
            CACHED_IMAGES, "Images that Nova was asked to cache, by outcome of the preload",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self.moves = prometheus_client.Counter(
            MOVES, "Moves of servers heard of, and calls of agents about them", ["what"],
            registry=registry,
        )  # fmt: skip
        self.removals = prometheus_client.Counter(
            REMOVALS, "Withdrawn images taken from the hosts", registry=registry
        )
        self.silent_hosts = prometheus_client.Gauge(
            SILENT_HOSTS, "Hosts whose silence holds withdrawals up", registry=registry
        )
        self.origin_free = prometheus_client.Gauge(
            ORIGIN_FREE_BYTES, "Room of the origin when last looked, bytes", registry=registry
        )
        self.origin_reserved = prometheus_client.Gauge(
            ORIGIN_RESERVED_BYTES, "What of it registrations leave to volumes", registry=registry
        )
        self.collections = prometheus_client.Counter(
            COLLECTIONS, "Garbage collections, by outcome", ["outcome"], registry=registry
        )
        self.freed = prometheus_client.Counter(
            FREED_BYTES, "Bytes that garbage collections freed", registry=registry
        )
        self.compactions = prometheus_client.Counter(
            COMPACTIONS, "Compactions, by outcome", ["outcome"], registry=registry
        )
        self.compacted = prometheus_client.Counter(
            COMPACTED_BYTES, "Bytes of packs that compactions left for collections to delete",
            registry=registry,
        )  # fmt: skip
        self.compaction_written = prometheus_client.Counter(
            COMPACTION_WRITTEN_BYTES, "Bytes that compactions wrote instead", registry=registry
        )
        self._member_up = prometheus_client.Gauge(
            MEMBER_UP, "1 for a member of the origin that can be reached", ["member"],
            registry=registry,
        )  # fmt: skip
        self._member_owed = prometheus_client.Gauge(
            MEMBER_OWED_BYTES, "Bytes that a member of the origin shall have and lacks", ["member"],
            registry=registry,
        )  # fmt: skip
        self._member_sole = prometheus_client.Gauge(
            MEMBER_SOLE_BYTES, "Bytes that a member of the origin owes to others", ["member"],
            registry=registry,
        )  # fmt: skip
        self._member_refs_age = prometheus_client.Gauge(
            MEMBER_REFS_AGE_SECONDS, "Age of the copies of the refs in a member of the origin",
            ["member"], registry=registry,
        )  # fmt: skip
        self.member_copied = prometheus_client.Counter(
            MEMBER_COPIED_BYTES, "Bytes copied from member to member of the origin",
            registry=registry,
        )  # fmt: skip
        self._power_state = prometheus_client.Gauge(
            MEMBER_POWER_STATE, "1 for the power state that a member of the origin is in",
            ["member", "state"], registry=registry,
        )  # fmt: skip
        self._power_alarm = prometheus_client.Gauge(
            MEMBER_POWER_ALARM, "1 for a member whose power an operator has to see to", ["member"],
            registry=registry,
        )  # fmt: skip
        self._switches = prometheus_client.Counter(
            MEMBER_SWITCHES, "Attempts to switch a member's machine", ["member", "to", "outcome"],
            registry=registry,
        )  # fmt: skip
        self._power_budget = prometheus_client.Gauge(
            POWER_BUDGET, "Budget of power; not there while it is unknown", ["unit"],
            registry=registry,
        )  # fmt: skip
        self._power_budget_age = prometheus_client.Gauge(
            POWER_BUDGET_AGE_SECONDS, "Time since the budget of power was read", ["unit"],
            registry=registry,
        )  # fmt: skip
        self.set_images(Counter())
        for kind in OutcomeKind:
            self._registrations.labels(kind.value)

    def set_images(self, counts: Counter[EntryState]) -> None:
        """Note the number of images in each state."""
        for state in EntryState:
            self._images.labels(state.value).set(counts[state])

    def set_members(self, status: MembersStatus) -> None:
        """Note how far the members of an origin of several are."""
        for gauge in (self._member_up, self._member_owed, self._member_sole, self._member_refs_age):
            gauge.clear()
        for name, one in status.members.items():
            if one.power not in SYNCHRONISED:
                continue  # it is not asked, on purpose
            self._member_up.labels(name).set(one.is_reachable)
            self._member_owed.labels(name).set(one.owed_bytes)
            self._member_sole.labels(name).set(one.sole_bytes)
            if one.refs_age_seconds is not None:
                self._member_refs_age.labels(name).set(one.refs_age_seconds)

    def set_power(self, status: PowerStatus | None, record: PowerRecord) -> None:
        """Note who sleeps, and the budget; nothing where members never sleep."""
        for gauge in (
            self._power_state, self._power_alarm, self._power_budget, self._power_budget_age,
        ):  # fmt: skip
            gauge.clear()
        if status is None:
            return
        for name, entry in record.members.items():
            for state in PowerState:
                self._power_state.labels(name, state.value).set(entry.state is state)
            self._power_alarm.labels(name).set(bool(entry.alarm))
        if status.budget is not None:
            self._power_budget.labels(status.unit).set(status.budget)
        if status.age_seconds is not None:
            self._power_budget_age.labels(status.unit).set(status.age_seconds)

    def note_switch(self, member: str, to: str, is_done: bool) -> None:
        """Count an attempt to switch a member's machine."""
        self._switches.labels(member, to, "ok" if is_done else "failed").inc()

    def note(self, outcome: Outcome) -> None:
        """Count a registration that ended."""
        self._registrations.labels(outcome.kind.value).inc()
        self._downloaded.inc(outcome.downloaded_bytes)
        if outcome.report is not None:
            self._seconds.observe(outcome.seconds)
            self._read.inc(outcome.report.size_bytes)
            self._stored.inc(outcome.report.bytes_stored)

    def text(self) -> str:
        """Return the metrics as OpenMetrics text."""
        return exposition.generate_latest(self._registry).decode()  # type: ignore[no-untyped-call,no-any-return]
