"""Hearing the states of hosts, on a thread beside the scheduler's own."""

import logging
from collections.abc import Callable
from typing import Any

from acstor.rpc import background_server
from acstor.rpc.background_server import BackgroundServer
from acstor.scheduler.host_table import HostTable
from acstor.telemetry.host_states import EXCHANGE, NAMESPACE, RPC_VERSION, TOPIC

LOG = logging.getLogger(__name__)

COMPLAINT_INTERVAL = 600.0
"""Seconds between two log lines about messages that are dropped for the same reason."""


class Listener(BackgroundServer):
    """Fills a table with the states that hosts tell.

    :param open_transport: returns an oslo.messaging RPC transport; called on the thread.
    :param server: name of this machine among the servers of the topic. It is the same for all
        workers of a scheduler: what is sent goes to all of them, and the queue that bears the name
        stays with the broker when they are gone.
    """

    def __init__(self, table: HostTable, open_transport: Callable[[], Any], server: str) -> None:
        self._open_transport = open_transport
        self._server_name = server
        self._endpoint = StateEndpoint(table)
        super().__init__(
            "acstor-host-states",
            self._listening,
            on_listening=lambda: LOG.info("listening to the states of ACStor's hosts"),
            on_failure=_report,
        )

    def _listening(self) -> Any:
        import oslo_messaging

        self._endpoint.target = oslo_messaging.Target(namespace=NAMESPACE, version=RPC_VERSION)
        return background_server.started(
            self._open_transport(),
            lambda opened: oslo_messaging.get_rpc_server(
                opened,
                oslo_messaging.Target(exchange=EXCHANGE, topic=TOPIC, server=self._server_name),
                [self._endpoint],
                access_policy=oslo_messaging.DefaultRPCAccessPolicy,
            ),
        )


class StateEndpoint:
    """Endpoint of oslo.messaging that receives host states."""

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


def _report(error: Exception, failures: int) -> None:
    if failures == 1:  # scheduling goes on without
        LOG.warning("no states of ACStor's hosts can be heard: %s", error)
