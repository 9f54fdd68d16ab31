"""Deployment as the commands read it: its origin and its ring."""

import contextlib
from collections.abc import Iterator
from typing import Any

from oslo_config import cfg

from acstor import exception
from acstor.cluster.ring.published_ring import PublishedRing, read_ring
from acstor.origin import configured
from acstor.origin.base import Origin
from acstor.origin.opening import open_origin
from acstor.repository.opening import open_repository

ORIGIN_DEADLINE = 5.0
"""Seconds for which a command tries to reach the origin."""


def configuration(app: Any) -> cfg.ConfigOpts:
    """Return the configuration that the program was started with.

    :raises ConfigurationError: when it is not valid.
    """
    conf: cfg.ConfigOpts = app.conf  # cliff's type of a command's app is its base class
    return conf


@contextlib.contextmanager
def opened_origin(conf: cfg.ConfigOpts) -> Iterator[Origin]:
    """Open the origin for one command.

    :raises UnavailableError: when it holds no repository: its file system is not mounted here.
    :raises AcstorError: when it cannot be opened.
    """
    deadline = min(ORIGIN_DEADLINE, conf.origin.timeout)
    origin = open_repository(lambda: open_origin(configured.origin_url(conf), deadline)).origin
    try:
        yield origin
    finally:
        origin.close()


def published_ring(conf: cfg.ConfigOpts) -> PublishedRing:
    """Return the published ring.

    :raises NotFoundError: before the first.
    """
    with opened_origin(conf) as origin:
        published = read_ring(origin)
    if published is None:
        raise exception.NotFoundError(
            "no ring is published yet", hint="start acstor-agent on a host; it publishes the first"
        )
    return published
