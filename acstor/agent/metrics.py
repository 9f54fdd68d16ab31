"""Metrics of the agent, for Prometheus. ``doc/source/admin/metrics-agent.rst`` lists them.

Names are constants so that a test can compare them with the page.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping

import prometheus_client
from prometheus_client.openmetrics import exposition

from acstor.agent.captures.table import CaptureRecord
from acstor.agent.reconcilers.local_files.known_files import KnownFile
from acstor.agent.reconcilers.local_files.states import LocalFileState
from acstor.agent.states import AgentState
from acstor.cluster.ring.decision import Decision
from acstor.preload.admitted_preload import AdmittedPreload
from acstor.preload.states import AdmittedPreloadState
from acstor.telemetry.data_plane_readings import DataPlaneLoad
from acstor.telemetry.dependency_gauge import DependencyGauge
from acstor.versions.host_capture.states import ENDED, CaptureState

STATE = "acstor_agent_state"
MEMBERS = "acstor_agent_members"
PUBLISHED_GENERATION = "acstor_agent_ring_published_generation"
USED_GENERATION = "acstor_agent_ring_used_generation"
PUBLICATIONS = "acstor_agent_ring_publications"
RING_TERM = "acstor_agent_ring_publisher_term"
RING_FENCED = "acstor_agent_ring_publisher_fenced"
RING_ABSENT = "acstor_agent_ring_absent_hosts"
RING_BLIND = "acstor_agent_ring_blind"
IMAGES = "acstor_agent_images"
REFUSED_RECORDS = "acstor_agent_image_records_refused"
REFUSED_INDEXES = "acstor_agent_image_indexes_refused"
INDEX_AGE = "acstor_agent_image_index_age_seconds"
RECONCILES = "acstor_agent_reconciles"
RECONCILE_SECONDS = "acstor_agent_reconcile_seconds"
FORMER_RECONCILES = "acstor_agent_looks"
"""The same as :data:`RECONCILES`, for one release more."""
FORMER_RECONCILE_SECONDS = "acstor_agent_look_seconds"
"""The same as :data:`RECONCILE_SECONDS`, for one release more."""
UP = "acstor_agent_up"
PINNED_BYTES = "acstor_agent_pinned_bytes"
COVERAGE = "acstor_agent_working_set_coverage"
PRELOADS = "acstor_agent_preloads"
PRELOADS_LATE = "acstor_agent_preloads_late"
PRELOAD_REMAINING = "acstor_agent_preload_remaining_bytes"
HAND_OVERS = "acstor_agent_hand_overs"
HAND_OVER_LISTS = "acstor_agent_hand_over_lists"
REVOKED_CHUNKS = "acstor_agent_revoked_chunks"
IMAGE_LINKS = "acstor_agent_image_links"
LOCAL_FILES = "acstor_agent_local_files"
LOCAL_FILE_BYTES = "acstor_agent_local_file_bytes"
LOCAL_FILE_JOBS = "acstor_agent_local_file_jobs"
CAPTURES = "acstor_agent_captures"
CAPTURES_ENDED = "acstor_agent_captures_ended"
CAPTURE_HELD_BYTES = "acstor_agent_capture_held_bytes"
CAPTURE_AGE = "acstor_agent_capture_age_seconds"
FROZEN_GUESTS = "acstor_agent_capture_frozen_guests"
EXTRA_TRAFFIC = "acstor_agent_extra_traffic_bytes_per_second"
MOVED_TRAFFIC = "acstor_agent_moved_traffic_bytes_per_second"
LINK_SPEED = "acstor_agent_link_bytes_per_second"
DATA_PLANE_LOAD = "acstor_agent_data_plane_load"
DISK_HEALTHY = "acstor_agent_disk_healthy"
DISK_WEAR = "acstor_agent_disk_wear"
HIT_SHARE = "acstor_agent_hit_share"
PEER_LATENCY = "acstor_agent_peer_latency_seconds"
HOST_STATES = "acstor_agent_host_states"
DECISION_TERM = "acstor_agent_decision_term"
DECISION_SEQUENCE = "acstor_agent_decision_sequence"
DECISION_THRESHOLD = "acstor_agent_decision_threshold_hops"

ALL = (
    STATE,
    MEMBERS,
    PUBLISHED_GENERATION,
    USED_GENERATION,
    PUBLICATIONS,
    RING_TERM,
    RING_FENCED,
    RING_ABSENT,
    RING_BLIND,
    IMAGES,
    REFUSED_RECORDS,
    REFUSED_INDEXES,
    INDEX_AGE,
    RECONCILES,
    RECONCILE_SECONDS,
    FORMER_RECONCILES,
    FORMER_RECONCILE_SECONDS,
    UP,
    PINNED_BYTES,
    COVERAGE,
    PRELOADS,
    PRELOADS_LATE,
    PRELOAD_REMAINING,
    HAND_OVERS,
    HAND_OVER_LISTS,
    REVOKED_CHUNKS,
    IMAGE_LINKS,
    LOCAL_FILES,
    LOCAL_FILE_BYTES,
    LOCAL_FILE_JOBS,
    CAPTURES,
    CAPTURES_ENDED,
    CAPTURE_HELD_BYTES,
    CAPTURE_AGE,
    FROZEN_GUESTS,
    EXTRA_TRAFFIC,
    MOVED_TRAFFIC,
    LINK_SPEED,
    DATA_PLANE_LOAD,
    DISK_HEALTHY,
    DISK_WEAR,
    HIT_SHARE,
    PEER_LATENCY,
    HOST_STATES,
    DECISION_TERM,
    DECISION_SEQUENCE,
    DECISION_THRESHOLD,
)

PEERS_SHOWN_MAX = 8
"""Peers whose latency is told: a deployment of N hosts is not to have N x N series."""
_END = "# EOF"


class AgentMetrics:
    """The agent's metrics in a registry of their own."""

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        registry = self._registry
        self._state = prometheus_client.Gauge(
            STATE, "1 for the state that the agent is in", ["state"], registry=registry
        )
        self.members = prometheus_client.Gauge(MEMBERS, "Hosts seen last", registry=registry)
        self.published_generation = prometheus_client.Gauge(
            PUBLISHED_GENERATION, "Generation of the ring that this agent published last",
            registry=registry,
        )  # fmt: skip
        self.used_generation = prometheus_client.Gauge(
            USED_GENERATION, "Generation of the ring that the data plane uses, 0: none",
            registry=registry,
        )  # fmt: skip
        self.publications = prometheus_client.Counter(
            PUBLICATIONS, "Rings that this agent published", registry=registry
        )
        self.fenced = prometheus_client.Counter(
            RING_FENCED, "Times that this agent was overtaken as publisher", registry=registry
        )
        self._ring_term = prometheus_client.Gauge(
            RING_TERM, "Term in which this agent publishes rings, 0: it does not", registry=registry
        )
        self._ring_absent = prometheus_client.Gauge(
            RING_ABSENT, "Hosts that are no members and stay in the ring for now",
            registry=registry,
        )  # fmt: skip
        self._ring_blind = prometheus_client.Gauge(
            RING_BLIND, "1: this agent publishes rings and sees none of several other hosts",
            registry=registry,
        )  # fmt: skip
        self.images = prometheus_client.Gauge(
            IMAGES, "Images, by what they are", ["kind"], registry=registry
        )
        self.refused_records = prometheus_client.Counter(
            REFUSED_RECORDS, "Records of images that were not believed, by reason", ["reason"],
            registry=registry,
        )  # fmt: skip
        self.refused_indexes = prometheus_client.Counter(
            REFUSED_INDEXES, "Times that the index of images was not believed, by reason",
            ["reason"], registry=registry,
        )  # fmt: skip
        self.index_age = prometheus_client.Gauge(
            INDEX_AGE, "Age of what the registrar has signed of the index of images",
            registry=registry,
        )  # fmt: skip
        self._reconciles = [
            prometheus_client.Counter(
                name, "Reconcile passes, by outcome", ["outcome"], registry=registry
            )
            for name in (RECONCILES, FORMER_RECONCILES)
        ]
        self._reconcile_seconds = [
            prometheus_client.Histogram(name, "Time that reconcile passes took", registry=registry)
            for name in (RECONCILE_SECONDS, FORMER_RECONCILE_SECONDS)
        ]
        self.up = DependencyGauge(UP, "Whether a dependency answered at the last pass", registry)
        self.pinned_bytes = prometheus_client.Gauge(
            PINNED_BYTES, "Bytes pinned of images, by image", ["image"], registry=registry
        )
        self._image_links = prometheus_client.Gauge(
            IMAGE_LINKS, "Links in Nova's image cache, by state", ["state"], registry=registry
        )
        self._local_files = prometheus_client.Gauge(
            LOCAL_FILES, "Local files of images, by state", ["state"], registry=registry
        )
        self._local_file_bytes = prometheus_client.Gauge(
            LOCAL_FILE_BYTES, "Bytes that local files of images take", registry=registry
        )
        self.local_file_jobs = prometheus_client.Counter(
            LOCAL_FILE_JOBS, "Local files that were made, failed, damaged or removed",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self._captures = prometheus_client.Gauge(
            CAPTURES, "Captures of disks that this host knows of, by state", ["state"],
            registry=registry,
        )  # fmt: skip
        self.captures_ended = prometheus_client.Counter(
            CAPTURES_ENDED, "Captures that have ended, by outcome", ["outcome"], registry=registry
        )
        self._capture_held_bytes = prometheus_client.Gauge(
            CAPTURE_HELD_BYTES, "Bytes of captures that are on this host only", registry=registry
        )
        self._capture_age = prometheus_client.Gauge(
            CAPTURE_AGE, "Age of the oldest content that is on this host only, 0: there is none",
            registry=registry,
        )  # fmt: skip
        self._frozen_guests = prometheus_client.Gauge(
            FROZEN_GUESTS, "Guests that captures have frozen, or may have", registry=registry
        )
        self._extra_traffic = prometheus_client.Gauge(
            EXTRA_TRAFFIC, "Traffic of the host that ACStor did not cause, NaN: not known",
            ["direction"], registry=registry,
        )  # fmt: skip
        self._moved_traffic = prometheus_client.Gauge(
            MOVED_TRAFFIC, "What the data plane moved over the network, NaN: not known",
            ["direction"], registry=registry,
        )  # fmt: skip
        self._data_plane_load = prometheus_client.Gauge(
            DATA_PLANE_LOAD, "How busy the data plane is with its peers, 0 to 1, NaN: not known",
            registry=registry,
        )  # fmt: skip
        self._disk_healthy = prometheus_client.Gauge(
            DISK_HEALTHY, "Whether the disk of the chunk store is well, NaN: not known",
            registry=registry,
        )  # fmt: skip
        self._disk_wear = prometheus_client.Gauge(
            DISK_WEAR, "Part of the life of that disk that is over, NaN: not known",
            registry=registry,
        )  # fmt: skip
        self._hit_share = prometheus_client.Gauge(
            HIT_SHARE, "Share of the chunks that guests read lately, by where they came from",
            ["tier"], registry=registry,
        )  # fmt: skip
        self._peer_latency = prometheus_client.Gauge(
            PEER_LATENCY, "How long fetches took lately, of the peers fetched most from",
            ["peer", "quantile"], registry=registry,
        )  # fmt: skip
        self._link_speed = prometheus_client.Gauge(
            LINK_SPEED, "Speed of the host's links in one direction, NaN: not known",
            registry=registry,
        )  # fmt: skip
        self.host_states = prometheus_client.Counter(
            HOST_STATES, "States told to the schedulers, by outcome", ["outcome"], registry=registry
        )
        self._coverage = prometheus_client.Gauge(
            COVERAGE, "Share of what boots of an image read that this host holds, by image",
            ["image"], registry=registry,
        )  # fmt: skip
        self._preloads = prometheus_client.Gauge(
            PRELOADS, "Preloads that this host admitted, by state", ["state"], registry=registry
        )
        self._preloads_late = prometheus_client.Gauge(
            PRELOADS_LATE, "Preloads that go on although their deadline is over", registry=registry
        )
        self._preload_remaining = prometheus_client.Gauge(
            PRELOAD_REMAINING, "What preloads have still to fetch, by image", ["image"],
            registry=registry,
        )  # fmt: skip
        self.hand_overs = prometheus_client.Counter(
            HAND_OVERS, "Hand-overs of warm sets to this host, by kind of the move and outcome",
            ["kind", "outcome"], registry=registry,
        )  # fmt: skip
        self.hand_over_lists = prometheus_client.Counter(
            HAND_OVER_LISTS, "Hosts that servers came from, by whether they told their warm sets",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self.revoked_chunks = prometheus_client.Counter(
            REVOKED_CHUNKS, "Chunks of revoked images that this host has discarded",
            registry=registry,
        )  # fmt: skip
        self._decision_term = prometheus_client.Gauge(
            DECISION_TERM, "Term of the policy's decision that was read last, 0: none",
            registry=registry,
        )  # fmt: skip
        self._decision_sequence = prometheus_client.Gauge(
            DECISION_SEQUENCE, "Sequence number of that decision, 0: none", registry=registry
        )
        self._decision_threshold = prometheus_client.Gauge(
            DECISION_THRESHOLD, "Its threshold, hops; 0: the data plane's configuration says",
            registry=registry,
        )  # fmt: skip
        self.set_preloads([])
        self.set_decision(None)
        self.set_traffic(None, None, None)
        self.set_moved(None, None)
        self.set_load(None)

    def set_state(self, current: AgentState) -> None:
        """Note the state."""
        for state in AgentState:
            self._state.labels(state.value).set(state is current)

    def note_reconcile(self, outcome: str) -> None:
        """Count a reconcile pass: ``complete``, ``incomplete`` or ``failed``."""
        for counter in self._reconciles:
            counter.labels(outcome).inc()

    @contextlib.contextmanager
    def timed_reconcile(self) -> Iterator[None]:
        """Time the reconcile pass within the block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            for histogram in self._reconcile_seconds:
                histogram.observe(spent)

    def set_decision(self, decision: Decision | None) -> None:
        """Note the policy's decision in force."""
        self._decision_term.set(decision.term if decision else 0)
        self._decision_sequence.set(decision.sequence if decision else 0)
        self._decision_threshold.set((decision.threshold or 0) if decision else 0)

    def set_publisher(self, term: int | None, absent: int, is_blind: bool) -> None:
        """Note what this agent does as the publisher of rings."""
        self._ring_term.set(term or 0)
        self._ring_absent.set(absent)
        self._ring_blind.set(is_blind)

    def set_images(self, **counts: int) -> None:
        """Note the number of images by what they are."""
        for kind, count in counts.items():
            self.images.labels(kind).set(count)

    def set_traffic(
        self, extra_in: float | None, extra_out: float | None, link: float | None
    ) -> None:
        """Note the extra traffic and the speed of the links, bytes per second; None: not known."""
        for gauge, rate in (
            (self._extra_traffic.labels("in"), extra_in),
            (self._extra_traffic.labels("out"), extra_out),
            (self._link_speed, link),
        ):
            gauge.set(math.nan if rate is None else rate)

    def set_moved(self, moved_in: float | None, moved_out: float | None) -> None:
        """Note what the data plane moved, bytes per second; None: not known."""
        for direction, rate in (("in", moved_in), ("out", moved_out)):
            self._moved_traffic.labels(direction).set(math.nan if rate is None else rate)

    def set_load(self, load: DataPlaneLoad | None) -> None:
        """Note how the data plane was since it was last asked; None: not known."""
        self._data_plane_load.set(load.load if load else math.nan)
        self._disk_healthy.set(load.disk.is_healthy if load else math.nan)
        wear = load.disk.wear if load else None
        self._disk_wear.set(math.nan if wear is None else wear)
        self._hit_share.clear()
        for tier, share in load.hits.items() if load else ():
            self._hit_share.labels(tier).set(share)
        self._peer_latency.clear()
        peers = load.peers.items() if load else ()
        for name, latency in itertools.islice(peers, PEERS_SHOWN_MAX):
            self._peer_latency.labels(name, "0.5").set(latency.p50_ms / 1000)
            self._peer_latency.labels(name, "0.99").set(latency.p99_ms / 1000)

    def set_links(self, counts: Mapping[str, int]) -> None:
        """Note the number of links in Nova's image cache by state."""
        for state, count in counts.items():
            self._image_links.labels(state).set(count)

    def note_local_file(self, outcome: str) -> None:
        """Count what became of a local file: ``made``, ``failed``, ``damaged`` or ``removed``."""
        self.local_file_jobs.labels(outcome).inc()

    def set_local_files(self, known_files: Iterable[KnownFile]) -> None:
        """Note the local files."""
        found = list(known_files)
        for state in LocalFileState:
            count = sum(each.state is state for each in found)
            self._local_files.labels(state.value).set(count)
        self._local_file_bytes.set(sum(each.data_bytes for each in found))

    def set_captures(self, records: Iterable[CaptureRecord]) -> None:
        """Note the captures of disks."""
        found = list(records)
        for state in CaptureState:
            self._captures.labels(state.value).set(sum(one.state is state for one in found))
        self._capture_held_bytes.set(sum(one.held_bytes for one in found))
        self._frozen_guests.set(len({one.frozen for one in found if one.frozen}))
        moments = [
            one.moment.created_at.timestamp()
            for one in found
            if one.moment is not None and one.state not in ENDED
        ]
        self._capture_age.set(max(0.0, time.time() - min(moments)) if moments else 0.0)

    def set_coverage(self, coverage: Mapping[str, float]) -> None:
        """Note the shares of working sets that this host holds, by image."""
        self._coverage.clear()
        for image, share in coverage.items():
            self._coverage.labels(image).set(share)

    def set_preloads(self, admitted_preloads: Iterable[AdmittedPreload]) -> None:
        """Note how far the admitted preloads are."""
        found, now = list(admitted_preloads), time.time()
        for state in AdmittedPreloadState:
            self._preloads.labels(state.value).set(sum(each.state is state for each in found))
        self._preloads_late.set(sum(each.is_late(now) for each in found))
        self._preload_remaining.clear()
        for each in found:
            if not each.state.has_ended:
                self._preload_remaining.labels(each.image).set(each.remaining_bytes)

    def text(self, data_plane_text: str = "") -> str:
        """Return these metrics and the data plane's as one OpenMetrics text."""
        own = exposition.generate_latest(self._registry).decode()  # type: ignore[no-untyped-call]
        parts = [_without_end(own), _without_end(data_plane_text)]
        return "".join(parts) + _END + "\n"


def _without_end(text: str) -> str:
    kept = text.rstrip().removesuffix(_END).rstrip()
    return kept + "\n" if kept else ""
