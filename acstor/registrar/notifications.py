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

from acstor.rpc.notification_listener import NotificationListener, NotificationSource

LOG = logging.getLogger(__name__)

EVENTS = ("image.activate", "image.upload", "image.update", "image.delete")
"""Event types (glance/notifier.py) after which an image may have to be treated differently.
``image.create`` and ``image.prepare`` come before there are data, ``image.send`` changes none."""


class ImageNotifications(NotificationListener):
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
        options = conf.registrar

        def hear(event_type: str, payload: Any) -> None:
            image_id = payload.get("id") if isinstance(payload, dict) else None
            if isinstance(image_id, str):
                on_image(event_type, image_id)
            else:
                LOG.debug("ignoring a notification %s without an id", event_type)

        super().__init__(
            conf,
            "notifications",
            NotificationSource(
                options.notification_exchange,
                options.notification_topics,
                options.notification_pool,
                EVENTS,
            ),
            hear,
            on_connected,
        )
