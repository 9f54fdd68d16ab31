"""The direct feed: states that agents tell over the message bus."""

import logging
import time
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.policy.load_samples import DIRECT, LoadSamples, Sample
from acstor.rpc import background_server
from acstor.rpc.background_server import BackgroundServer
from acstor.telemetry.host_states import EXCHANGE, NAMESPACE, RPC_VERSION, TOPIC, HostState

LOG = logging.getLogger(__name__)

COMPLAINT_INTERVAL = 600.0
"""Seconds between two log lines about messages that are dropped for the same reason."""


class StateListener(BackgroundServer):
    """Fills load samples with what hosts tell.

    :param open_transport: returns an oslo.messaging RPC transport; called on the thread.
    :param server: name of this service among the servers of the topic.
    """

    def __init__(
        self, load_samples: LoadSamples, open_transport: Callable[[], Any], server: str
    ) -> None:
        self._open_transport = open_transport
        self._server_name = server
        self.endpoint = StateEndpoint(load_samples)
        self.problem: str | None = None
        super().__init__(
            "policy-host-states",
            self._listening,
            on_listening=self._note_listening,
            on_failure=self._note_failure,
        )

    def _listening(self) -> Any:
        import oslo_messaging

        self.endpoint.target = oslo_messaging.Target(namespace=NAMESPACE, version=RPC_VERSION)
        return background_server.started(
            self._open_transport(),
            lambda opened: oslo_messaging.get_rpc_server(
                opened,
                oslo_messaging.Target(exchange=EXCHANGE, topic=TOPIC, server=self._server_name),
                [self.endpoint],
                executor="threading",
                access_policy=oslo_messaging.DefaultRPCAccessPolicy,
            ),
        )

    def _note_listening(self) -> None:
        self.problem = None
        LOG.info("listening to the states of hosts")

    def _note_failure(self, error: Exception, failures: int) -> None:
        self.problem = exception.one_line(error)
        if failures == 1:
            LOG.warning("no states of hosts can be heard: %s", self.problem)


class StateEndpoint:
    """Endpoint that oslo.messaging may call."""

    def __init__(
        self,
        load_samples: LoadSamples,
        clock: Callable[[], float] = time.monotonic,
        posix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.target: Any = None
        self._load_samples = load_samples
        self._clock = clock
        self._posix_clock = posix_clock
        self._complained: dict[str, float] = {}

    def host_state(self, context: dict[str, Any], state: object = None, **more: object) -> None:
        """Note the state of a host; what cannot be understood is counted and dropped."""
        del context, more
        try:
            outcome = self._note(HostState.from_message(state))
        except exception.AcstorError as error:
            outcome = f"malformed: {error}"
            self._load_samples.count(DIRECT, "malformed")
        if outcome not in {"taken", "clamped", "old"}:
            self._complain(outcome)

    def _note(self, state: HostState) -> str:
        outcome = self._load_samples.note(
            Sample(
                state.host,
                DIRECT,
                self._posix_clock(),
                state.extra_in,
                state.extra_out,
                state.moved_in,
                state.moved_out,
                state.link_bytes_per_s,
                state.load,
                state.is_up,
                state.is_draining,
                state.sequence,
            )
        )
        if state.sketch is not None:
            self._load_samples.note_sketch(state.host, state.sketch)
        return outcome if outcome in {"taken", "clamped", "old"} else f"{outcome}: {state.host}"

    def _complain(self, outcome: str) -> None:
        now, kind = self._clock(), outcome.partition(":")[0]
        if now - self._complained.get(kind, float("-inf")) >= COMPLAINT_INTERVAL:
            self._complained[kind] = now
            LOG.warning("dropped a host state: %s", outcome)
