"""The agent's end of its messages: one server per host on the topic of the agents.

The page ``doc/source/reference/protocols/agent-rpc.rst`` describes every message.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from oslo_config import cfg

from acstor import exception
from acstor.control.operations import BY_MESSAGE
from acstor.rpc import background_server, transport
from acstor.rpc.background_server import BackgroundServer

LOG = logging.getLogger(__name__)

EXCHANGE = "openstack"
"""Named, as callers have configurations of their own: control_exchange of cinder.conf is often
``cinder``. It is what control_exchange is where nobody sets it."""
TOPIC = "acstor-agent"
NAMESPACE = "acstor.agent"
VERSION = "1.8"
"""1.0: ring_published. 1.1: preload_estimate, preload_start, preload_status, preload_stop.
1.2: volume_status, volume_push, volume_freeze, volume_thaw, volume_resize, volume_set_durability,
volume_set_limits. 1.3: decision_published. 1.4: the holder of volume_freeze and volume_thaw, and
what the latter answers. 1.5: hand_over_start, hand_over_stop, hand_over_read, revocation_drop,
revocation_check. 1.6: capture_start, capture_progress, capture_abort, capture_discard,
capture_follow. 1.7: restore_start, restore_progress, restore_abort, restore_discard.
1.8: restore_set_check, restore_set_start."""
RING_VERSION = "1.0"
PRELOAD_VERSION = "1.1"
DECISION_VERSION = "1.3"
FREEZE_VERSION = "1.4"
HAND_OVER_VERSION = "1.5"
REVOCATION_VERSION = "1.5"
CAPTURE_VERSION = "1.6"
RESTORE_VERSION = "1.7"
RESTORE_SET_VERSION = "1.8"


def version_of(method: str) -> str:
    """Return the version that a server must have to know a method.

    A caller asks for no newer one, so that hosts which are not upgraded yet still answer.
    """
    if method.startswith("preload_"):
        return PRELOAD_VERSION
    if method.startswith("hand_over_"):
        return HAND_OVER_VERSION
    if method.startswith("revocation_"):
        return REVOCATION_VERSION
    if method.startswith("capture_"):
        return CAPTURE_VERSION
    if method.startswith("restore_set_"):
        return RESTORE_SET_VERSION
    if method.startswith("restore_"):
        return RESTORE_VERSION
    operation = BY_MESSAGE.get(method)
    return DECISION_VERSION if operation is None else operation.bus_version


class AnnouncementEndpoint:
    """Takes announcements: casts, so that nobody hears of an error.

    :param on_ring: called with the generation that another agent published.
    :param on_decision: called when a policy service decided; takes whether that concerns every
        host, not only the one that publishes rings.
    """

    def __init__(
        self,
        on_ring: Callable[[int], None],
        on_decision: Callable[[bool], None] = lambda concerns_all: None,
    ) -> None:
        self.target = make_target(DECISION_VERSION)
        self._on_ring = on_ring
        self._on_decision = on_decision

    def ring_published(self, context: dict[str, Any], generation: object = None) -> None:
        """Take the announcement of a ring."""
        if isinstance(generation, int) and not isinstance(generation, bool):
            self._on_ring(generation)

    def decision_published(self, context: dict[str, Any], concerns_all: object = None) -> None:
        """Take the announcement of a decision."""
        if isinstance(concerns_all, bool):
            self._on_decision(concerns_all)


def make_target(version: str) -> Any:
    """Return what an endpoint of that version answers to."""
    import oslo_messaging

    return oslo_messaging.Target(namespace=NAMESPACE, version=version)


def as_response(host: str, method: Callable[[], object]) -> dict[str, object]:
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


class AgentServer(BackgroundServer):
    """Listens to what other hosts and commands ask of the agent of this host.

    :param host: name of this host, its server name on the topic.
    :param endpoints: objects with a ``target``; only their public methods can be called.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, endpoints: Sequence[object]) -> None:
        self._conf = conf
        self._host = host
        self._endpoints = list(endpoints)
        super().__init__(
            "agent-rpc",
            self._listening,
            on_listening=lambda: LOG.info("listening as %s on %s", host, TOPIC),
            on_failure=_report,
        )

    def _listening(self) -> Any:
        import oslo_messaging

        return background_server.started(
            transport.open_transport(self._conf),
            lambda opened: oslo_messaging.get_rpc_server(
                opened,
                oslo_messaging.Target(exchange=EXCHANGE, topic=TOPIC, server=self._host),
                self._endpoints,
                access_policy=oslo_messaging.DefaultRPCAccessPolicy,
            ),
        )


def _report(error: Exception, failures: int) -> None:
    if failures == 1:
        LOG.warning("cannot listen to other hosts, will try again: %s", error)
