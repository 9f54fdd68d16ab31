"""Subjects of a verification: images, volumes and snapshots, each with its manifest and log."""

import dataclasses
import enum
from collections.abc import Iterator

from acstor import exception
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.repository import Repository
from acstor.repository.volumes import record_refs
from acstor.repository.volumes.record import DiskState

UNREADABLE = (exception.NotFoundError, exception.CorruptError, exception.UnsupportedError)


class Kind(enum.StrEnum):
    """Kind of a subject."""

    IMAGE = "image"
    VOLUME = "volume"
    SNAPSHOT = "snapshot"


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """One image, volume or snapshot."""

    kind: Kind
    id: str


class Subjects:
    """The subjects of one repository."""

    def __init__(self, repository: Repository) -> None:
        """Keep where they are."""
        self._repository = repository
        self._origin = repository.origin

    def all(self) -> Iterator[Subject]:
        """Yield every subject, in no particular order."""
        for image_id in self._repository.list_image_ids():
            yield Subject(Kind.IMAGE, image_id)
        for volume_id in record_refs.volume_ids(self._origin):
            yield Subject(Kind.VOLUME, volume_id)
        for snapshot_id in record_refs.snapshot_ids(self._origin):
            yield Subject(Kind.SNAPSHOT, snapshot_id)

    def disk_of(self, subject: Subject) -> DiskState | None:
        """Return the disk that a subject has at present; None when the subject is gone.

        Of a volume that is owned, what its owner pushed since the last closed range is not in it.

        :raises CorruptError: and the like when its record is not readable.
        """
        if subject.kind is Kind.IMAGE:
            image = self._repository.find_image(subject.id)
            return None if image is None else DiskState(image.record.manifest)
        if subject.kind is Kind.VOLUME:
            volume = record_refs.find_volume(self._origin, subject.id)
            return None if volume is None else volume.record.disk
        snapshot = record_refs.find_snapshot(self._origin, subject.id)
        return None if snapshot is None else snapshot.record.disk

    def load(self, disk: DiskState) -> DiskManifest | None:
        """Return the manifest of a disk, None when it has none.

        :raises CorruptError: and the like when it is not readable.
        """
        return None if disk.manifest is None else self._repository.load_manifest(disk.manifest)
