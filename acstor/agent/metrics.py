"""What the agent counts, for Prometheus. ``doc/source/admin/metrics-agent.rst`` lists it.

Names are constants so that a test can compare them with the page.
"""

import prometheus_client
from prometheus_client.openmetrics import exposition

from acstor.agent.states import AgentState

STATE = "acstor_agent_state"
MEMBERS = "acstor_agent_members"
PUBLISHED_GENERATION = "acstor_agent_ring_published_generation"
USED_GENERATION = "acstor_agent_ring_used_generation"
PUBLICATIONS = "acstor_agent_ring_publications"
IMAGES = "acstor_agent_images"
LOOKS = "acstor_agent_looks"
LOOK_SECONDS = "acstor_agent_look_seconds"
UP = "acstor_agent_up"
PINNED_BYTES = "acstor_agent_pinned_bytes"

ALL = (
    STATE,
    MEMBERS,
    PUBLISHED_GENERATION,
    USED_GENERATION,
    PUBLICATIONS,
    IMAGES,
    LOOKS,
    LOOK_SECONDS,
    UP,
    PINNED_BYTES,
)

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
        self.images = prometheus_client.Gauge(
            IMAGES, "Images, by what they are", ["kind"], registry=registry
        )
        self.looks = prometheus_client.Counter(
            LOOKS, "Looks at members, ring and images, by outcome", ["outcome"], registry=registry
        )
        self.look_seconds = prometheus_client.Histogram(
            LOOK_SECONDS, "Time that looks took", registry=registry
        )
        self.up = prometheus_client.Gauge(
            UP, "Whether a neighbour answered at the last look", ["neighbour"], registry=registry
        )
        self.pinned_bytes = prometheus_client.Gauge(
            PINNED_BYTES, "Bytes pinned of images, by image", ["image"], registry=registry
        )

    def set_state(self, current: AgentState) -> None:
        """Note the state."""
        for state in AgentState:
            self._state.labels(state.value).set(state is current)

    def set_images(self, **counts: int) -> None:
        """Note the number of images by what they are."""
        for kind, count in counts.items():
            self.images.labels(kind).set(count)

    def text(self, data_plane_text: str = "") -> str:
        """Return these metrics and the data plane's as one OpenMetrics text."""
        own = exposition.generate_latest(self._registry).decode()  # type: ignore[no-untyped-call]
        parts = [_without_end(own), _without_end(data_plane_text)]
        return "".join(parts) + _END + "\n"


def _without_end(text: str) -> str:
    kept = text.rstrip().removesuffix(_END).rstrip()
    return kept + "\n" if kept else ""
