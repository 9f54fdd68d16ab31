"""Where the repository keeps what: keys of objects and names of refs in the origin."""

import re
import uuid

from acstor import exception

FORMAT_KEY = "format"
PACK_PREFIX = "packs/"
MANIFEST_PREFIX = "manifests/"
IMAGE_PREFIX = "images/"
CONDEMNED_PREFIX = "gc/condemned/"

_NAME = re.compile(r"[0-9a-f]{64}\Z")


def pack_key(pack: str) -> str:
    """Return the key of the pack with that id, 64 hexadecimal digits."""
    return f"{PACK_PREFIX}{pack[:2]}/{pack}"


def manifest_key(manifest: str) -> str:
    """Return the key of the manifest with that digest, 64 hexadecimal digits."""
    return f"{MANIFEST_PREFIX}{manifest[:2]}/{manifest}"


def image_ref(image_id: str) -> str:
    """Return the name of the ref that holds an image's record."""
    return IMAGE_PREFIX + image_id


def condemned_ref(name: str) -> str:
    """Return the name of the ref that condemns a pack or manifest, 64 hexadecimal digits."""
    return CONDEMNED_PREFIX + name


def name_of(key: str) -> str | None:
    """Return the last part of a key or ref name if it is 64 hexadecimal digits."""
    name = key.rsplit("/", 1)[-1]
    return name if _NAME.match(name) else None


def canonical_image_id(text: str) -> str:
    """Return a UUID in the one form that names images: lower case, with dashes.

    :raises InvalidError: when it is no UUID.
    """
    try:
        return str(uuid.UUID(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise exception.InvalidError(f"image id {text!r} is no UUID") from error
