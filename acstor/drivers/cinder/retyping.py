"""Changing the type of a volume, and moving it to another back-end: no content is copied."""

import logging
from dataclasses import asdict
from typing import Any

from acstor.drivers.cinder import encryption
from acstor.drivers.cinder.failures import reported
from acstor.drivers.cinder.feature import disk_of, durability_of, limits_of
from acstor.drivers.cinder.life_cycle import LifeCycle
from acstor.drivers.cinder.limits import from_metadata
from acstor.drivers.cinder.locks import one_at_a_time

LOG = logging.getLogger(__name__)


class Retyping(LifeCycle):
    """Durability and limits change in place, in use or not."""

    @reported("changing the type of volume {volume.id}")
    @one_at_a_time("{volume.name_id}")
    def retype(
        self, context: Any, volume: Any, new_type: Any, diff: Any, host: Any
    ) -> tuple[bool, dict[str, Any] | None]:
        """Give a volume the durability and the limits of another type.

        :returns: whether that was all; another encryption is left to Cinder's generic way, whose
            copy :meth:`before_volume_copy` then refuses.
        """
        if diff and diff.get("encryption"):
            return False, None
        durability, limits = durability_of(new_type), limits_of(new_type)
        disk, volumes = disk_of(volume), self.back_end.volumes
        record = volumes.get(disk).record
        owner = record.owner
        if owner is not None:
            self.tell_owner(owner, "volume_status", disk)  # before anything is changed
        if record.durability != durability:
            volumes.set_durability(disk, durability)
        if from_metadata(record.metadata) != limits:
            volumes.describe(disk, metadata=limits.to_metadata())
        # Whatever the record said: an attempt before may have changed it and not got here.
        if owner is not None:
            fields = durability.to_fields()
            self.tell_owner(owner, "volume_set_durability", disk, durability=fields)
            self.tell_owner(owner, "volume_set_limits", disk, **asdict(limits))
        return True, None

    def migrate_volume(
        self, context: Any, volume: Any, host: Any
    ) -> tuple[bool, dict[str, Any] | None]:
        """Move a volume to a back-end of the same repository: there is nothing to do.

        :returns: whether it is moved; otherwise Cinder copies it.
        """
        capabilities = host.get("capabilities") or {}
        location = capabilities.get("location_info")
        if location != self.back_end.location:
            LOG.info("volume %s will be copied: %s has another repository", volume.id, host["host"])
            return False, None
        return True, None

    @reported("copying volume {src_vol.id}")
    def before_volume_copy(
        self, context: Any, src_vol: Any, dest_vol: Any, remote: Any = None
    ) -> None:
        """Refuse a copy by Cinder that would not be one.

        :raises VolumeDriverException: where either volume is encrypted.
        """
        encryption.refuse_copy(src_vol, dest_vol)

    def update_migrated_volume(
        self, context: Any, volume: Any, new_volume: Any, original_volume_status: str
    ) -> dict[str, Any]:
        """Have a volume that Cinder copied here go on under the name of the copy."""
        return {"_name_id": new_volume.name_id, "provider_location": None}
