"""Snapshots: records that name what is in the origin already. Nothing is copied."""

import logging
from typing import Any

from acstor import exception
from acstor.drivers.cinder.failures import reported
from acstor.drivers.cinder.feature import disk_of
from acstor.drivers.cinder.life_cycle import LifeCycle
from acstor.drivers.cinder.locks import one_at_a_time

LOG = logging.getLogger(__name__)


class Snapshots(LifeCycle):
    """Taking, deleting and going back to snapshots."""

    @reported("taking snapshot {snapshot.id} of volume {snapshot.volume_id}")
    def create_snapshot(self, snapshot: Any) -> None:
        """Take a snapshot: of a volume in use, everything that its guest was told is written."""
        disk, volumes = disk_of(snapshot.volume), self.back_end.volumes
        self.with_present_state(
            disk, lambda pushed: volumes.snapshot(disk, str(snapshot.id), pushed)
        )

    @reported("deleting snapshot {snapshot.id}")
    def delete_snapshot(self, snapshot: Any) -> None:
        """Delete a snapshot; one that is not there is no error. Clones of it stay."""
        try:
            self.back_end.volumes.delete_snapshot(str(snapshot.id))
        except exception.NotFoundError:
            LOG.warning("snapshot %s is not in the repository: nothing to delete", snapshot.id)

    def snapshot_revert_use_temp_snapshot(self) -> bool:
        """Return that going back needs no second snapshot: it either happens or does not."""
        return False

    @reported("reverting volume {volume.id} to snapshot {snapshot.id}")
    @one_at_a_time("{volume.name_id}")
    def revert_to_snapshot(self, context: Any, volume: Any, snapshot: Any) -> None:
        """Give a volume the content of a snapshot of it; its size stays."""
        disk = disk_of(volume)
        record = self.back_end.volumes.get(disk).record
        if record.hosts:
            raise exception.ConflictError(
                f"volume {disk} may be open on {', '.join(record.hosts)}",
                hint="detach the volume first",
            )
        self.back_end.volumes.revert(disk, str(snapshot.id))
