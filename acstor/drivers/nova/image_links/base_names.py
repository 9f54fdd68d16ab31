"""Names of Nova's base files, and targets of the links that take their place."""

import os
import re

from acstor.repository.images.usage import base_name

__all__ = ["base_name", "image_of_link", "is_base_name", "is_other_digest", "target_path"]

_BASE_NAME = re.compile(r"[0-9a-f]{40}")
_OTHER_DIGEST = re.compile(r"[0-9a-f]{32}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128}")
"""MD5, and the lengths of SHA-2 and SHA-3."""
_TARGET_NAME = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.raw")


def is_base_name(name: str) -> bool:
    """Return whether a name may be that of an image's base file."""
    return _BASE_NAME.fullmatch(name) is not None


def is_other_digest(name: str) -> bool:
    """Return whether a name may be that of an image's base file, by another digest than SHA-1.

    As of a Nova that was changed for FIPS: it would never look for a link that is called by SHA-1.
    """
    return _OTHER_DIGEST.fullmatch(name) is not None


def target_path(mount_point: str, image_id: str) -> str:
    """Return the path of an image's file in the data plane's mount."""
    return os.path.join(mount_point, f"{image_id}.raw")


def image_of_link(name: str, target: str) -> str | None:
    """Return the image that a link with this name and target stands for.

    :returns: its id, wherever the mount is; None: nobody but ACStor plants links, and this is no
        link of ACStor.
    """
    match = _TARGET_NAME.fullmatch(os.path.basename(target))
    if match is None or not os.path.isabs(target) or base_name(match[1]) != name:
        return None
    return match[1]
