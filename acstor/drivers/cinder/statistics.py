"""Back-end statistics for Cinder's scheduler."""

import itertools
import logging
from typing import Any

from acstor import exception
from acstor.drivers.cinder.connection_data import PROTOCOL
from acstor.drivers.cinder.feature import Feature

LOG = logging.getLogger(__name__)

VENDOR_NAME = "ACStor"
UNKNOWN = "unknown"


class Statistics(Feature):
    """Capabilities and capacity."""

    VERSION: str
    _stats: dict[str, Any]

    def _update_volume_stats(self) -> None:
        """Look at the origin; one that is away makes the back-end ``down``, never an error."""
        setting = self.configuration.safe_get
        stats: dict[str, Any] = {
            "volume_backend_name": setting("volume_backend_name") or VENDOR_NAME,
            "vendor_name": VENDOR_NAME,
            "driver_version": self.VERSION,
            "storage_protocol": PROTOCOL,
            "total_capacity_gb": UNKNOWN,
            "free_capacity_gb": UNKNOWN,
            "reserved_percentage": setting("reserved_percentage"),
            "max_over_subscription_ratio": setting("max_over_subscription_ratio"),
            "thin_provisioning_support": True,
            "thick_provisioning_support": False,
            "sparse_copy_volume": True,
            "online_extend_support": True,
            "multiattach": bool(setting("acstor_multiattach_on_one_host")),
            "QoS_support": True,
            "consistent_group_snapshot_enabled": True,
            "replication_enabled": False,
            "filter_function": self.get_filter_function(),  # type: ignore[attr-defined]
            "goodness_function": self.get_goodness_function(),  # type: ignore[attr-defined]
            "backend_state": "down",
        }
        try:
            stats |= self._read_repository()
        except exception.AcstorError as error:
            LOG.error("the back-end is down: %s; %s", error, error.hint)
        self._stats = stats

    def _read_repository(self) -> dict[str, Any]:
        """Return what is known of the origin only.

        :raises AcstorError: when it cannot be reached.
        """
        back_end = self.back_end
        most = self.configuration.safe_get("acstor_listed_images_max")
        images = list(itertools.islice(back_end.repository.list_image_ids(), most + 1))
        found: dict[str, Any] = {
            "backend_state": "up",
            "location_info": back_end.location,
            "acstor_images": sorted(images[:most]),
            "acstor_images_complete": len(images) <= most,
        }
        capacity = back_end.capacity()
        if capacity is not None:
            found["total_capacity_gb"] = capacity.total_gib
            found["free_capacity_gb"] = capacity.free_gib
        return found
