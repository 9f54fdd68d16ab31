"""Opening the image service that the configuration names."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from oslo_config import cfg

from acstor import identity
from acstor.conf import glance as options
from acstor.registrar.image_service.base import ImageService

if TYPE_CHECKING:
    from keystoneauth1.session import Session


def open_image_service(
    conf: cfg.ConfigOpts, session: "Session", sleep: Callable[[float], object] = time.sleep
) -> ImageService:
    """Return Glance, with its questions repeated while it is away.

    :param sleep: how to wait between two attempts.
    :raises ConfigurationError: when ``[glance]`` contradicts itself.
    """
    from acstor.registrar.image_service.glance import GlanceImageService
    from acstor.registrar.image_service.retrying import RetryingImageService

    adapter = identity.open_adapter(conf, options.GROUP, session, options.SERVICE_TYPE)
    service = GlanceImageService(
        adapter,
        connect_timeout=conf.glance.connect_timeout,
        read_timeout=conf.glance.read_timeout,
        answer_deadline=conf.glance.request_deadline,
        page_size=conf.glance.page_size,
    )
    return RetryingImageService(
        service, conf.glance.request_deadline, conf.glance.attempts, sleep=sleep
    )
