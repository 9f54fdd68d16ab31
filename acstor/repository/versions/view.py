"""Versions and Cinder's snapshots as one list, and versions of one moment as groups.

A snapshot of a volume is a version that Cinder took. It is shown as one, under its own id, and is
stored once: as a snapshot.
"""

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Iterator

from acstor import exception
from acstor.origin.base import RefStore
from acstor.repository import layout
from acstor.repository.record_json import HINT
from acstor.repository.versions import locks, version_refs
from acstor.repository.versions.record import Consistency, DiskKind, DiskName, Trigger
from acstor.repository.versions.states import RESTORABLE, VersionState
from acstor.repository.versions.version_refs import Version
from acstor.repository.volumes import record_refs
from acstor.repository.volumes.record import DiskState
from acstor.repository.volumes.record_refs import Snapshot


class StoredAs(enum.StrEnum):
    """Record behind a version that is shown."""

    VERSION = "version"
    SNAPSHOT = "snapshot"
    """It is Cinder's: it has no lock and no expiry, and Cinder deletes it."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShownVersion:
    """A version as it is shown."""

    id: str
    stored_as: StoredAs
    disk: DiskName
    state: VersionState
    size_bytes: int
    content: DiskState
    created_at: datetime.datetime
    name: str
    trigger: Trigger
    consistency: Consistency
    group: str | None
    project: str | None
    """None of a snapshot: Cinder knows."""

    @property
    def is_restorable(self) -> bool:
        """True if it is a restore point."""
        return self.state in RESTORABLE

    def age(self, now: datetime.datetime) -> datetime.timedelta:
        """Return how old its content is; of a capture, how much would be lost with its host."""
        return now - self.created_at


def show_version(version: Version) -> ShownVersion:
    """Return a version as it is shown."""
    record = version.record
    return ShownVersion(
        id=version.id,
        stored_as=StoredAs.VERSION,
        disk=record.disk,
        state=record.state,
        size_bytes=record.size_bytes,
        content=record.content,
        created_at=record.created_at,
        name=record.name,
        trigger=record.trigger,
        consistency=record.consistency,
        group=record.group,
        project=record.project,
    )


def show_snapshot(snapshot: Snapshot) -> ShownVersion:
    """Return a snapshot as the version that it is.

    :raises CorruptError: when its time is none.
    """
    record = snapshot.record
    try:
        created_at = locks.parse_time(record.created_at, "created_at")
    except ValueError as error:
        raise exception.CorruptError(
            f"the record of snapshot {snapshot.id} is malformed: {error}", hint=HINT
        ) from error
    return ShownVersion(
        id=snapshot.id,
        stored_as=StoredAs.SNAPSHOT,
        disk=DiskName(DiskKind.VOLUME, record.volume),
        state=VersionState.COMMITTED,
        size_bytes=record.size_bytes,
        content=record.disk,
        created_at=created_at,
        name=record.name,
        trigger=Trigger.SNAPSHOT,
        consistency=Consistency.CRASH,
        group=record.group,
        project=None,
    )


def find_shown(refs: RefStore, version_id: str) -> ShownVersion | None:
    """Return what is shown under an id: a version, or a snapshot; None: nothing is.

    A version that is deleted and still in use is not shown.

    :raises InvalidError: when the id is no UUID.
    :raises CorruptError: and the like when its record is not readable.
    """
    version_id = layout.canonical_id(version_id, "version")
    version = version_refs.find_version(refs, version_id)
    if version is not None:
        is_shown = version.record.state is not VersionState.CONDEMNED
        return show_version(version) if is_shown else None
    snapshot = record_refs.find_snapshot(refs, version_id)
    return None if snapshot is None else show_snapshot(snapshot)


def list_shown(refs: RefStore) -> Iterator[ShownVersion]:
    """Yield all versions and snapshots that are shown, in no particular order.

    Those that vanish meanwhile are left out.

    :raises CorruptError: and the like when a record is not readable.
    """
    for version_id in version_refs.version_ids(refs):
        version = version_refs.find_version(refs, version_id)
        if version is not None and version.record.state is not VersionState.CONDEMNED:
            yield show_version(version)
    for snapshot_id in record_refs.snapshot_ids(refs):
        snapshot = record_refs.find_snapshot(refs, snapshot_id)
        if snapshot is not None:
            yield show_snapshot(snapshot)


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Versions of one moment: of all disks of a server, or of several volumes."""

    id: str
    versions: tuple[Version, ...]
    """Those that are there, by the names of their disks."""

    @property
    def size(self) -> int:
        """Number of disks of that moment."""
        return max(version.record.group_size for version in self.versions)

    @property
    def is_whole(self) -> bool:
        """True if every disk of that moment has a restore point."""
        restorable = sum(version.record.is_restorable for version in self.versions)
        return restorable == self.size == len(self.versions)


def groups_of(versions: Iterable[Version]) -> list[Group]:
    """Return the groups that versions are of, by id; those of no group are left out."""
    found: dict[str, list[Version]] = {}
    for version in versions:
        if version.record.group is not None:
            found.setdefault(version.record.group, []).append(version)
    return [
        Group(group, tuple(sorted(members, key=lambda one: (one.record.disk, one.id))))
        for group, members in sorted(found.items())
    ]
