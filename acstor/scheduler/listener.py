"""Hearing the states of hosts, on a thread beside the scheduler's own."""

import contextlib
import logging
import random
import threading
from collections.abc import Callable
from typing import Any

from acstor.rpc.host_states import EXCHANGE, NAMESPACE, RPC_VERSION, TOPIC
from acstor.scheduler.host_table import HostTable

LOG = logging.getLogger(__name__)

RECONNECT_DELAY_MAX = 30.0
COMPLAINT_INTERVAL = 600.0
"""Seconds between two log lines about messages that are dropped for the same reason."""


class Listener:
    """Connects when started, again whenever that fails, and fills a table.

    Once connected, oslo.messaging follows the broker through its restarts by itself.

    :param open_transport: returns an oslo.messaging RPC transport; called on the thread.
    :param server: name of this machine among the servers of the topic. It is the same for all
        workers of a scheduler: what is sent goes to all of them, and the queue that bears the name
        stays with the broker when they are gone.
    """

    def __init__(self, table: HostTable, open_transport: Callable[[], Any], server: str) -> None:
        self._open_transport = open_transport
        self._server_name = server
        self._endpoint = StateEndpoint(table)
        self._is_stopping = threading.Event()
        self.is_listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acstor-host-states", daemon=True)

    def start(self) -> None:
        """Listen in the background."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop within ``timeout`` seconds."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        failures = 0
        while not self._is_stopping.is_set():
            transport: Any = None
            server: Any = None
            try:
                transport = self._open_transport()
                server = self._serve(transport)
                LOG.info("listening to the states of ACStor's hosts")
                self.is_listening.set()
                failures = 0
                self._is_stopping.wait()
            except Exception as error:
                # Drivers raise what their client libraries raise; scheduling goes on without.
                failures += 1
                if failures == 1:
                    LOG.warning("no states of ACStor's hosts can be heard: %s", error)
                longest = min(RECONNECT_DELAY_MAX, float(2 ** min(failures, 8)))
                self._is_stopping.wait(random.uniform(0.5, longest))
            finally:
                self.is_listening.clear()
                _close(server, transport)

    def _serve(self, transport: Any) -> Any:
        import oslo_messaging

        self._endpoint.target = oslo_messaging.Target(namespace=NAMESPACE, version=RPC_VERSION)
        server = oslo_messaging.get_rpc_server(
            transport,
            oslo_messaging.Target(exchange=EXCHANGE, topic=TOPIC, server=self._server_name),
            [self._endpoint],
            access_policy=oslo_messaging.DefaultRPCAccessPolicy,
        )
        server.start()
        return server


class StateEndpoint:
    """What oslo.messaging may call."""

    def __init__(self, table: HostTable, clock: Callable[[], float] | None = None) -> None:
        self.target: Any = None
        self._table = table
        self._clock = clock or table.clock
        self._complained: dict[str, float] = {}

    def host_state(self, context: dict[str, Any], state: object = None, **more: object) -> None:
        """Note the state of a host; what cannot be understood is counted and dropped."""
        outcome = self._table.take(state)
        if outcome in {"taken", "old"}:
            return
        now = self._clock()
        if now - self._complained.get(outcome, float("-inf")) >= COMPLAINT_INTERVAL:
            self._complained[outcome] = now
            LOG.warning(
                "dropped a host state: %s (%d so far)", outcome, self._table.counts[outcome]
            )


def _close(server: Any, transport: Any) -> None:
    steps = [server.stop, server.wait] if server is not None else []
    if transport is not None:
        steps.append(transport.cleanup)
    for step in steps:
        with contextlib.suppress(Exception):
            step()
