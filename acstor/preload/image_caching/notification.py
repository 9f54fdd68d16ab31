"""Nova's versioned notifications of cached images, and the checks of what they hold.

``aggregate.cache_images.progress`` names a host and the images that were to be cached there
(``AggregateCachePayload``). ``start`` and ``end`` name the aggregate's hosts and no image.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PROGRESS = "aggregate.cache_images.progress"
EVENTS = ("aggregate.cache_images.start", PROGRESS, "aggregate.cache_images.end")
IMAGES_MAX = 1000
"""Most images of one notification that are followed."""
HOST_LENGTH_MAX = 255
_PAYLOAD = "AggregateCachePayload"


@dataclass(frozen=True)
class CachedImages:
    """Images that were to be cached on one host."""

    host: str
    """As ACStor calls it: in lower case."""
    images: tuple[str, ...]
    """Ids, each once."""
    aggregate: str
    """Name of the aggregate, for people."""


def parse(event_type: str, payload: Any) -> CachedImages | None:
    """Return what a notification says was to be cached; None: it names no image.

    Images that Nova failed to cache count as well: what it could not download may be preloaded.

    :raises ValueError: when it is malformed.
    """
    if event_type != PROGRESS:
        return None
    fields = _fields(payload)
    host, name = fields.get("host"), fields.get("name")
    if not isinstance(host, str) or not 0 < len(host) <= HOST_LENGTH_MAX or not host.isprintable():
        raise ValueError("the host is no name")
    images = [*_images(fields, "images_cached"), *_images(fields, "images_failed")]
    if len(images) > IMAGES_MAX:
        raise ValueError(f"more than {IMAGES_MAX} images")
    aggregate = name if isinstance(name, str) and name.isprintable() else ""
    ids = dict.fromkeys(map(_canonical, images))
    return CachedImages(host.lower(), tuple(ids), aggregate[:HOST_LENGTH_MAX])


def _fields(payload: Any) -> Mapping[str, Any]:
    if not isinstance(payload, Mapping) or payload.get("nova_object.name") != _PAYLOAD:
        raise ValueError(f"no {_PAYLOAD}")
    version = payload.get("nova_object.version")
    if not isinstance(version, str) or version.partition(".")[0] != "1":
        raise ValueError(f"version {version!r:.20} of {_PAYLOAD}, 1.x is known")
    fields = payload.get("nova_object.data")
    if not isinstance(fields, Mapping):
        raise ValueError("no fields")
    return fields


def _images(fields: Mapping[str, Any], name: str) -> list[Any]:
    found = fields.get(name)
    if not isinstance(found, list):
        raise ValueError(f"{name} is no list")
    return found


def _canonical(image: Any) -> str:
    if not isinstance(image, str):
        raise ValueError("an image id is no text")
    return str(uuid.UUID(image))
