"""Watch over hosts: the newest state that each has told over the message bus.

Each process of the API listens by itself; every host tells every listener. Nothing is asked of
anybody, so that any number of viewers cost the hosts nothing.
"""

import dataclasses
import datetime
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.rpc import background_server
from acstor.rpc.background_server import BackgroundServer
from acstor.telemetry.host_states import EXCHANGE, NAMESPACE, RPC_VERSION, TOPIC, HostState

LOG = logging.getLogger(__name__)

SILENT_SECONDS = 300.0
"""Seconds after which what a host told last is forgotten: it tells every few seconds."""
HOSTS_MAX = 65_535
"""Most hosts that are remembered."""


@dataclasses.dataclass(frozen=True, slots=True)
class HeardState:
    """State of a host as it was heard."""

    state: HostState
    heard_at: datetime.datetime


class HostWatch:
    """Newest states of hosts; from any thread.

    It begins to listen when somebody looks for the first time in a process: a WSGI server makes
    others of the process that has loaded the application, and threads do not go with them.

    :param now: the time.
    :param listen: begins to listen.
    """

    def __init__(
        self,
        now: Callable[[], datetime.datetime] = version_refs.utc_now,
        listen: Callable[["HostWatch"], None] = lambda watch: None,
    ) -> None:
        """Know nothing yet."""
        self._now = now
        self._listen = listen
        self._lock = threading.Lock()  # of what follows
        self._heard: dict[str, HeardState] = {}
        self._listening_in: int | None = None

    def note(self, message: object) -> None:
        """Take what a host tells; what is older than what it told before is dropped.

        :raises AcstorError: when it makes no sense.
        """
        state = HostState.from_message(message)
        heard = HeardState(state, self._now())
        with self._lock:
            known = self._heard.get(state.host)
            if known is not None and known.state.sequence >= state.sequence:
                return
            if known is None and len(self._heard) >= HOSTS_MAX:
                raise exception.ExhaustedError(f"more than {HOSTS_MAX} hosts tell of themselves")
            self._heard[state.host] = heard

    def states(self) -> Mapping[str, HeardState]:
        """Return what was heard lately, by host."""
        bound = self._now() - datetime.timedelta(seconds=SILENT_SECONDS)
        with self._lock:
            process = os.getpid()
            if self._listening_in != process:
                self._listening_in = process
                self._listen(self)
            self._heard = {
                host: heard for host, heard in self._heard.items() if heard.heard_at >= bound
            }
            return dict(self._heard)


class WatchEndpoint:
    """Endpoint that oslo.messaging may call."""

    def __init__(self, watch: HostWatch) -> None:
        """Keep what is told."""
        self.target: Any = None
        self._watch = watch
        self._complained: set[str] = set()

    def host_state(self, context: dict[str, Any], state: object = None, **more: object) -> None:
        """Note the state of a host; what cannot be understood is dropped."""
        del context, more
        try:
            self._watch.note(state)
        except exception.AcstorError as error:
            kind = type(error).__name__
            if kind not in self._complained:
                self._complained.add(kind)
                LOG.warning("dropped a host state, and others like it: %s", error)


def listener(watch: HostWatch, open_transport: Callable[[], Any], server: str) -> BackgroundServer:
    """Return what listens on a thread of its own.

    :param open_transport: returns an RPC transport of oslo.messaging; called on the thread.
    :param server: name of this process among the servers of the topic.
    """
    endpoint = WatchEndpoint(watch)

    def listening() -> Any:
        import oslo_messaging

        endpoint.target = oslo_messaging.Target(namespace=NAMESPACE, version=RPC_VERSION)
        return background_server.started(
            open_transport(),
            lambda opened: oslo_messaging.get_rpc_server(
                opened,
                oslo_messaging.Target(exchange=EXCHANGE, topic=TOPIC, server=server),
                [endpoint],
                executor="threading",
                access_policy=oslo_messaging.DefaultRPCAccessPolicy,
            ),
        )

    def failed(error: Exception, failures: int) -> None:
        if failures == 1:
            LOG.warning("no states of hosts can be heard: %s", exception.one_line(error))

    return BackgroundServer("api-host-states", listening, on_failure=failed)
