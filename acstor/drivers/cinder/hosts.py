"""Asking the hosts that have volumes open, through their agents."""

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from acstor import exception
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.signature import Signer

LOG = logging.getLogger(__name__)

CALLS_AT_A_TIME_MAX = 16
_MARGIN = 5.0
"""Seconds that an agent has beyond what its data plane was given."""


class Hosts(Protocol):
    """The hosts as the driver sees them; tests put their own."""

    def call(
        self, host: str, method: str, *, timeout: float | None = None, **arguments: object
    ) -> Any:
        """Call a method of a host's agent.

        :param timeout: seconds; None: the ordinary one.
        :raises AcstorError: of the kind with which the host answers, or ``unavailable``.
        """


class AgentHosts:
    """Hosts whose agents listen on a message transport.

    :param open_transport: returns an oslo.messaging RPC transport; called at the first call.
    :param timeout: seconds that a call takes at most where it says nothing else.
    :param secret: with which calls are signed; None: they are not.
    """

    def __init__(
        self, open_transport: Callable[[], Any], timeout: float, secret: str | None = None
    ) -> None:
        self._signer = Signer(secret)
        self._open_transport = open_transport
        self._timeout = timeout
        self._lock = threading.Lock()
        self._transport: Any = None
        self._clients: dict[float, AgentClient] = {}

    def call(
        self, host: str, method: str, *, timeout: float | None = None, **arguments: object
    ) -> Any:
        """Call a method of a host's agent; errors as :class:`Hosts` says."""
        return self._client(timeout or self._timeout).call(host, method, **arguments)

    def _client(self, timeout: float) -> AgentClient:
        with self._lock:
            if self._transport is None:
                self._transport = self._open_transport()
            if timeout not in self._clients:
                self._clients[timeout] = AgentClient(
                    self._transport, timeout + _MARGIN, self._signer
                )
            return self._clients[timeout]


def call_each(
    actions: Mapping[str, Callable[[], Any]],
) -> dict[str, Any | exception.AcstorError]:
    """Run actions at the same time.

    :returns: what each returned, or the error that it raised.
    """

    def run(action: Callable[[], Any]) -> Any:
        try:
            return action()
        except exception.AcstorError as error:
            return error

    if not actions:
        return {}
    workers = min(len(actions), CALLS_AT_A_TIME_MAX)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return dict(zip(actions, pool.map(run, actions.values()), strict=True))


def first_error(answers: Mapping[str, Any], names: Sequence[str] = ()) -> Any:
    """Return an error among answers, None when there is none."""
    return next(
        (
            answer
            for name, answer in answers.items()
            if isinstance(answer, exception.AcstorError) and (not names or name in names)
        ),
        None,
    )
