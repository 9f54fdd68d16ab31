"""Index of versions: a copy of what lists, filters and quotas need of the records.

The origin stays the truth. A row is written after each change of a record, and whoever wrote it
looks at the record again: so the last writer leaves what is there. What a death leaves behind is
put right by the next rebuild.
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Protocol

from acstor.repository.versions import view
from acstor.repository.versions.locks import Lock
from acstor.repository.versions.record import (
    Consistency,
    DiskKind,
    DiskName,
    Trigger,
    VersionRecord,
)
from acstor.repository.versions.states import RESTORABLE, VersionState
from acstor.repository.volumes.record_refs import Snapshot
from acstor.versions.database.tasks import PAGE_MAX, Position


@dataclasses.dataclass(frozen=True, slots=True)
class IndexedVersion:
    """A version as the index has it; see :class:`.VersionRecord`."""

    id: str
    project: str
    name: str
    state: VersionState
    disk: DiskName
    size_bytes: int
    created_at: datetime.datetime
    committed_at: datetime.datetime | None
    expires_at: datetime.datetime | None
    trigger: Trigger
    consistency: Consistency
    group: str | None
    group_size: int
    parent: str | None
    base_image: str | None
    schedule: str | None
    slot: str | None
    lock: Lock | None
    host: str | None
    has_nvram: bool
    has_vtpm: bool
    is_used: bool
    """True if something keeps it even when it is deleted."""
    unique_bytes: int | None
    """Bytes that storing it took, at its commit; None: nobody has counted them."""
    shared_bytes: int | None
    """Stored bytes that it has in common with others, at its commit."""
    labels: Mapping[str, str]
    nonce: str
    """Of the record that this is a copy of."""

    @property
    def is_restorable(self) -> bool:
        """True if it is a restore point."""
        return self.state in RESTORABLE

    @property
    def server(self) -> str | None:
        """Server whose disk it is of."""
        return self.disk.owner if self.disk.kind is DiskKind.INSTANCE else None

    @property
    def volume(self) -> str | None:
        """Volume that it is of."""
        return self.disk.owner if self.disk.kind is DiskKind.VOLUME else None

    @property
    def is_snapshot(self) -> bool:
        """True if it is a snapshot of Cinder's, which is shown only."""
        return self.trigger is Trigger.SNAPSHOT

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> "IndexedVersion":
        """Return the row of a snapshot. It is of no project: Cinder knows who sees its volume.

        :raises CorruptError: when its record is malformed.
        """
        shown, record = view.show_snapshot(snapshot), snapshot.record
        return cls(
            id=snapshot.id,
            project="",
            name=shown.name,
            state=shown.state,
            disk=shown.disk,
            size_bytes=shown.size_bytes,
            created_at=shown.created_at,
            committed_at=shown.created_at,
            expires_at=None,
            trigger=shown.trigger,
            consistency=shown.consistency,
            group=shown.group,
            group_size=1,
            parent=None,
            base_image=None,
            schedule=None,
            slot=None,
            lock=None,
            host=None,
            has_nvram=False,
            has_vtpm=False,
            is_used=False,
            unique_bytes=None,
            shared_bytes=None,
            labels=dict(record.metadata),
            nonce=record.nonce,
        )

    @classmethod
    def of(cls, version_id: str, record: VersionRecord) -> "IndexedVersion":
        """Return the row of a record."""
        copied = {
            field.name: getattr(record, field.name)
            for field in dataclasses.fields(cls)
            if field.name in _COPIED
        }
        delta = record.delta
        return cls(
            id=version_id,
            has_nvram=record.nvram is not None,
            has_vtpm=record.vtpm is not None,
            is_used=bool(record.uses),
            unique_bytes=None if delta is None else delta.stored_bytes,
            shared_bytes=None if delta is None else delta.shared_bytes,
            **copied,
        )


_COPIED = frozenset(field.name for field in dataclasses.fields(VersionRecord))


class VersionField(enum.StrEnum):
    """Field that lists are filtered by."""

    NAME = "name"
    STATE = "state"
    SERVER = "server_id"
    VOLUME = "volume_id"
    DISK = "disk"
    """Name of the device."""
    GROUP = "group_id"
    TRIGGER = "trigger"
    CONSISTENCY = "consistency"
    SCHEDULE = "schedule_id"
    LOCKED = "locked"
    """True or false: whether its lock lasts now."""
    CREATED_AT = "created_at"
    EXPIRES_AT = "expires_at"
    SIZE_BYTES = "size_bytes"
    UNIQUE_BYTES = "unique_bytes"


class Operator(enum.StrEnum):
    """Comparison of a filter, in the words of OpenStack's API guide."""

    EQ = "eq"
    NEQ = "neq"
    IN = "in"
    NIN = "nin"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"


FilterValue = str | int | bool | datetime.datetime
"""Value that a field is compared with."""


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """Condition on a field."""

    field: VersionField
    operator: Operator
    values: tuple[FilterValue, ...]
    """One; of ``in`` and ``nin`` up to 100."""


class SortKey(enum.StrEnum):
    """Field that lists are sorted by; ids decide between equals."""

    CREATED_AT = "created_at"
    NAME = "name"
    SIZE_BYTES = "size_bytes"


@dataclasses.dataclass(frozen=True, slots=True)
class VersionQuery:
    """Page of versions."""

    project: str | None = None
    """None: of all projects."""
    filters: tuple[Filter, ...] = ()
    sort_key: SortKey = SortKey.CREATED_AT
    is_descending: bool = True
    limit: int = PAGE_MAX
    after: Position | None = None
    shows_condemned: bool = False
    """True: with those that are deleted and still in use."""
    snapshots_of: str | None = None
    """Volume whose snapshots are among them, whatever the project; None: there are no snapshots."""


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Versions of one project, without those that are condemned."""

    versions: int = 0
    unique_bytes: int = 0
    shared_bytes: int = 0


class VersionIndex(Protocol):
    """Index of versions.

    Every method may raise :class:`~acstor.exception.UnavailableError`, and may be repeated then.
    """

    def put(self, version: IndexedVersion) -> None:
        """Write a row, in place of that which is there."""

    def remove(self, version_id: str) -> None:
        """Remove a row, if there is one."""

    def find(self, version_id: str, project: str | None = None) -> IndexedVersion | None:
        """Return a version.

        :param project: whose it must be; None: anybody's.
        """

    def page(self, query: VersionQuery) -> list[IndexedVersion]:
        """Return a page.

        :raises InvalidError: when a filter makes no sense.
        """

    def usage(self, project: str) -> Usage:
        """Return what a project has."""

    def nonces(self, after: str | None, limit: int) -> list[tuple[str, str]]:
        """Return ids with the nonces of the records that the rows are of, ascending.

        :param after: id behind which to begin; None: at the first.
        """


def position_of(version: IndexedVersion, key: SortKey) -> Position:
    """Return the place of a version in a list."""
    # Imported here: rows know nothing of SQL.
    from acstor.versions.database.engine import to_ms

    value = getattr(version, key.value)
    is_moment = isinstance(value, datetime.datetime)
    return Position(to_ms(value) if is_moment else value, version.id)
