"""Assembly of what follows Nova's cached images, by the configuration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oslo_config import cfg

from acstor import exception
from acstor.preload.image_caching.follower import CachedImageFollower
from acstor.preload.image_caching.notification import EVENTS
from acstor.preload.image_caching.starting import Outcome
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.notification_listener import NotificationListener, NotificationSource
from acstor.rpc.signature import Signer, secrets_of

STOP_TIMEOUT = 5.0


class ImageCaching:
    """Listener and follower together; runs from :meth:`start` to :meth:`stop`."""

    def __init__(
        self, conf: cfg.ConfigOpts, on_outcome: Callable[[Outcome], None] = lambda _: None
    ) -> None:
        @contextmanager
        def open_agents() -> Iterator[AgentClient]:
            secrets = secrets_of(conf)
            signer = Signer(secrets[0] if secrets else None)
            with transport.opened(conf) as opened:
                yield AgentClient(opened, conf.preload.call_timeout, signer)

        options = conf.preload
        self._follower = CachedImageFollower(
            open_agents, pin=options.nova_cache_pin, on_outcome=on_outcome
        )
        self.listener = NotificationListener(
            conf,
            "image-caching-notifications",
            NotificationSource(
                conf.registrar.nova_notification_exchange,
                conf.registrar.nova_notification_topics,
                options.nova_notification_pool,
                EVENTS,
            ),
            self._follower.hear,
        )

    def start(self) -> None:
        """Begin to listen."""
        self._follower.start()
        self.listener.start()

    def stop(self) -> None:
        """Listen no more."""
        self.listener.stop(STOP_TIMEOUT)
        self._follower.stop(STOP_TIMEOUT)


def build(
    conf: cfg.ConfigOpts, on_outcome: Callable[[Outcome], None] = lambda _: None
) -> ImageCaching | None:
    """Return what follows Nova's cached images; None where it is not to be followed.

    :raises ConfigurationError: when it is, and no message transport or no topic is configured.
    """
    if not conf.preload.nova_cache_images:
        return None
    if not conf.registrar.nova_notification_topics:
        raise exception.ConfigurationError(
            "[preload] nova_cache_images is set, and no topic says where Nova's notifications are",
            hint="set [registrar] nova_notification_topics = versioned_notifications",
        )
    transport.require(conf)
    return ImageCaching(conf, on_outcome)
