"""Properties of a ``nova.objects.RequestSpec`` that concern ACStor."""

import enum
import logging
from typing import Any

from oslo_utils import strutils

LOG = logging.getLogger(__name__)

REQUIRED_EXTRA_SPEC = "acstor:required"


class Need(enum.Enum):
    """Degree to which an instance needs the data plane of its host."""

    AVOID = "avoid"
    """It is better off with one."""
    REQUIRE = "require"
    """It must have one."""
    IGNORE = "ignore"
    """It is not served by one, or need not be."""


def image_id(spec: Any) -> str | None:
    """Return the id of the image that the instance's root disk is made from, None without one.

    An instance that boots from a volume has none, whatever the volume was made from.
    """
    if "is_bfv" in spec and spec.is_bfv:
        return None
    image = spec.image if "image" in spec else None
    if image is None or "id" not in image or not image.id:
        return None
    return str(image.id).lower()


def need(spec: Any, policy: str) -> Need:
    """Return how much the instance needs a data plane.

    The flavor's extra spec decides. Without it the policy does, for instances whose root disk is
    made from an image. Properties of the image cannot: Nova keeps only those that it knows
    (``ImageMetaProps.from_dict``), so the scheduler never sees others.

    :param policy: ``[acstor] data_plane_policy``.
    """
    required = _required_by_flavor(spec)
    if required is not None:
        return Need.REQUIRE if required else Need.IGNORE
    return Need(policy) if image_id(spec) is not None else Need.IGNORE


def _required_by_flavor(spec: Any) -> bool | None:
    flavor = spec.flavor if "flavor" in spec else None
    if flavor is None or "extra_specs" not in flavor or not flavor.extra_specs:
        return None
    value = flavor.extra_specs.get(REQUIRED_EXTRA_SPEC)
    if value is None:
        return None
    try:
        return bool(strutils.bool_from_string(value, strict=True))
    except ValueError:
        LOG.warning("flavor with %s = %.50r: it must be true or false", REQUIRED_EXTRA_SPEC, value)
        return None
