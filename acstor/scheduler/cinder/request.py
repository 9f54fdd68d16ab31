"""Properties of a request to create a volume that concern ACStor."""

from collections.abc import Mapping
from typing import Any


def image_id(properties: Any) -> str | None:
    """Return the id of the image that the volume is made from, None where another way is taken.

    A volume from a snapshot or from another volume goes where its source is. The content of an
    encrypted volume is encrypted, so no registered chunk is of use to it.

    :param properties: what Cinder's scheduler hands to weighers.
    """
    if not isinstance(properties, Mapping):
        return None
    specification = _plain(properties.get("request_spec"))
    volume = _plain(specification.get("volume_properties"))
    if specification.get("snapshot_id") or specification.get("source_volid"):
        return None
    if volume.get("encryption_key_id"):
        return None
    image = specification.get("image_id") or properties.get("image_id")
    return str(image).lower() if image else None


def _plain(value: Any) -> Any:
    """Return something with ``get``; objects of Cinder have it too."""
    return value if hasattr(value, "get") else {}
