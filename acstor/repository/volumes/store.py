"""Volumes and snapshots of a repository: what the Cinder driver, the commands and the tests use.

Everything is a change of one ref, by compare-and-swap; data is neither read nor copied. A new ref
that shares the disk of another (a snapshot, a clone) is published first and then claimed, so that
what it names is not collected although the other ref may stop to name it at the same moment (RFD
8). When that comes too late the new ref is taken back and the call fails with
:class:`~acstor.exception.ConflictError`: repeat it with the present state of the volume.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.origin import ref_replacement
from acstor.repository import layout
from acstor.repository.gc import claim
from acstor.repository.record_changes import check_sound
from acstor.repository.volumes import heads, log_range, record_refs
from acstor.repository.volumes import record as records
from acstor.repository.volumes.durability import Durability
from acstor.repository.volumes.edits import RecordEdits
from acstor.repository.volumes.record import DiskState, Pending, SnapshotRecord, VolumeRecord
from acstor.repository.volumes.record_refs import Change, Snapshot, Volume
from acstor.repository.volumes.settling import Settling
from acstor.repository.volumes.states import (
    VolumeRecordEvent,
    VolumeRecordState,
    check_transition,
    state_of,
)

_TAKE_BACK_ATTEMPTS_MAX = 3
"""Attempts to remove a ref that must not stay; the origin's own come in each."""


@dataclasses.dataclass(frozen=True, slots=True)
class PushedState:
    """State of a volume after a push, as its owner reports it: all until then is in the origin."""

    size_bytes: int
    disk: DiskState
    """With the range that the owner pushed in its own epoch as the last one of ``logs``."""

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> "PushedState":
        """Read the answer of ``volume.push``.

        :raises InvalidError: when it is malformed.
        """
        try:
            size_bytes = log_range.integer(answer.get("size_bytes"), "size_bytes")
            records.check_size(size_bytes)
            return cls(size_bytes, DiskState.from_fields(answer))
        except (ValueError, TypeError) as error:
            raise exception.InvalidError(f"the answer to a push is malformed: {error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class NewVolume:
    """Properties of a new volume."""

    id: str
    size_bytes: int
    durability: Durability = dataclasses.field(default_factory=Durability)
    name: str = ""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dedup_scope: str | None = None
    """Scope of the names of chunks that are written to it."""
    assigned: str | None = None
    """Member of the origin in which its first epoch begins; None: the home."""


class VolumeStore(Settling, RecordEdits):
    """Volumes and snapshots of one repository; see :class:`record_refs.RecordRefs`."""

    # Creating

    def create(self, new: NewVolume) -> Volume:
        """Create an empty volume: it reads as zeros.

        :raises ConflictError: when there is a volume with that id.
        :raises InvalidError: when the size or another field is not sound.
        """
        return self._create(new, DiskState(), 0)

    def create_from_manifest(self, new: NewVolume, manifest: str) -> Volume:
        """Create a volume with the content of an image: no chunk is read or copied.

        Where the volume is larger than the image it reads as zeros.

        :param manifest: digest of the image's manifest, hexadecimal.
        :raises NotFoundError: when there is no such manifest, or it is being collected.
        :raises ConflictError: when there is a volume with that id.
        :raises InvalidError: when the volume is smaller than the image.
        :raises UnsupportedError: when hosts cannot write over the image: it has to be copied.
        """
        return self._create(new, DiskState(manifest), 0)

    def create_from_snapshot(self, new: NewVolume, snapshot_id: str) -> Volume:
        """Create a volume with the content of a snapshot, sharing its manifest and log objects.

        :raises NotFoundError: when there is no such snapshot.
        :raises ConflictError: when there is a volume with that id, or the snapshot was deleted
            meanwhile.
        :raises InvalidError: when the volume is smaller than the snapshot.
        """
        snapshot = self.get_snapshot(snapshot_id).record
        return self._create(new, snapshot.disk, snapshot.size_bytes)

    def clone(self, new: NewVolume, source_id: str, pushed: PushedState | None = None) -> Volume:
        """Create a volume with the content of another, sharing its manifest and log objects.

        :param pushed: what the source's owner answered to a push; needed while it has one.
        :raises NotFoundError: when there is no such source.
        :raises ConflictError: when there is a volume with that id; when the source is owned and
            nothing was pushed; when the source was folded since the push: push again.
        :raises InvalidError: when the volume is smaller than the source.
        """
        size_bytes, disk = self._settled(source_id, pushed)
        return self._create(new, disk, size_bytes)

    def rename(self, volume_id: str, new_id: str) -> Volume:
        """Give a volume that is not in use another id, for taking it into Cinder or back.

        :raises ConflictError: when it is in use, or the new id is taken.
        """
        source = self.get(volume_id)
        self._check_unused(source.id, source.record)
        old = source.record
        new = NewVolume(
            new_id,
            old.size_bytes,
            old.durability,
            old.name,
            old.metadata,
            old.dedup_scope,
            old.assigned,
        )
        renamed = self._create(new, old.disk, old.size_bytes)
        try:
            # Only as long as it is what was read: nobody acquired it meanwhile.
            self._delete(source.id, expected_nonce=old.nonce)
        except exception.AcstorError:
            self._delete(renamed.id, expected_nonce=renamed.record.nonce)
            raise
        return renamed

    # Deleting

    def delete(self, volume_id: str, *, force: bool = False) -> Volume:
        """Delete a volume. What nothing else shares is left to garbage collection.

        :param force: also while it has an owner, if no host may attach it any more: the owner is
            lost, and if it still runs, what it writes goes nowhere.
        :returns: the volume as it was.
        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: while hosts may attach it, or it is owned.
        """
        volume = self._delete(volume_id, force=force)
        # Of a standby that was killed while it asked; nobody asks any more.
        with contextlib.suppress(exception.AcstorError):
            heads.remove(self._origin, volume.id)
        return volume

    # Snapshots

    def snapshot(
        self,
        volume_id: str,
        snapshot_id: str,
        pushed: PushedState | None = None,
        *,
        group: str | None = None,
        name: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """Take a snapshot: the state of the volume gets another name; nothing is copied.

        :param pushed: what the owner answered to a push; needed while the volume has an owner.
            The snapshot is exactly that state, whatever was written since.
        :param group: id of the group snapshot that it is part of.
        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: when there is a snapshot with that id; when the volume is owned and
            nothing was pushed; when the volume was folded since the push: push again.
        """
        volume_id = layout.canonical_id(volume_id, "volume")
        size_bytes, disk = self._settled(volume_id, pushed)
        record = SnapshotRecord(
            volume=volume_id,
            size_bytes=size_bytes,
            manifest=disk.manifest,
            logs=disk.logs,
            created_at=record_refs.now_text(),
            group=group,
            name=name,
            metadata=dict(metadata or {}),
        )
        return self._publish_snapshot(snapshot_id, record)

    def rename_snapshot(self, snapshot_id: str, new_id: str) -> Snapshot:
        """Give a snapshot another id.

        :raises NotFoundError: when there is no such snapshot.
        :raises ConflictError: when the new id is taken.
        """
        old = self.get_snapshot(snapshot_id)
        record = dataclasses.replace(old.record, nonce=records.random_nonce())
        renamed = self._publish_snapshot(new_id, record)
        self.delete_snapshot(old.id)
        return renamed

    def delete_snapshot(self, snapshot_id: str) -> Snapshot:
        """Delete a snapshot. What nothing else shares is left to garbage collection.

        :raises NotFoundError: when there is no such snapshot.
        """
        snapshot_id = layout.canonical_id(snapshot_id, "snapshot")
        name = layout.snapshot_ref(snapshot_id)
        ref = self._origin.get_ref(name)
        if ref is None:
            return self.get_snapshot(snapshot_id)
        # The ref, not the record, is what is removed: a damaged record must not keep it there.
        self._origin.swap_ref(name, ref.token, None)
        try:
            return Snapshot(snapshot_id, SnapshotRecord.parse(ref.content, snapshot_id))
        except (exception.CorruptError, exception.UnsupportedError):
            return Snapshot(snapshot_id, SnapshotRecord(layout.NO_UUID, records.SECTOR_SIZE, None))

    def revert(self, volume_id: str, snapshot_id: str) -> Change:
        """Give a volume that nobody owns the content of one of its snapshots.

        Its size stays; where it is larger than the snapshot it reads as zeros. What hosts still
        have of it locally is void: its epoch grows.

        :raises NotFoundError: when one of them does not exist.
        :raises ConflictError: when the volume is owned, or the snapshot was deleted meanwhile.
        :raises InvalidError: when it is no snapshot of this volume, or when the volume is larger
            than manifests of the version of the snapshot's describe.
        :raises UnavailableError: also when the member that it is assigned to is not in use.
        """
        volume_id = layout.canonical_id(volume_id, "volume")
        snapshot = self.get_snapshot(snapshot_id)
        if snapshot.record.volume != volume_id:
            raise exception.InvalidError(
                f"snapshot {snapshot.id} is of volume {snapshot.record.volume}, not {volume_id}"
            )
        wanted = Pending(snapshot.record.disk)

        def announced(record: VolumeRecord) -> VolumeRecord:
            self._check_available(volume_id, record)
            self._check_assigned(record)
            self.check_size(record.size_bytes, wanted.disk.manifest)
            return dataclasses.replace(record, pending=wanted)

        def reverted(record: VolumeRecord) -> VolumeRecord:
            self._check_available(volume_id, record)
            if record.pending != wanted:
                raise exception.ConflictError(f"volume {volume_id} was changed meanwhile")
            return dataclasses.replace(
                record.in_next_epoch(),
                manifest=wanted.disk.manifest,
                logs=wanted.disk.logs,
                pending=None,
                content_end=None,
            )

        # Named, claimed, adopted: the volume never refers to what is not safe.
        before = self._change(volume_id, VolumeRecordEvent.REVERT, announced).before
        lost = self._claim(wanted.disk)
        if lost:
            self._forget_pending(volume_id, wanted)
            raise lost_error(f"snapshot {snapshot.id}", lost)
        after = self._change(volume_id, VolumeRecordEvent.REVERT, reverted).after
        return Change(before, after)

    def _forget_pending(self, volume_id: str, wanted: Pending) -> None:
        self._change(
            volume_id,
            VolumeRecordEvent.REVERT,
            lambda record: (
                dataclasses.replace(record, pending=None)
                if record.pending == wanted and record.owner is None
                else record
            ),
        )

    # Parts

    def _create(self, new: NewVolume, disk: DiskState, size_bytes_min: int) -> Volume:
        volume_id = layout.canonical_id(new.id, "volume")
        self.check_size(new.size_bytes)
        self._repository.check_scope_allowed(new.dedup_scope)
        lost = self._claim(disk)
        if disk.manifest is not None and not lost:
            self.check_size(new.size_bytes, disk.manifest)
            size = self._repository.load_manifest(disk.manifest).size_bytes
            size_bytes_min = max(size_bytes_min, size)
        if new.size_bytes < size_bytes_min:
            raise exception.InvalidError(
                f"volume {volume_id} would have {new.size_bytes} bytes, but its content has "
                f"{size_bytes_min}"
            )
        record = VolumeRecord(
            size_bytes=new.size_bytes,
            manifest=disk.manifest,
            logs=disk.logs,
            next=records.random_first_sequence(),
            durability=new.durability,
            name=new.name,
            created_at=record_refs.now_text(),
            metadata=dict(new.metadata),
            dedup_scope=new.dedup_scope,
            made_of=disk.manifest,
            assigned=new.assigned,
        )
        check_sound(record, f"volume {volume_id}")
        check_transition(None, VolumeRecordEvent.CREATE, record)
        if not lost:
            self._publish(layout.volume_ref(volume_id), record.encode(), f"volume {volume_id}")
            lost = self._claim(disk)
            if lost:
                name = layout.volume_ref(volume_id)
                self._take_back(name, record.encode(), f"volume {volume_id}")
        if lost:
            raise lost_error(f"what volume {volume_id} was to be made of", lost)
        return Volume(volume_id, record)

    def _publish_snapshot(self, snapshot_id: str, record: SnapshotRecord) -> Snapshot:
        snapshot_id = layout.canonical_id(snapshot_id, "snapshot")
        check_sound(record, f"snapshot {snapshot_id}")
        lost = self._claim(record.disk)
        if not lost:
            name, content = layout.snapshot_ref(snapshot_id), record.encode()
            self._publish(name, content, f"snapshot {snapshot_id}")
            lost = self._claim(record.disk)
            if lost:
                self._take_back(name, content, f"snapshot {snapshot_id}")
        if lost:
            raise lost_error(f"what snapshot {snapshot_id} was to be of", lost)
        return Snapshot(snapshot_id, record)

    def _publish(self, name: str, content: bytes, what: str) -> None:
        try:
            self._origin.swap_ref(name, None, content)
        except exception.ConflictError as error:
            raise exception.ConflictError(f"{what} exists already") from error
        except exception.UnavailableError:
            # It may be there all the same: then it has to be claimed, or taken back, as any other.
            ref = self._origin.get_ref(name)
            if ref is None or ref.content != content:
                raise

    def _take_back(self, name: str, content: bytes, what: str) -> None:
        """Remove what was published of what is lost, looking again where an answer was lost.

        :raises UnavailableError: when the origin cannot be reached any more.
        """
        for attempt in range(1, _TAKE_BACK_ATTEMPTS_MAX + 1):
            try:
                ref_replacement.change(
                    self._origin,
                    name,
                    lambda found: None if found == content else found,
                    self._wait,
                )
            except exception.UnavailableError as error:
                if attempt == _TAKE_BACK_ATTEMPTS_MAX:
                    raise exception.UnavailableError(
                        f"{what} may be there, of something that is lost: {error}",
                        hint="delete it",
                    ) from error
            else:
                return

    def _claim(self, disk: DiskState) -> list[str]:
        """Claim what a disk refers to; return what is lost."""
        lost = claim.claim_logs(self._origin, disk.logs)
        if disk.manifest is None:
            return lost
        try:
            manifest = self._repository.load_manifest(disk.manifest)
        except exception.NotFoundError:
            return [*lost, layout.manifest_key(disk.manifest)]
        return [*lost, *(name.hex() for name in sorted(claim.claim(self._origin, manifest)))]

    def _settled(self, volume_id: str, pushed: PushedState | None) -> tuple[int, DiskState]:
        """Return size and content of a volume that nobody is writing, or as it was pushed."""
        volume = self.get(volume_id)
        if pushed is not None:
            return pushed.size_bytes, pushed.disk
        self._check_available(volume.id, volume.record)
        return volume.record.size_bytes, volume.record.disk

    def _delete(
        self, volume_id: str, *, force: bool = False, expected_nonce: str | None = None
    ) -> Volume:
        def deleted(record: VolumeRecord) -> None:
            if expected_nonce not in (None, record.nonce):
                raise exception.ConflictError(f"volume {volume_id} was changed meanwhile")
            self._check_unused(volume_id, record, force=force)

        change = self._change(volume_id, VolumeRecordEvent.DELETE, deleted)
        return Volume(layout.canonical_id(volume_id, "volume"), change.before)

    @staticmethod
    def _check_available(volume_id: str, record: VolumeRecord) -> None:
        if state_of(record) is not VolumeRecordState.AVAILABLE:
            raise exception.ConflictError(
                f"volume {volume_id} is owned by host {record.owner}, which alone knows all of it",
                hint="have its owner push it, or detach it; if the host is lost, give up what it "
                f"did not push: 'acstor volume settle {volume_id}', or attach it elsewhere",
            )

    @staticmethod
    def _check_unused(volume_id: str, record: VolumeRecord, *, force: bool = False) -> None:
        if record.hosts:
            raise exception.ConflictError(
                f"volume {volume_id} is attached on {', '.join(record.hosts)}",
                hint="detach it first",
            )
        if record.owner is not None and not force:
            raise exception.ConflictError(
                f"volume {volume_id} is owned by host {record.owner}",
                hint="close it there; if the host is lost, delete it by force",
            )


def lost_error(what: str, lost: list[str]) -> exception.ConflictError:
    """Return the error that content which something was to refer to is gone."""
    return exception.ConflictError(
        f"{what} was collected meanwhile: {lost[0]}"
        + (f" and {len(lost) - 1} more" if len(lost) > 1 else ""),
        hint="if it is a volume in use, push it and try again",
    )
