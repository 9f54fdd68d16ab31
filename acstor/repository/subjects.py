"""Subjects of a verification: images, volumes, snapshots and versions, with manifest and log."""

import contextlib
import dataclasses
import enum
from collections.abc import Iterator

from acstor import exception
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.repository import Repository
from acstor.repository.versions import version_refs
from acstor.repository.versions.states import VersionState
from acstor.repository.volumes import record_refs
from acstor.repository.volumes.record import DiskState

UNREADABLE = (exception.NotFoundError, exception.CorruptError, exception.UnsupportedError)


class Kind(enum.StrEnum):
    """Kind of a subject."""

    IMAGE = "image"
    VOLUME = "volume"
    SNAPSHOT = "snapshot"
    VERSION = "version"


class Part(enum.StrEnum):
    """Part of a subject that has a manifest of its own."""

    DISK = "disk"
    NVRAM = "nvram"
    """UEFI variables, of a version."""
    VTPM = "vtpm"
    """State of the virtual TPM, of a version."""


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """One image, volume, snapshot or version, or a part of one."""

    kind: Kind
    id: str
    part: Part = Part.DISK

    @property
    def whole(self) -> "Subject":
        """The image, volume, snapshot or version that it is of."""
        return Subject(self.kind, self.id)


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
        for version_id in version_refs.version_ids(self._origin):
            yield from self._parts_of(version_id)

    def _parts_of(self, version_id: str) -> Iterator[Subject]:
        """Yield a version, and what is beside its disk as far as its record is readable."""
        yield Subject(Kind.VERSION, version_id)
        with contextlib.suppress(*UNREADABLE):
            version = version_refs.find_version(self._origin, version_id)
            for part in (Part.NVRAM, Part.VTPM):
                if version is not None and getattr(version.record, part.value) is not None:
                    yield Subject(Kind.VERSION, version_id, part)

    def disk_of(self, subject: Subject) -> DiskState | None:
        """Return the disk that a subject has at present; None when the subject is gone.

        Of a volume that is owned, what its owner pushed since the last closed range is not in it.
        A version that is captured only has none, and no part that it does not name.

        :raises CorruptError: and the like when its record is not readable.
        """
        if subject.kind is Kind.IMAGE:
            image = self._repository.find_image(subject.id)
            return None if image is None else DiskState(image.record.manifest)
        if subject.kind is Kind.VOLUME:
            volume = record_refs.find_volume(self._origin, subject.id)
            return None if volume is None else volume.record.disk
        if subject.kind is Kind.VERSION:
            return self._version_of(subject)
        snapshot = record_refs.find_snapshot(self._origin, subject.id)
        return None if snapshot is None else snapshot.record.disk

    def _version_of(self, subject: Subject) -> DiskState | None:
        version = version_refs.find_version(self._origin, subject.id)
        if version is None or version.record.state is VersionState.CAPTURED:
            return None
        if subject.part is Part.DISK:
            return version.record.content
        manifest = getattr(version.record, subject.part.value)
        return None if manifest is None else DiskState(manifest)

    def load(self, disk: DiskState) -> DiskManifest | None:
        """Return the manifest of a disk, None when it has none.

        :raises CorruptError: and the like when it is not readable.
        """
        return None if disk.manifest is None else self._repository.load_manifest(disk.manifest)
