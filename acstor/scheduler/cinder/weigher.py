"""Cinder weigher: back-ends whose repository has the image that a volume is made from.

There the volume is made at once, from chunks that are registered already; elsewhere the image is
downloaded and copied. The driver tells with its capabilities which images its repository has
(``acstor_images``), so nothing is asked while a volume is being scheduled. The page is
``doc/source/admin/scheduling.rst``.
"""

import logging
from collections.abc import Sequence
from typing import Any

from cinder.scheduler import weights
from oslo_config import cfg

from acstor.scheduler.cinder import options
from acstor.scheduler.cinder.request import image_id

LOG = logging.getLogger(__name__)

CONF = cfg.CONF
options.register_opts(CONF)

CAPABILITY_IMAGES = "acstor_images"
"""Capability: ids of registered images."""
CAPABILITY_IS_COMPLETE = "acstor_images_complete"
"""Capability: whether :data:`CAPABILITY_IMAGES` lists every registered image."""

HAS = 1.0
UNKNOWN = 0.5
LACKS = 0.0


class AcstorImageWeigher(weights.BaseHostWeigher):  # type: ignore[misc] # Cinder has no types
    """Prefers back-ends that have the image: 1; it is not known: 0.5; they lack it: 0."""

    # Read by Cinder as the range of what it normalises: with 0 and 1 it changes nothing.
    minval = 0.0
    maxval = 1.0

    def weight_multiplier(self) -> float:
        """Return how much this weigher counts."""
        return float(CONF.acstor_image_weight_multiplier)

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """Return the weights of all back-ends; 0 for all when no image matters."""
        try:
            image = image_id(weight_properties)
            if image is None:
                return [LACKS] * len(weighed_obj_list)
            return [_weight(weighed.obj, image) for weighed in weighed_obj_list]
        except Exception:
            # Whatever a back-end reports, volumes must be scheduled.
            LOG.exception("back-ends are not weighed by the images that they have")
            return [LACKS] * len(weighed_obj_list)

    def _weigh_object(self, host_state: Any, weight_properties: Any) -> float:
        image = image_id(weight_properties)
        return LACKS if image is None else _weight(host_state, image)


def _weight(back_end: Any, image: str) -> float:
    capabilities = back_end.capabilities or {}
    images = capabilities.get(CAPABILITY_IMAGES)
    if not isinstance(images, (list, tuple, set, frozenset)):
        return LACKS
    if image in images:
        return HAS
    return LACKS if capabilities.get(CAPABILITY_IS_COMPLETE) is True else UNKNOWN
