"""Hearing what Glance says on the message bus.

A notification is a hint: which image to look at. What it says of the image is not used, for it
may be old (``image.activate`` is sent before the image is active in Glance's database; the
``image.update`` after it comes later), and who misses it notices at the next reconciliation.
Glance has no event of its own for deactivation and reactivation: both are ``image.update``.
"""

import logging
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from acstor import exception
from acstor.rpc import background_server, transport
from acstor.rpc.background_server import BackgroundServer

LOG = logging.getLogger(__name__)

EVENTS = ("image.activate", "image.upload", "image.update", "image.delete")
"""Event types (glance/notifier.py) after which an image may have to be treated differently.
``image.create`` and ``image.prepare`` come before there are data, ``image.send`` changes none."""
_DRIVER_LOGGER = "oslo.messaging._drivers.impl_rabbit"  # oslo.log writes the first _ as a dot


class ImageNotifications:
    """Listens on threads of its own, from :meth:`start` to :meth:`stop`.

    :param on_image: called with event type and image id, from any thread.
    :param on_connected: called when the broker is there (again): something may have been missed.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        on_image: Callable[[str, str], None],
        on_connected: Callable[[], None],
    ) -> None:
        self._conf = conf
        self._on_image = on_image
        self._on_connected = on_connected
        self._broker = _BrokerWatch(on_connected)
        self._problem: str | None = None
        self._server = BackgroundServer(
            "notifications",
            self._listening,
            on_listening=self._note_listening,
            on_failure=self._note_failure,
        )

    @property
    def problem(self) -> str | None:
        """Reason for which nothing is heard; None: the broker is there, or no attempt failed."""
        return self._broker.problem or self._problem

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

        options = self._conf.registrar
        endpoint = _Endpoint(
            self._on_image,
            oslo_messaging.NotificationFilter(event_type=f"^({'|'.join(EVENTS)})$"),
        )
        return background_server.started(
            transport.open_notification_transport(self._conf),
            lambda opened: oslo_messaging.get_notification_listener(
                opened,
                [
                    oslo_messaging.Target(topic=topic, exchange=options.notification_exchange)
                    for topic in options.notification_topics
                ],
                [endpoint],
                executor="threading",
                allow_requeue=False,
                # A queue of one's own: without a pool, others would miss what is taken here.
                pool=options.notification_pool,
            ),
        )


class _Endpoint:
    """Endpoint that oslo.messaging calls with notifications."""

    def __init__(self, on_image: Callable[[str, str], None], filter_rule: Any) -> None:
        self.filter_rule = filter_rule
        self._on_image = on_image

    def info(
        self, context: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any
    ) -> None:
        """Take a notification. Whatever it is: it is handled, and not sent again."""
        image_id = payload.get("id") if isinstance(payload, dict) else None
        if isinstance(image_id, str):
            self._on_image(event_type, image_id)
        else:
            LOG.debug("ignoring a notification %s of %s without an id", event_type, publisher_id)


class _BrokerWatch(logging.Filter):
    """Reads in the log of oslo.messaging's driver how it fares, and keeps it quiet.

    The driver connects again by itself, for ever, and writes an error for each attempt; there
    is no other sign of it. A driver that writes something else is only louder.
    """

    def __init__(self, on_connected: Callable[[], None]) -> None:
        super().__init__()
        self.problem: str | None = None
        self._on_connected = on_connected

    def watch(self) -> None:
        logging.getLogger(_DRIVER_LOGGER).addFilter(self)

    def leave(self) -> None:
        logging.getLogger(_DRIVER_LOGGER).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        text = " ".join(record.getMessage().split())
        if record.levelno >= logging.ERROR:
            self.problem = text.partition("Trying again")[0].rstrip()
            return False  # the registrar reports it, once
        if "Reconnected" in text and self.problem is not None:
            self.problem = None
            self._on_connected()
        return True
