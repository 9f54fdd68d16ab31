"""Hearing what other services say on the message bus, through a queue of one's own."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg

from acstor import exception
from acstor.rpc import background_server, transport
from acstor.rpc.background_server import BackgroundServer

_DRIVER_LOGGER = "oslo.messaging._drivers.impl_rabbit"  # oslo.log writes the first _ as a dot

OnNotification = Callable[[str, Any], None]
"""Called with event type and payload, from any thread."""


@dataclass(frozen=True)
class NotificationSource:
    """Source of notifications."""

    exchange: str
    """``control_exchange`` of the service that sends them."""
    topics: Sequence[str]
    pool: str
    """Name of the queue that gets copies: without one of its own, others would miss what is taken
    here."""
    events: Sequence[str]
    """Event types that are heard; all others are passed over."""


class NotificationListener:
    """Listens on threads of its own, from :meth:`start` to :meth:`stop`.

    :param name: of its thread.
    :param on_connected: called when the broker is there (again): something may have been missed.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        name: str,
        source: NotificationSource,
        on_notification: OnNotification,
        on_connected: Callable[[], None] = lambda: None,
    ) -> None:
        self._conf = conf
        self._source = source
        self._on_notification = on_notification
        self._on_connected = on_connected
        self._broker = BrokerWatch(on_connected)
        self._problem: str | None = None
        self._server = BackgroundServer(
            name,
            self._listening,
            on_listening=self._note_listening,
            on_failure=self._note_failure,
        )

    @property
    def problem(self) -> str | None:
        """Reason for which nothing is heard; None: the broker is there, or no attempt failed."""
        return self._broker.problem or self._problem

    @property
    def is_listening(self) -> bool:
        """True if it has connected; what is sent from then on is heard."""
        return self._server.is_listening.is_set()

    def start(self) -> None:
        """Connect in the background."""
        self._broker.watch()
        self._server.start()

    def stop(self, timeout: float) -> None:
        """Stop listening, within ``timeout`` seconds; what is still in the queue stays there."""
        self._server.stop(timeout)
        self._broker.leave()

    def _note_listening(self) -> None:
        self._problem = None
        self._broker.problem = None  # the first connection is not told of
        self._on_connected()

    def _note_failure(self, error: Exception, failures: int) -> None:
        del failures
        self._problem = exception.one_line(error)

    def _listening(self) -> Any:
        """Return a server that listens; waits for the broker, without end."""
        import oslo_messaging

        source = self._source
        endpoint = _Endpoint(
            self._on_notification,
            oslo_messaging.NotificationFilter(event_type=f"^({'|'.join(source.events)})$"),
        )
        return background_server.started(
            transport.open_notification_transport(self._conf),
            lambda opened: oslo_messaging.get_notification_listener(
                opened,
                [
                    oslo_messaging.Target(topic=topic, exchange=source.exchange)
                    for topic in source.topics
                ],
                [endpoint],
                executor="threading",
                allow_requeue=False,
                pool=source.pool,
            ),
        )


class _Endpoint:
    """Endpoint that oslo.messaging calls with notifications."""

    def __init__(self, on_notification: OnNotification, filter_rule: Any) -> None:
        self.filter_rule = filter_rule
        self._on_notification = on_notification

    def info(
        self, context: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any
    ) -> None:
        """Take a notification. Whatever it is: it is handled, and not sent again."""
        self._on_notification(event_type, payload)


class BrokerWatch(logging.Filter):
    """Reads in the log of oslo.messaging's driver how it fares, and keeps it quiet.

    The driver connects again by itself, for ever, and writes an error for each attempt; there
    is no other sign of it. A driver that writes something else is only louder.
    """

    def __init__(self, on_connected: Callable[[], None]) -> None:
        super().__init__()
        self.problem: str | None = None
        self._on_connected = on_connected

    def watch(self) -> None:
        """Begin to read."""
        logging.getLogger(_DRIVER_LOGGER).addFilter(self)

    def leave(self) -> None:
        """Read no more."""
        logging.getLogger(_DRIVER_LOGGER).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Take a record; return whether it is for the log."""
        text = " ".join(record.getMessage().split())
        if record.levelno >= logging.ERROR:
            self.problem = text.partition("Trying again")[0].rstrip()
            return False  # whoever listens reports it, once
        if "Reconnected" in text and self.problem is not None:
            self.problem = None
            self._on_connected()
        return True
