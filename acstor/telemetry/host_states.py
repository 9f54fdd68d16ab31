"""Telling schedulers and policy services how a host is: the message, and who sends it.

The page is ``doc/source/reference/protocols/host-state.rst``. Each message is complete, so one that
is lost is made good by the next; nothing is retried, and nothing here makes anybody wait for the
broker. This module is imported by nova-scheduler too: it imports nothing heavy.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from acstor import exception, untrusted_json
from acstor.backoff import BackOff
from acstor.telemetry import host_state_details
from acstor.telemetry.host_state_details import ChunkSketch, DiskHealth, PeerLatency

LOG = logging.getLogger(__name__)

HOST_STATE_VERSION = 1
"""Raised when a field changes its meaning; unknown fields are ignored."""
TOPIC = "acstor-host-state"
EXCHANGE = "acstor"
"""Named, since Nova's own messages use another default exchange than ours."""
NAMESPACE = "acstor.host_state"
RPC_VERSION = "1.0"
"""1.0: host_state(state)."""

HOST_LENGTH_MAX = 255
RELEASE_LENGTH_MAX = 64
COVERAGE_IMAGES_MAX = 256
"""Images whose coverage one message tells."""
LISTED_IMAGES_MAX = 256
"""Registered images that one message lists."""
RATE_MAX = 1e13
"""Bytes per second beyond which a figure is taken for a fault."""
SEQUENCE_MAX = (1 << 63) - 1
RECONNECT = BackOff(first=2.0, longest=30.0, shortest=0.5, spread=1.0)
"""Delays between two attempts to reach the broker."""
_SEND_TIMEOUT = 5.0
_COVERAGE_DIGITS = 3

_HOST = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_IMAGE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class HostState:
    """State of one host at one moment."""

    host: str
    """``[DEFAULT] host`` of the agent, lower case."""
    sequence: int
    """Greater than that of any message that the host sent before."""
    release: str
    is_up: bool
    """True if its data plane serves its guests."""
    is_draining: bool
    extra_in: float | None = None
    """Extra traffic received, bytes per second; None: not known."""
    extra_out: float | None = None
    """Extra traffic sent, bytes per second; None: not known."""
    link_bytes_per_s: float | None = None
    """Speed of its links in one direction; None: not known."""
    coverage: Mapping[str, float] = field(default_factory=dict)
    """By image id the share of the image's boot working set that the host holds, 0 to 1."""
    images: tuple[str, ...] = ()
    """Ids of some registered images; successive messages list others."""
    moved_in: float | None = None
    """Traffic that the data plane received over the network, bytes per second; None: not told."""
    moved_out: float | None = None
    """Traffic that the data plane sent, bytes per second; None: not told."""
    load: float | None = None
    """Load of the data plane, 0 to 1; None: not told."""
    sketch: ChunkSketch | None = None
    """Sketch of the chunks that the host holds; None: not told."""
    peers: Mapping[str, PeerLatency] = field(default_factory=dict)
    """Latency of some peers, as the host found it."""
    disk: DiskHealth | None = None
    """Health of the disk of the chunk store; None: not told."""

    def to_message(self) -> dict[str, Any]:
        """Return the message as JSON can carry it; what is optional and not known is left out."""
        optional = {
            "moved_in": _rounded(self.moved_in, 0),
            "moved_out": _rounded(self.moved_out, 0),
            "load": _rounded(self.load, _COVERAGE_DIGITS),
            "sketch": self.sketch.to_message() if self.sketch else None,
            "peers": host_state_details.peers_to_message(self.peers) or None,
            "disk": host_state_details.disk_to_message(self.disk),
        }
        return self._required() | {
            name: value for name, value in optional.items() if value is not None
        }

    def _required(self) -> dict[str, Any]:
        return {
            "version": HOST_STATE_VERSION,
            "host": self.host,
            "sequence": self.sequence,
            "release": self.release,
            "is_up": self.is_up,
            "is_draining": self.is_draining,
            "extra_in": _rounded(self.extra_in, 0),
            "extra_out": _rounded(self.extra_out, 0),
            "link_bytes_per_s": _rounded(self.link_bytes_per_s, 0),
            "coverage": {
                image: round(share, _COVERAGE_DIGITS)
                for image, share in sorted(self.coverage.items())
            },
            "images": list(self.images),
        }

    @classmethod
    def from_message(cls, message: object) -> "HostState":
        """Return the state that a message tells.

        :raises UnsupportedError: for another version.
        :raises InvalidError: for anything that no agent sends.
        """
        if not isinstance(message, Mapping):
            raise exception.InvalidError("is no object")
        version = message.get("version")
        if type(version) is not int or version != HOST_STATE_VERSION:
            raise exception.UnsupportedError(f"version {version!r:.20}")
        return cls(
            host=_text(message, "host", HOST_LENGTH_MAX, _HOST),
            sequence=_sequence(message),
            release=_text(message, "release", RELEASE_LENGTH_MAX),
            is_up=_flag(message, "is_up"),
            is_draining=_flag(message, "is_draining"),
            extra_in=_rate(message, "extra_in"),
            extra_out=_rate(message, "extra_out"),
            link_bytes_per_s=_rate(message, "link_bytes_per_s"),
            coverage=_coverage(message),
            images=_images(message),
            moved_in=_rate(message, "moved_in"),
            moved_out=_rate(message, "moved_out"),
            load=host_state_details.share_from_message(message, "load"),
            sketch=ChunkSketch.from_message(message.get("sketch")),
            peers=host_state_details.peers_from_message(message.get("peers")),
            disk=host_state_details.disk_from_message(message.get("disk")),
        )


def most_covered(coverage: Mapping[str, float]) -> dict[str, float]:
    """Return what fits into one message: the images of which the host holds most."""
    if len(coverage) <= COVERAGE_IMAGES_MAX:
        return dict(coverage)
    ordered = sorted(coverage.items(), key=lambda pair: (-pair[1], pair[0]))
    return dict(ordered[:COVERAGE_IMAGES_MAX])


class HostStateSender:
    """Sends the newest state on a thread of its own.

    While the broker is away only the newest state is kept.

    :param open_transport: returns an oslo.messaging RPC transport; may block.
    :param on_outcome: called with ``sent`` or ``failed``, for metrics.
    """

    def __init__(
        self,
        open_transport: Callable[[], Any],
        on_outcome: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self._open_transport = open_transport
        self._on_outcome = on_outcome
        self._condition = threading.Condition()  # of the three below
        self._newest: HostState | None = None
        self._is_stopping = False
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="host-state-sender", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def send(self, state: HostState) -> None:
        """Have this state sent, instead of any that still waits; never blocks on the broker."""
        with self._condition:
            self._newest = state
            self._condition.notify()

    def stop(self, timeout: float) -> None:
        """End the thread, within ``timeout`` seconds."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._is_stopping:
            transport: Any = None
            try:
                transport = self._open_transport()
                self._send_all(_client(transport))
            except Exception as error:
                # Drivers raise what their client libraries raise; a broker must not end this.
                self._on_outcome("failed")
                self._failures += 1
                if self._failures == 1:
                    LOG.warning("host state is not sent, schedulers do without: %s", error)
                self._pause()
            finally:
                _close(transport)

    def _send_all(self, client: Any) -> None:
        while (state := self._next()) is not None:
            client.cast({}, "host_state", state=state.to_message())
            if self._failures:
                LOG.info("host state is sent again")
            self._failures = 0
            self._on_outcome("sent")

    def _next(self) -> HostState | None:
        with self._condition:
            self._condition.wait_for(lambda: self._newest is not None or self._is_stopping)
            state, self._newest = self._newest, None
            return None if self._is_stopping else state

    def _pause(self) -> None:
        pause = RECONNECT.seconds(self._failures)
        with self._condition:
            self._condition.wait_for(lambda: self._is_stopping, pause)


class SequenceNumbers:
    """Numbers that grow, over restarts of the process as well while its clock does not go back."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        """Return the next number: milliseconds since the epoch, or one more than the last."""
        self._last = max(self._last + 1, int(self._clock() * 1000))
        return self._last


def _client(transport: Any) -> Any:
    import oslo_messaging  # heavy, and not needed where there is no broker

    target = oslo_messaging.Target(
        exchange=EXCHANGE, topic=TOPIC, namespace=NAMESPACE, version=RPC_VERSION, fanout=True
    )
    return oslo_messaging.get_rpc_client(transport, target, timeout=_SEND_TIMEOUT, retry=0)


def _close(transport: Any) -> None:
    if transport is not None:
        try:
            transport.cleanup()
        except Exception as error:
            LOG.debug("closing the message transport: %s", error)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _text(
    message: Mapping[str, Any], name: str, length_max: int, pattern: re.Pattern[str] | None = None
) -> str:
    value = message.get(name)
    if (
        not isinstance(value, str)
        or len(value) > length_max
        or (pattern is not None and pattern.fullmatch(value) is None)
    ):
        raise exception.InvalidError(f"{name} = {value!r:.100}")
    return value


def _flag(message: Mapping[str, Any], name: str) -> bool:
    value = message.get(name)
    if not isinstance(value, bool):
        raise exception.InvalidError(f"{name} = {value!r:.100}")
    return value


def _sequence(message: Mapping[str, Any]) -> int:
    value = message.get("sequence")
    if type(value) is not int or not 0 <= value <= SEQUENCE_MAX:
        raise exception.InvalidError(f"sequence = {value!r:.100}")
    return value


def _is_number(value: object, highest: float) -> bool:
    return untrusted_json.is_number(value, 0, highest)


def _rate(message: Mapping[str, Any], name: str) -> float | None:
    value = message.get(name)
    if value is None:
        return None
    if not _is_number(value, RATE_MAX):
        raise exception.InvalidError(f"{name} = {value!r:.100}")
    return float(value)


def _coverage(message: Mapping[str, Any]) -> dict[str, float]:
    value = message.get("coverage")
    if not isinstance(value, Mapping) or len(value) > COVERAGE_IMAGES_MAX:
        raise exception.InvalidError("coverage is no object of a permitted size")
    for image, share in value.items():
        if not _is_image(image) or not _is_number(share, 1.0):
            raise exception.InvalidError(f"coverage of {image!r:.50} = {share!r:.50}")
    return {image: float(share) for image, share in value.items()}


def _images(message: Mapping[str, Any]) -> tuple[str, ...]:
    value = message.get("images")
    if not isinstance(value, list) or len(value) > LISTED_IMAGES_MAX:
        raise exception.InvalidError("images is no list of a permitted length")
    for image in value:
        if not _is_image(image):
            raise exception.InvalidError(f"image {image!r:.50}")
    return tuple(value)


def _is_image(value: object) -> bool:
    return isinstance(value, str) and _IMAGE.fullmatch(value) is not None
