"""Hearing what Glance says on the message bus.

A notification is a hint: which image to look at. What it says of the image is not used, for it
may be old (``image.activate`` is sent before the image is active in Glance's database; the
``image.update`` after it comes later), and who misses it notices at the next reconciliation.
Glance has no event of its own for deactivation and reactivation: both are ``image.update``.
"""

import contextlib
import logging
import random
import threading
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from acstor.rpc import transport

LOG = logging.getLogger(__name__)

EVENTS = ("image.activate", "image.upload", "image.update", "image.delete")
"""Event types (glance/notifier.py) after which an image may have to be treated differently.
``image.create`` and ``image.prepare`` come before there are data, ``image.send`` changes none."""
RECONNECT_DELAY_MAX = 30.0
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
        self._is_stopping = threading.Event()
        self._broker = _BrokerWatch(on_connected)
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)

    @property
    def problem(self) -> str | None:
        """Why nothing is heard; None: the broker is there, or no attempt has failed yet."""
        return self._broker.problem or self._problem

    def start(self) -> None:
        """Connect in the background."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop listening, within ``timeout`` seconds; what is still in the queue stays there."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        failures = 0
        with self._broker:
            while not self._is_stopping.is_set():
                server: Any = None
                try:
                    server = self._listen()
                    failures, self._problem = 0, None
                    self._broker.problem = None  # the first connection is not told of
                    self._on_connected()
                    self._is_stopping.wait()
                except Exception as error:
                    # Drivers raise what their client libraries raise; a broker must not end this.
                    failures += 1
                    self._problem = " ".join(str(error).split()) or type(error).__name__
                    longest = min(RECONNECT_DELAY_MAX, float(2 ** min(failures, 8)))
                    self._is_stopping.wait(random.uniform(0.5, longest))
                finally:
                    _end(server)

    def _listen(self) -> Any:
        """Return a server that listens; waits for the broker, without end."""
        transport.use_threads()
        import oslo_messaging

        options = self._conf.registrar
        endpoint = _Endpoint(
            self._on_image,
            oslo_messaging.NotificationFilter(event_type=f"^({'|'.join(EVENTS)})$"),
        )
        server = oslo_messaging.get_notification_listener(
            transport.open_notification_transport(self._conf),
            [
                oslo_messaging.Target(topic=topic, exchange=options.notification_exchange)
                for topic in options.notification_topics
            ],
            [endpoint],
            executor="threading",
            allow_requeue=False,
            # A queue of one's own: without a pool, messages would be taken from other listeners.
            pool=options.notification_pool,
        )
        server.start()
        return server


def _end(server: Any) -> None:
    if server is not None:
        for step in (server.stop, server.wait, server.transport.cleanup):
            with contextlib.suppress(Exception):
                step()


class _Endpoint:
    """What oslo.messaging calls."""

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

    def __enter__(self) -> "_BrokerWatch":
        logging.getLogger(_DRIVER_LOGGER).addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
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
