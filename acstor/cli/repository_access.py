"""Opening the repository that the configuration names, for the commands."""

from typing import cast

from cliff.app import App
from oslo_config import cfg

from acstor import exception
from acstor.cli.app import Application
from acstor.origin import configured, opening
from acstor.origin.base import Origin
from acstor.repository.repository import Repository


def configuration(app: App) -> cfg.ConfigOpts:
    """Return the configuration that the program has read (:class:`acstor.cli.app.Application`)."""
    return cast(Application, app).conf


def open_origin(conf: cfg.ConfigOpts) -> Origin:
    """Return the origin of the configuration.

    :raises AcstorError: when the URL is bad or the origin cannot be reached.
    """
    return opening.open_origin(configured.origin_url(conf), conf.origin.timeout)


def open_repository(conf: cfg.ConfigOpts) -> Repository:
    """Return the repository in the configured origin.

    :raises NotFoundError: when there is none.
    """
    try:
        return Repository.open(open_origin(conf))
    except exception.NotFoundError as error:
        raise exception.NotFoundError(
            f"{configured.described(conf)}: {error}", hint=error.hint
        ) from error
