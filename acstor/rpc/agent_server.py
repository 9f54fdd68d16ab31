"""The agent's end of its messages: one server per host on the topic of the agents.

The page ``doc/source/reference/protocols/agent-rpc.rst`` describes every message.
"""

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from oslo_config import cfg

from acstor import exception
from acstor.rpc import transport

LOG = logging.getLogger(__name__)

TOPIC = "acstor-agent"
NAMESPACE = "acstor.agent"
VERSION = "1.1"
"""1.0: ring_published. 1.1: preload_estimate, preload_start, preload_status, preload_stop."""
RING_VERSION = "1.0"
RECONNECT_DELAY_MAX = 30.0
"""Longest delay between two attempts to listen, seconds."""


class RingEndpoint:
    """Takes announcements of rings.

    :param on_ring: called with the generation that somebody published.
    """

    def __init__(self, on_ring: Callable[[int], None]) -> None:
        self.target = make_target(RING_VERSION)
        self._on_ring = on_ring

    def ring_published(self, context: dict[str, Any], generation: object = None) -> None:
        """Take the announcement of another agent (a cast: nobody hears of an error)."""
        if isinstance(generation, int) and not isinstance(generation, bool):
            self._on_ring(generation)


def make_target(version: str) -> Any:
    """Return what an endpoint of that version answers to."""
    transport.use_threads()
    import oslo_messaging

    return oslo_messaging.Target(namespace=NAMESPACE, version=version)


def answered(host: str, method: Callable[[], object]) -> dict[str, object]:
    """Return the answer to a call: what ``method`` returns, or the error that it raises.

    Errors travel as values, so that they arrive as what they are whatever the broker's client
    library makes of exceptions.
    """
    try:
        return {"result": method()}
    except exception.AcstorError as error:
        refusal = error
    except Exception:
        LOG.exception("a call of another host failed")
        refusal = exception.InternalError(
            f"internal error on host {host}", hint="see the log of acstor-agent there"
        )
    return {"error": {"kind": str(refusal.kind), "message": refusal.message, "hint": refusal.hint}}


class AgentServer:
    """Listens on a thread of its own; connects again and again until there is a broker.

    Once connected, oslo.messaging itself comes back when the broker does.

    :param host: name of this host, its server name on the topic.
    :param endpoints: objects with a ``target``; only their public methods can be called.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, endpoints: Sequence[object]) -> None:
        self._conf = conf
        self._host = host
        self._endpoints = list(endpoints)
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent-rpc", daemon=True)
        self.is_listening = threading.Event()

    def start(self) -> None:
        """Connect in the background."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop within ``timeout`` seconds."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        failures = 0
        while not self._is_stopping.is_set():
            server: Any = None
            try:
                server = self._listen()
                failures = 0
                self._is_stopping.wait()
            except Exception as error:
                # Drivers raise what their client libraries raise; a broker must not end this.
                failures += 1
                if failures == 1:
                    LOG.warning("cannot listen to other hosts, will try again: %s", error)
                longest = min(RECONNECT_DELAY_MAX, float(2 ** min(failures, 8)))
                self._is_stopping.wait(random.uniform(0.5, longest))
            finally:
                self.is_listening.clear()
                _close(server)

    def _listen(self) -> Any:
        import oslo_messaging

        server = oslo_messaging.get_rpc_server(
            transport.open_transport(self._conf),
            oslo_messaging.Target(topic=TOPIC, server=self._host),
            self._endpoints,
            access_policy=oslo_messaging.DefaultRPCAccessPolicy,
        )
        try:
            server.start()
        except BaseException:
            _close(server)
            raise
        self.is_listening.set()
        LOG.info("listening as %s on %s", self._host, TOPIC)
        return server


def _close(server: Any) -> None:
    if server is not None:
        for step in (server.stop, server.wait, server.transport.cleanup):
            with contextlib.suppress(Exception):
                step()
