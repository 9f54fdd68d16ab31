"""Telling the other agents that something is new, so that they look at once.

An announcement is a hint: who misses it notices at the next look. So nothing here is retried for
long, nothing waits for the broker, and a deployment without a broker lacks nothing but speed.
"""

import contextlib
import logging
import queue
import random
import threading
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from acstor.conf import loading

LOG = logging.getLogger(__name__)

TOPIC = "acstor-agent"
NAMESPACE = "acstor.agent"
VERSION = "1.0"
"""1.0: ring_published(generation)."""
WAITING_MAX = 16
"""Announcements that wait for the broker; older ones are dropped."""
RECONNECT_DELAY_MAX = 30.0
_SEND_TIMEOUT = 5.0


def is_configured(conf: cfg.ConfigOpts) -> bool:
    """Return whether the operator names a message transport (``[DEFAULT] transport_url``)."""
    return loading.is_written(conf, "DEFAULT", "transport_url")


class Announcements:
    """Sends and receives announcements on threads of its own.

    :param host: name of this host, its server name on the topic.
    :param on_ring: called with the generation that somebody published.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, on_ring: Callable[[int], None]) -> None:
        self._conf = conf
        self._host = host
        self._on_ring = on_ring
        self._waiting: queue.Queue[int | None] = queue.Queue()
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcements", daemon=True)
        self._server: Any = None
        self._client: Any = None
        self.is_connected = threading.Event()

    def start(self) -> None:
        """Connect in the background."""
        self._thread.start()

    def announce_ring(self, generation: int) -> None:
        """Tell all agents that a ring was published; never waits."""
        while self._waiting.qsize() >= WAITING_MAX:
            with contextlib.suppress(queue.Empty):
                self._waiting.get_nowait()
        self._waiting.put(generation)

    def stop(self, timeout: float) -> None:
        """Stop within ``timeout`` seconds."""
        self._is_stopping.set()
        self._waiting.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def ring_published(self, context: dict[str, Any], generation: object) -> None:
        """Take the announcement of another agent (called by oslo.messaging)."""
        if isinstance(generation, int) and not isinstance(generation, bool):
            self._on_ring(generation)

    def _run(self) -> None:
        failures = 0
        while not self._is_stopping.is_set():
            try:
                self._connect()
                failures = 0
                self._send_all()
            except Exception as error:
                # Drivers raise what their client libraries raise; a broker must not end this.
                failures += 1
                if failures == 1:
                    LOG.warning("message transport is away, looks find what is new: %s", error)
                longest = min(RECONNECT_DELAY_MAX, float(2 ** min(failures, 8)))
                self._is_stopping.wait(random.uniform(0.5, longest))
            finally:
                self._disconnect()

    def _connect(self) -> None:
        # Heavy, and not needed where there is no broker.
        import oslo_messaging

        # oslo.messaging registers some of its options with the global configuration only, and
        # looks for them in the transport's: so that one it is, reading the same files.
        files = list(self._conf.config_file or [])
        cfg.CONF([], project="acstor", default_config_files=files, default_config_dirs=[])
        transport = oslo_messaging.get_rpc_transport(cfg.CONF)
        target = oslo_messaging.Target(topic=TOPIC, server=self._host)
        endpoint = _Endpoint(self, oslo_messaging.Target(namespace=NAMESPACE, version=VERSION))
        self._server = oslo_messaging.get_rpc_server(
            transport,
            target,
            [endpoint],
            access_policy=oslo_messaging.DefaultRPCAccessPolicy,
        )
        self._server.start()
        self._client = oslo_messaging.get_rpc_client(
            transport,
            oslo_messaging.Target(topic=TOPIC, namespace=NAMESPACE, version=VERSION),
            timeout=_SEND_TIMEOUT,
            retry=0,
        )
        self.is_connected.set()

    def _send_all(self) -> None:
        while (generation := self._waiting.get()) is not None:
            caller = self._client.prepare(fanout=True)
            caller.cast({}, "ring_published", generation=generation)
            LOG.debug("announced ring generation %d", generation)

    def _disconnect(self) -> None:
        self.is_connected.clear()
        server, self._server = self._server, None
        if server is not None:
            for step in (server.stop, server.wait, server.transport.cleanup):
                with contextlib.suppress(Exception):
                    step()


class _Endpoint:
    """What oslo.messaging may call; nothing else of :class:`Announcements` is reachable."""

    def __init__(self, announcements: Announcements, target: Any) -> None:
        self.target = target
        self._announcements = announcements

    def ring_published(self, context: dict[str, Any], generation: object) -> None:
        self._announcements.ring_published(context, generation)
