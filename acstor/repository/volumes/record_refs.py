"""Reading and changing the refs of volumes and snapshots."""

import dataclasses
import datetime
import time
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.origin.base import RefStore
from acstor.repository import layout
from acstor.repository.record_changes import RecordChange, change_record, check_sound
from acstor.repository.repository import Repository
from acstor.repository.volumes import record as records
from acstor.repository.volumes.record import SnapshotRecord, VolumeRecord
from acstor.repository.volumes.states import VolumeRecordEvent, check_transition


@dataclasses.dataclass(frozen=True, slots=True)
class Volume:
    """A volume as it is in the origin."""

    id: str
    record: VolumeRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot as it is in the origin."""

    id: str
    record: SnapshotRecord


Change = RecordChange[VolumeRecord]
"""Record of a volume before and after a call."""


def find_volume(refs: RefStore, volume_id: str) -> Volume | None:
    """Return a volume, None when there is none.

    :raises InvalidError: when the id is no UUID.
    :raises CorruptError: and the like when its record is not readable.
    """
    volume_id = layout.canonical_id(volume_id, "volume")
    ref = refs.get_ref(layout.volume_ref(volume_id))
    return None if ref is None else Volume(volume_id, VolumeRecord.parse(ref.content, volume_id))


def find_snapshot(refs: RefStore, snapshot_id: str) -> Snapshot | None:
    """Return a snapshot, None when there is none; errors as in :func:`find_volume`."""
    snapshot_id = layout.canonical_id(snapshot_id, "snapshot")
    ref = refs.get_ref(layout.snapshot_ref(snapshot_id))
    if ref is None:
        return None
    return Snapshot(snapshot_id, SnapshotRecord.parse(ref.content, snapshot_id))


def volume_ids(refs: RefStore) -> Iterator[str]:
    """Yield the ids of all volumes, in no particular order."""
    for name in refs.list_refs(layout.VOLUME_PREFIX):
        yield name.removeprefix(layout.VOLUME_PREFIX)


def snapshot_ids(refs: RefStore) -> Iterator[str]:
    """Yield the ids of all snapshots, in no particular order."""
    for name in refs.list_refs(layout.SNAPSHOT_PREFIX):
        yield name.removeprefix(layout.SNAPSHOT_PREFIX)


def now_text() -> str:
    """Return the time for people: UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class RecordRefs:
    """The refs of volumes and snapshots in one repository.

    Every method may raise :class:`~acstor.exception.UnavailableError` (the origin cannot be
    reached; the call may or may not have had its effect, and may be repeated), and those that
    change something :class:`~acstor.exception.ConflictError` when others write all the time.

    :param repository: of format version 2 or newer.
    :param wait: how to wait between attempts; a test may put its own.
    :raises UnsupportedError: when the repository is older.
    """

    def __init__(
        self, repository: Repository, wait: Callable[[float], object] = time.sleep
    ) -> None:
        """Keep what to work in."""
        repository.check_volumes_allowed()
        self._repository = repository
        self._origin = repository.origin
        self._wait = wait

    def find(self, volume_id: str) -> Volume | None:
        """Return a volume, None when there is none; errors as in :func:`find_volume`.

        What hosts keep of a volume goes when there is none, so a repository that is not there
        (:meth:`.Repository.check_there`) is an error.
        """
        volume = find_volume(self._origin, volume_id)
        if volume is not None:
            return volume
        self._repository.check_there()
        # It may have been mounted after the first look, and before the repository was found there.
        return find_volume(self._origin, volume_id)

    def get(self, volume_id: str) -> Volume:
        """Return a volume.

        :raises NotFoundError: when there is none.
        """
        volume = self.find(volume_id)
        if volume is None:
            raise _no_volume(volume_id)
        return volume

    def list_ids(self) -> Iterator[str]:
        """Yield the ids of all volumes, in no particular order."""
        return volume_ids(self._origin)

    def list_snapshot_ids(self) -> Iterator[str]:
        """Yield the ids of all snapshots, in no particular order."""
        return snapshot_ids(self._origin)

    def list(self) -> Iterator[Volume]:
        """Yield all volumes; those that vanish meanwhile are left out."""
        for volume_id in volume_ids(self._origin):
            volume = self.find(volume_id)
            if volume is not None:
                yield volume

    def find_snapshot(self, snapshot_id: str) -> Snapshot | None:
        """Return a snapshot, None when there is none; errors as in :func:`find_volume`."""
        return find_snapshot(self._origin, snapshot_id)

    def get_snapshot(self, snapshot_id: str) -> Snapshot:
        """Return a snapshot.

        :raises NotFoundError: when there is none.
        """
        snapshot = self.find_snapshot(snapshot_id)
        if snapshot is None:
            raise exception.NotFoundError(
                f"snapshot {snapshot_id} does not exist", hint="'acstor snapshot list' shows all"
            )
        return snapshot

    def list_snapshots(self, volume_id: str | None = None) -> Iterator[Snapshot]:
        """Yield the snapshots of one volume, or all; those that vanish meanwhile are left out."""
        wanted = None if volume_id is None else layout.canonical_id(volume_id, "volume")
        for snapshot_id in snapshot_ids(self._origin):
            snapshot = self.find_snapshot(snapshot_id)
            if snapshot is not None and wanted in (None, snapshot.record.volume):
                yield snapshot

    def _change(
        self,
        volume_id: str,
        event: VolumeRecordEvent | Callable[[VolumeRecord], VolumeRecordEvent],
        make: Callable[[VolumeRecord], VolumeRecord | None],
    ) -> Change:
        """Change a record by compare-and-swap, again when somebody else was quicker.

        :param event: what happens, possibly after a look at the record.
        :param make: returns the record as it shall be, the same one when nothing is to do, None
            to delete the volume; raises to refuse. Asked anew at every attempt.
        :raises NotFoundError: when there is no such volume.
        :raises InvalidError: when the new record is not sound.
        """
        volume_id = layout.canonical_id(volume_id, "volume")

        def read(content: bytes | None) -> VolumeRecord:
            if content is None:
                raise _no_volume(volume_id)
            return VolumeRecord.parse(content, volume_id)

        def renew(before: VolumeRecord, after: VolumeRecord | None) -> VolumeRecord | None:
            happens = event if isinstance(event, VolumeRecordEvent) else event(before)
            check_transition(before, happens, after)
            if after is None:
                return None
            after = dataclasses.replace(after, nonce=records.random_nonce())
            check_sound(after, f"volume {volume_id}")
            return after

        name = layout.volume_ref(volume_id)
        return change_record(self._origin, name, read, make, renew, self._wait)


def _no_volume(volume_id: str) -> exception.NotFoundError:
    return exception.NotFoundError(
        f"volume {volume_id} does not exist", hint="'acstor volume list' shows all"
    )
