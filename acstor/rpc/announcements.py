"""Announcements to agents, and to workers, that something is new, so that they look at once.

An announcement is a hint: who misses it notices at the next look. So nothing here is retried for
long, nothing waits for the broker, and a deployment without a broker lacks nothing but speed.
"""

import contextlib
import logging
import queue
import threading
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg

from acstor.backoff import BackOff
from acstor.rpc import transport
from acstor.rpc.agent_server import DECISION_VERSION, EXCHANGE, NAMESPACE, RING_VERSION, TOPIC

LOG = logging.getLogger(__name__)

WAITING_MAX = 16
"""Announcements that wait for the broker; older ones are dropped."""
RECONNECT = BackOff(first=2.0, longest=30.0, shortest=0.5, spread=1.0)
"""Delays between two attempts to reach the broker."""
_SEND_TIMEOUT = 5.0


@dataclass(frozen=True)
class Announcement:
    """One cast to all servers of a topic."""

    method: str
    version: str
    """Least version of the interface with which a server knows the method."""
    arguments: dict[str, Any]
    topic: str = TOPIC
    namespace: str = NAMESPACE


class Announcements:
    """Sends announcements on a thread of its own, all of them in their turn.

    Agents take them by :class:`.AnnouncementEndpoint`.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._waiting: queue.Queue[Announcement | None] = queue.Queue()
        self._failures = 0  # attempts one after the other, of the thread
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcements", daemon=True)

    def start(self) -> None:
        """Send in the background what waits."""
        self._thread.start()

    def announce_ring(self, generation: int) -> None:
        """Tell all agents that a ring was published; never waits."""
        self._announce(Announcement("ring_published", RING_VERSION, {"generation": generation}))

    def announce_decision(self, *, concerns_all: bool) -> None:
        """Tell the agents that a decision is in force; never waits.

        :param concerns_all: whether it changes something on every host, not only the ring.
        """
        self._announce(
            Announcement("decision_published", DECISION_VERSION, {"concerns_all": concerns_all})
        )

    def announce_once(self, announcement: Announcement) -> None:
        """Tell something that stands for all that is told again before it is sent; never waits."""
        with self._waiting.mutex:
            is_waiting = announcement in self._waiting.queue
        if not is_waiting:
            self._announce(announcement)

    def stop(self, timeout: float) -> None:
        """Stop within ``timeout`` seconds."""
        self._is_stopping.set()
        self._waiting.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _announce(self, announcement: Announcement) -> None:
        while self._waiting.qsize() >= WAITING_MAX:
            with contextlib.suppress(queue.Empty):
                self._waiting.get_nowait()
        self._waiting.put(announcement)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                with transport.opened(self._conf) as opened:
                    self._send_all(opened)
            except Exception as error:
                # Drivers raise what their client libraries raise; a broker must not end this.
                self._failures += 1
                if self._failures == 1:
                    LOG.warning("message transport is away, looks find what is new: %s", error)
                self._is_stopping.wait(RECONNECT.seconds(self._failures))

    def _send_all(self, opened: Any) -> None:
        import oslo_messaging

        client = oslo_messaging.get_rpc_client(
            opened,
            oslo_messaging.Target(exchange=EXCHANGE, topic=TOPIC),
            timeout=_SEND_TIMEOUT,
            retry=0,
        )
        while (waiting := self._waiting.get()) is not None:
            prepared = client.prepare(
                fanout=True,
                topic=waiting.topic,
                namespace=waiting.namespace,
                version=waiting.version,
            )
            prepared.cast({}, waiting.method, **waiting.arguments)
            self._failures = 0
            LOG.debug("announced: %s %s", waiting.method, waiting.arguments)
