"""Giving a volume that nobody uses the content of a version.

As a revert to a snapshot, and safe to repeat however late: who asked is noted in the record in the
same change, and the same one asks for nothing a second time, whatever was written since.
"""

import dataclasses

from acstor import exception
from acstor.repository import layout
from acstor.repository.volumes.record import DiskState, Pending, VolumeRecord
from acstor.repository.volumes.record_refs import Change
from acstor.repository.volumes.states import VolumeRecordEvent
from acstor.repository.volumes.store import VolumeStore, lost_error

RESTORED_BY = "acstor_restored_by"
"""Key of the record's metadata: who restored the volume last."""
GIVEN_UP_BY = "acstor_restore_given_up_by"
"""Key of the record's metadata: who gave a restore up last."""


class RestorableVolumes(VolumeStore):
    """Volumes of one repository, with restores of versions."""

    def restore(self, volume_id: str, disk: DiskState, *, by: str, epoch: int) -> Change:
        """Give a volume other content; without effect where the same one has asked before.

        Its size stays; where it is larger than the content it reads as zeros. What hosts still have
        of it locally is void: its epoch grows.

        :param by: who asks: the id of a task.
        :param epoch: of the volume when it was looked at: it was in nobody's use since.
        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: when the volume is attached or owned, or was since; when the content
            was collected meanwhile.
        :raises FencedError: when the same one has given it up.
        :raises InvalidError: when the volume is larger than manifests of that version describe.
        :raises UnavailableError: also when the member that it is assigned to is not in use.
        """
        volume_id = layout.canonical_id(volume_id, "volume")
        wanted = Pending(disk)

        def check(record: VolumeRecord) -> None:
            if record.metadata.get(GIVEN_UP_BY) == by:
                raise exception.FencedError(f"the restore of volume {volume_id} was given up")
            self._check_unused(volume_id, record)
            if record.epoch != epoch:
                raise exception.ConflictError(
                    f"volume {volume_id} was in use meanwhile", hint="ask again"
                )

        def announced(record: VolumeRecord) -> VolumeRecord:
            if is_restored_by(record, by):
                return record
            check(record)
            self._check_assigned(record)
            self.check_size(record.size_bytes, disk.manifest)
            return dataclasses.replace(record, pending=wanted)

        def restored(record: VolumeRecord) -> VolumeRecord:
            if is_restored_by(record, by):
                return record
            check(record)
            if record.pending != wanted:
                raise exception.ConflictError(f"volume {volume_id} was changed meanwhile")
            return dataclasses.replace(
                record.in_next_epoch(),
                manifest=disk.manifest,
                logs=disk.logs,
                pending=None,
                content_end=None,
                metadata={**record.metadata, RESTORED_BY: by},
            )

        # Named, claimed, adopted, as a revert: the volume never refers to what is not safe.
        change = self._change(volume_id, VolumeRecordEvent.REVERT, announced)
        if is_restored_by(change.after, by):
            return change
        lost = self._claim(disk)
        if lost:
            self._forget_pending(volume_id, wanted)
            raise lost_error(f"the content for volume {volume_id}", lost)
        after = self._change(volume_id, VolumeRecordEvent.REVERT, restored).after
        return Change(change.before, after)

    def give_up_restore(self, volume_id: str, disk: DiskState, *, by: str) -> bool:
        """Have a restore never happen, however late the same one still asks for it.

        :returns: False where it has happened already.
        :raises NotFoundError: when there is no such volume.
        """
        volume_id = layout.canonical_id(volume_id, "volume")
        wanted = Pending(disk)

        def given_up(record: VolumeRecord) -> VolumeRecord:
            is_known = by in (record.metadata.get(RESTORED_BY), record.metadata.get(GIVEN_UP_BY))
            if is_known or record.owner is not None:
                # One that was in use has another epoch, so a restore comes too late anyway.
                return record
            pending = None if record.pending == wanted else record.pending
            metadata = {**record.metadata, GIVEN_UP_BY: by}
            return dataclasses.replace(record, pending=pending, metadata=metadata)

        after = self._change(volume_id, VolumeRecordEvent.REVERT, given_up).after
        return not is_restored_by(after, by)


def is_restored_by(record: VolumeRecord, by: str) -> bool:
    """Return whether somebody was the last to restore a volume."""
    return record.metadata.get(RESTORED_BY) == by
