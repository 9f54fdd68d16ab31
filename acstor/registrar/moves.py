"""Servers that move: what Nova says on the message bus is passed to the hosts that they go to.

One registrar hears all of Nova and calls the one agent that is concerned, so that a deployment of
many hosts does not send every notification to every host. A notification is a hint, and is lost
with whoever has it: the server then comes cold.
"""

import collections
import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg

from acstor import exception
from acstor.control.hand_over import HandOverRequest, MoveKind, checked_host, checked_id, ids_in
from acstor.rpc import background_server, transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.background_server import BackgroundServer
from acstor.rpc.signature import Signer, secrets_of

LOG = logging.getLogger(__name__)

STARTS = {
    "instance.live_migration_pre.start": MoveKind.LIVE,
    "instance.resize_prep.start": MoveKind.COLD,
    "instance.rebuild_scheduled": MoveKind.EVACUATION,
}
"""Versioned notifications of a move, which the host that the server goes to sends (the conductor in
the name of that host, for an evacuation). ``host`` of the server is the one that it comes from."""
FAILURES = (
    "instance.live_migration_rollback.start",
    "instance.live_migration_rollback_dest.start",
    "instance.resize.error",
    "instance.rebuild.error",
)
"""Versioned notifications of a move that ends where it began."""
CALLS_MAX = 256
"""Calls that wait for agents; older ones are dropped: their servers have come by then."""
TARGETS_MAX = 4096
"""Moves whose host is remembered until they end or fail."""
CALL_TIMEOUT = 10.0
"""Seconds for an agent to answer, which it does at once."""
_DATA = "nova_object.data"


@dataclasses.dataclass(frozen=True, slots=True)
class StartedMove:
    """A server that is about to come to a host."""

    target: str
    request: HandOverRequest


@dataclasses.dataclass(frozen=True, slots=True)
class FailedMove:
    """A server that does not come."""

    instance: str
    publisher: str
    """Host that says so: the one that it did not come to, or the one that it stays at."""


def move_of(
    publisher_id: object, event_type: object, payload: object
) -> StartedMove | FailedMove | None:
    """Return the move that a notification tells of, None where it tells of none."""
    try:
        publisher = _host(str(publisher_id).partition(":")[2])
        data = _object_data(payload)
        instance = checked_id(data.get("uuid"), "an instance")
        if event_type in FAILURES:
            return FailedMove(instance, publisher)
        kind = STARTS[str(event_type)]
        source = _host(data.get("host"))
    except (exception.InvalidError, KeyError) as error:
        LOG.debug("ignoring a notification %r of %r: %s", event_type, publisher_id, error)
        return None
    if source == publisher:
        return None  # a rebuild, or a resize, where it is
    request = HandOverRequest(
        instance, kind, source, ids_in([data.get("image_uuid")]), _volumes(data)
    )
    return StartedMove(publisher, request) if request.images or request.volumes else None


def _host(name: object) -> str:
    """Return a host's name as ACStor has it, in lower case."""
    return checked_host(name.lower() if isinstance(name, str) else name)


def _object_data(payload: object) -> Mapping[str, Any]:
    data = payload.get(_DATA) if isinstance(payload, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _volumes(data: Mapping[str, Any]) -> tuple[str, ...]:
    devices = data.get("block_devices")
    if not isinstance(devices, list):
        return ()  # Nova tells of them where [notifications] bdms_in_notifications is set
    return ids_in([_object_data(device).get("volume_id") for device in devices])


class MoveFollower:
    """Listens, and calls agents, on threads of its own from :meth:`start` to :meth:`stop`.

    :param on_move: called with ``started``, ``failed``, and for each call of an agent with
        ``told``, ``refused``, ``silent`` or ``dropped``.
    :param call: calls an agent: host, method, arguments; by default over the message bus.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        on_move: Callable[[str], None],
        call: Callable[[str, str, Mapping[str, object]], object] | None = None,
    ) -> None:
        self._conf = conf
        self._on_move = on_move
        self._call = call or self._call_agent
        self._condition = threading.Condition()  # of what is below
        self._calls: collections.deque[tuple[str, str, Mapping[str, object]]] = collections.deque()
        self._targets: collections.OrderedDict[str, str] = collections.OrderedDict()
        self._is_stopping = False
        self._server = BackgroundServer(
            "moves", self._listening, on_listening=_report_listening, on_failure=_report_failure
        )
        self._thread = threading.Thread(target=self._run, name="move-calls", daemon=True)

    def start(self) -> None:
        """Connect in the background."""
        self._thread.start()
        self._server.start()

    def stop(self, timeout: float) -> None:
        """Stop listening and calling, within ``timeout`` seconds each."""
        self._server.stop(timeout)
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def hear(self, publisher_id: object, event_type: object, payload: object) -> None:
        """Take a notification; from any thread."""
        move = move_of(publisher_id, event_type, payload)
        match move:
            case StartedMove(target, request):
                self._on_move("started")
                self._remember(request.instance, target)
                self._queue(target, "hand_over_start", request.to_arguments())
            case FailedMove(instance, publisher):
                self._on_move("failed")
                with self._condition:
                    target = self._targets.pop(instance, publisher)
                self._queue(target, "hand_over_stop", {"instance": instance})

    def _remember(self, instance: str, target: str) -> None:
        with self._condition:
            self._targets.pop(instance, None)
            self._targets[instance] = target
            while len(self._targets) > TARGETS_MAX:
                self._targets.popitem(last=False)

    def _queue(self, host: str, method: str, arguments: Mapping[str, object]) -> None:
        with self._condition:
            if len(self._calls) >= CALLS_MAX:
                self._calls.popleft()
                self._on_move("dropped")
            self._calls.append((host, method, arguments))
            self._condition.notify_all()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            host, method, arguments = call
            try:
                self._call(host, method, arguments)
            except exception.UnavailableError as error:
                LOG.info("%s: %s", method, exception.one_line(error))
                self._on_move("silent")
            except exception.AcstorError as error:
                LOG.warning("%s on host %s: %s", method, host, exception.one_line(error))
                self._on_move("refused")
            except Exception:
                # A fault of one call is not to end the others.
                LOG.exception("%s on host %s failed", method, host)
            else:
                self._on_move("told")

    def _next(self) -> tuple[str, str, Mapping[str, object]] | None:
        with self._condition:
            self._condition.wait_for(lambda: self._calls or self._is_stopping)
            return None if self._is_stopping else self._calls.popleft()

    def _call_agent(self, host: str, method: str, arguments: Mapping[str, object]) -> object:
        secrets = secrets_of(self._conf)
        with transport.opened(self._conf) as opened:
            agents = AgentClient(opened, CALL_TIMEOUT, Signer(secrets[0] if secrets else None))
            found: object = agents.call(host, method, **arguments)
            return found

    def _listening(self) -> Any:
        """Return a server that listens; waits for the broker, without end."""
        import oslo_messaging

        options = self._conf.registrar
        names = "|".join([*STARTS, *FAILURES]).replace(".", r"\.")
        endpoint = _Endpoint(
            self.hear, oslo_messaging.NotificationFilter(event_type=f"^({names})$")
        )
        return background_server.started(
            transport.open_notification_transport(self._conf),
            lambda opened: oslo_messaging.get_notification_listener(
                opened,
                [
                    oslo_messaging.Target(topic=topic, exchange=options.nova_notification_exchange)
                    for topic in options.nova_notification_topics
                ],
                [endpoint],
                executor="threading",
                allow_requeue=False,
                # Not the queue of Glance's, which others would take these from.
                pool=f"{options.notification_pool}-nova",
            ),
        )


class _Endpoint:
    """Endpoint that oslo.messaging calls with notifications."""

    def __init__(self, hear: Callable[[object, object, object], None], filter_rule: Any) -> None:
        self.filter_rule = filter_rule
        self._hear = hear

    def info(
        self, context: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any
    ) -> None:
        """Take a notification. Whatever it is: it is handled, and not sent again."""
        self._hear(publisher_id, event_type, payload)

    error = info
    """Failures come with this priority."""


def _report_listening() -> None:
    LOG.info("hearing which servers move")


def _report_failure(error: Exception, failures: int) -> None:
    if failures == 1:
        LOG.warning("cannot hear which servers move, will try again: %s", exception.one_line(error))
