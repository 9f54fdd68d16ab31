"""Taking over volumes and snapshots that are in the repository but not in Cinder, and letting go.

A volume that Cinder takes over keeps its name in the repository (``_name_id`` of Cinder), as its
snapshots name it. A snapshot that Cinder takes over is written anew under Cinder's id.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from cinder import exception as cinder_exception
from cinder.volume import volume_utils

from acstor import exception
from acstor.drivers.cinder.failures import reported
from acstor.drivers.cinder.feature import (
    CINDER_ID,
    GIB,
    NO_SHARED_TARGET,
    Feature,
    disk_of,
    metadata_of,
)
from acstor.drivers.cinder.locks import one_at_a_time
from acstor.repository import layout
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.record_refs import Snapshot, Volume

LOG = logging.getLogger(__name__)

SOURCE_NAME = "source-name"
SOURCE_ID = "source-id"

Entry = dict[str, Any]


class Managing(Feature):
    """manage, unmanage and their listings."""

    @reported("taking over volume {existing_ref} as {volume.id}")
    def manage_existing_get_size(self, volume: Any, existing_ref: Any) -> int:
        """Return the size of a volume that Cinder is to take over, GiB, rounded up."""
        return _in_gib(self._free_volume(existing_ref).record.size_bytes)

    @reported("taking over volume {existing_ref} as {volume.id}")
    @one_at_a_time("{volume.id}")
    def manage_existing(self, volume: Any, existing_ref: Any) -> dict[str, Any]:
        """Take over a volume; its content, its durability and its snapshots stay as they are."""
        found = self._free_volume(existing_ref)
        disk, size_bytes = found.id, found.record.size_bytes
        if size_bytes % GIB:
            self.back_end.volumes.resize(disk, _in_gib(size_bytes) * GIB)
        metadata = metadata_of(volume, volume.volume_type)
        self.back_end.volumes.describe(disk, metadata=metadata)
        return {"_name_id": None if disk == str(volume.id) else disk, **NO_SHARED_TARGET}

    @reported("letting go of volume {volume.id}")
    def unmanage(self, volume: Any) -> None:
        """Let go of a volume: it stays as it is."""
        self.back_end.volumes.describe(disk_of(volume), metadata={CINDER_ID: None})

    @reported("listing volumes")
    def get_manageable_volumes(
        self,
        cinder_volumes: Sequence[Any],
        marker: Any,
        limit: int,
        offset: int,
        sort_keys: Sequence[str],
        sort_dirs: Sequence[str],
    ) -> list[Entry]:
        """Return the volumes of the repository, and which of them Cinder may take over."""
        known = {disk_of(volume): str(volume["id"]) for volume in cinder_volumes}
        entries = [
            _volume_entry(found.id, found.record, known.get(found.id))
            for found in self.back_end.volumes.list()
        ]
        return list(
            volume_utils.paginate_entries_list(
                entries, marker, limit, offset, list(sort_keys), list(sort_dirs)
            )
        )

    @reported("taking over snapshot {existing_ref} as {snapshot.id}")
    def manage_existing_snapshot_get_size(self, snapshot: Any, existing_ref: Any) -> int:
        """Return the size of a snapshot that Cinder is to take over, GiB, rounded up."""
        return _in_gib(self._snapshot_of(snapshot, existing_ref).record.size_bytes)

    @reported("taking over snapshot {existing_ref} as {snapshot.id}")
    def manage_existing_snapshot(self, snapshot: Any, existing_ref: Any) -> None:
        """Take over a snapshot of a volume that Cinder has."""
        existing = self._snapshot_of(snapshot, existing_ref)
        if existing.id != str(snapshot.id):
            self.back_end.volumes.rename_snapshot(existing.id, str(snapshot.id))

    def unmanage_snapshot(self, snapshot: Any) -> None:
        """Let go of a snapshot: it stays as it is."""

    @reported("listing snapshots")
    def get_manageable_snapshots(
        self,
        cinder_snapshots: Sequence[Any],
        marker: Any,
        limit: int,
        offset: int,
        sort_keys: Sequence[str],
        sort_dirs: Sequence[str],
    ) -> list[Entry]:
        """Return the snapshots of the repository, and which of them Cinder may take over."""
        known = {str(snapshot["id"]) for snapshot in cinder_snapshots}
        volumes = self.back_end.volumes
        managed = {found.id for found in volumes.list() if CINDER_ID in found.record.metadata}
        entries = [
            _snapshot_entry(found, found.id in known, found.record.volume in managed)
            for found in volumes.list_snapshots()
        ]
        return list(
            volume_utils.paginate_entries_list(
                entries, marker, limit, offset, list(sort_keys), list(sort_dirs)
            )
        )

    def _free_volume(self, existing_ref: Any) -> Volume:
        """Return a volume that Cinder may take over.

        :raises ManageExistingInvalidReference: when it may not, saying why.
        """
        found = self.back_end.volumes.find(_name_in(existing_ref))
        if found is None:
            raise _bad(existing_ref, "there is no such volume in the repository")
        reason = _why_not(found.record)
        if reason is not None:
            raise _bad(existing_ref, reason)
        return found

    def _snapshot_of(self, snapshot: Any, existing_ref: Any) -> Snapshot:
        found = self.back_end.volumes.find_snapshot(_name_in(existing_ref))
        if found is None:
            raise _bad(existing_ref, "there is no such snapshot in the repository")
        disk, of = disk_of(snapshot.volume), found.record.volume
        if of != disk:
            raise _bad(existing_ref, f"it is a snapshot of volume {of}, not of {disk}")
        return found


def _name_in(existing_ref: Any) -> str:
    """Return the UUID that a reference names.

    :raises ManageExistingInvalidReference: when it names none.
    """
    reference = existing_ref if isinstance(existing_ref, Mapping) else {SOURCE_NAME: existing_ref}
    name = reference.get(SOURCE_NAME) or reference.get(SOURCE_ID)
    if not name:
        raise _bad(existing_ref, f"it must have {SOURCE_NAME} or {SOURCE_ID}")
    try:
        return layout.canonical_image_id(str(name))
    except exception.InvalidError:
        raise _bad(existing_ref, f"{name} is no UUID") from None


def _bad(existing_ref: Any, reason: str) -> Exception:
    error: Exception = cinder_exception.ManageExistingInvalidReference(
        existing_ref=existing_ref, reason=reason
    )
    return error


def _why_not(record: VolumeRecord) -> str | None:
    """Return why Cinder may not take over a volume, None when it may."""
    if CINDER_ID in record.metadata:
        return f"it is volume {record.metadata[CINDER_ID]} of Cinder"
    if record.hosts or record.owner is not None:
        users = record.hosts or (record.owner,)
        return f"it is in use on {', '.join(map(str, users))}"
    return None


def _volume_entry(disk: str, record: VolumeRecord, cinder_id: str | None) -> Entry:
    reason = "already managed" if cinder_id is not None else _why_not(record)
    return {
        "reference": {SOURCE_NAME: disk},
        "size": _in_gib(record.size_bytes),
        "safe_to_manage": reason is None,
        "reason_not_safe": reason,
        "cinder_id": cinder_id,
        "extra_info": {"name": record.name} if record.name else None,
    }


def _snapshot_entry(found: Snapshot, is_known: bool, is_volume_managed: bool) -> Entry:
    record, reason = found.record, None
    if is_known:
        reason = "already managed"
    elif not is_volume_managed:
        reason = "its volume is not managed"
    return {
        "reference": {SOURCE_NAME: found.id},
        "size": _in_gib(record.size_bytes),
        "safe_to_manage": reason is None,
        "reason_not_safe": reason,
        "cinder_id": found.id if is_known else None,
        "extra_info": {"created_at": record.created_at} if record.created_at else None,
        "source_reference": {SOURCE_NAME: record.volume},
    }


def _in_gib(size_bytes: int) -> int:
    return -(-size_bytes // GIB)
