"""Glance, as flows need it: properties of images."""

from collections.abc import Mapping
from typing import Any, Protocol

from oslo_config import cfg

from acstor import exception, identity, untrusted_json
from acstor.conf import glance

CALL_TIMEOUT = 10.0
"""Seconds for one question."""
_ID_LENGTH_MAX = 64


class Images(Protocol):
    """Images.

    Every method may raise :class:`~acstor.exception.UnavailableError`: it may be repeated then.
    """

    def properties(self, image_id: str) -> Mapping[str, str]:
        """Return what an image says that is text; nothing where there is no such image."""


class GlanceImages:
    """Images of Glance; see :class:`Images`.

    :param adapter: of keystoneauth, for the image service.
    """

    def __init__(self, adapter: Any) -> None:
        """Keep the adapter."""
        self._adapter = adapter

    def properties(self, image_id: str) -> Mapping[str, str]:
        """Return what an image says; see :meth:`Images.properties`."""
        from keystoneauth1 import exceptions

        if not image_id or len(image_id) > _ID_LENGTH_MAX or "/" in image_id:
            raise exception.InvalidError(f"{image_id!r:.40} is no image")
        try:
            answer = self._adapter.get(
                f"/v2/images/{image_id}",
                timeout=CALL_TIMEOUT,
                raise_exc=False,
                connect_retries=identity.CONNECT_RETRIES,
            )
        except exceptions.ClientException as error:
            raise exception.UnavailableError(
                f"Glance cannot be asked: {type(error).__name__}"
            ) from error
        if answer.status_code == 404:
            return {}
        if answer.status_code != 200:
            raise exception.UnavailableError(f"Glance answers HTTP {answer.status_code}")
        try:
            return _texts(untrusted_json.load(answer.content, "the answer"))
        except ValueError as error:
            raise exception.UnavailableError(f"Glance answers nonsense: {error}") from error


def open_images(conf: cfg.ConfigOpts, session: Any) -> GlanceImages:
    """Return the images of the Glance that ``[glance]`` describes."""
    return GlanceImages(identity.open_adapter(conf, glance.GROUP, session, glance.SERVICE_TYPE))


def _texts(fields: object) -> dict[str, str]:
    if not isinstance(fields, Mapping):
        raise ValueError("it is no object")
    return {str(name): value for name, value in fields.items() if isinstance(value, str)}
