"""Index of versions in SQL."""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy
from sqlalchemy import Row

from acstor import exception
from acstor.repository.versions.locks import Lock
from acstor.repository.versions.record import Consistency, DiskKind, DiskName, Trigger
from acstor.repository.versions.states import VersionState
from acstor.versions.database import json_text
from acstor.versions.database.engine import (
    Database,
    DuplicateError,
    from_ms,
    optional_moment,
    optional_ms,
    to_ms,
)
from acstor.versions.database.paging import behind, ordered
from acstor.versions.database.tables import VERSIONS
from acstor.versions.database.version_index import (
    Filter,
    FilterValue,
    IndexedVersion,
    Operator,
    SortKey,
    Usage,
    VersionField,
    VersionQuery,
)

VALUES_MAX = 100
"""Most values of one filter."""
_NO_END = (1 << 62) - 1
"""End of a lock that lasts until somebody takes it off."""
_COLUMNS = VERSIONS.c
_FIELDS: Mapping[VersionField, tuple[Any, type]] = {
    VersionField.NAME: (_COLUMNS.name, str),
    VersionField.STATE: (_COLUMNS.state, str),
    VersionField.SERVER: (_COLUMNS.server, str),
    VersionField.VOLUME: (_COLUMNS.volume, str),
    VersionField.DISK: (_COLUMNS.device, str),
    VersionField.GROUP: (_COLUMNS.group_id, str),
    VersionField.TRIGGER: (_COLUMNS.trigger_, str),
    VersionField.CONSISTENCY: (_COLUMNS.consistency, str),
    VersionField.SCHEDULE: (_COLUMNS.schedule, str),
    VersionField.LOCKED: (_COLUMNS.locked_until, bool),
    VersionField.CREATED_AT: (_COLUMNS.created_at, datetime.datetime),
    VersionField.EXPIRES_AT: (_COLUMNS.expires_at, datetime.datetime),
    VersionField.SIZE_BYTES: (_COLUMNS.size_bytes, int),
    VersionField.UNIQUE_BYTES: (_COLUMNS.unique_bytes, int),
}
"""Column and type of each field."""
_COMPARISONS: Mapping[Operator, Callable[[Any, list[Any]], Any]] = {
    Operator.EQ: lambda column, values: column == values[0],
    Operator.NEQ: lambda column, values: sqlalchemy.or_(column.is_(None), column != values[0]),
    Operator.IN: lambda column, values: column.in_(values),
    Operator.NIN: lambda column, values: sqlalchemy.or_(column.is_(None), column.not_in(values)),
    Operator.GT: lambda column, values: column > values[0],
    Operator.GTE: lambda column, values: column >= values[0],
    Operator.LT: lambda column, values: column < values[0],
    Operator.LTE: lambda column, values: column <= values[0],
}
_SORTED: Mapping[SortKey, Any] = {
    SortKey.CREATED_AT: _COLUMNS.created_at,
    SortKey.NAME: _COLUMNS.name,
    SortKey.SIZE_BYTES: _COLUMNS.size_bytes,
}


class SqlIndex:
    """Index in a database; see :class:`.VersionIndex`."""

    def __init__(self, database: Database) -> None:
        """Keep the database."""
        self._database = database

    def put(self, version: IndexedVersion) -> None:
        """Write a row, in place of that which is there."""
        values = _values(version)
        update = VERSIONS.update().where(_COLUMNS.id == version.id).values(values)
        if self._database.write(lambda one: one.execute(update).rowcount):
            return
        try:
            self._database.write(lambda one: one.execute(VERSIONS.insert().values(values)))
        except DuplicateError:
            # Somebody else wrote it first, with what may be older.
            self._database.write(lambda one: one.execute(update))

    def remove(self, version_id: str) -> None:
        """Remove a row, if there is one."""
        statement = VERSIONS.delete().where(_COLUMNS.id == version_id)
        self._database.write(lambda one: one.execute(statement))

    def find(self, version_id: str, project: str | None = None) -> IndexedVersion | None:
        """Return a version; see :meth:`.VersionIndex.find`."""
        statement = sqlalchemy.select(VERSIONS).where(_COLUMNS.id == version_id)
        if project is not None:
            statement = statement.where(_COLUMNS.project == project)
        row = self._database.read(lambda one: one.execute(statement).first())
        return None if row is None else _version(row)

    def page(self, query: VersionQuery) -> list[IndexedVersion]:
        """Return a page; see :meth:`.VersionIndex.list`."""
        column = _SORTED[query.sort_key]
        statement = sqlalchemy.select(VERSIONS).where(_of_whom(query))
        if not query.shows_condemned:
            statement = statement.where(_COLUMNS.state != VersionState.CONDEMNED)
        for one in query.filters:
            statement = statement.where(self._condition(one))
        if query.after is not None:
            is_number = column is not _COLUMNS.name
            if is_number != isinstance(query.after.value, int):
                raise exception.InvalidError("the marker is of a list in another order")
            statement = statement.where(
                behind(column, _COLUMNS.id, query.after, query.is_descending)
            )
        statement = ordered(statement, column, _COLUMNS.id, query)
        return self._database.read(
            lambda connection: [_version(row) for row in connection.execute(statement)]
        )

    def usage(self, project: str) -> Usage:
        """Return what a project has."""
        statement = sqlalchemy.select(
            sqlalchemy.func.count(),
            sqlalchemy.func.coalesce(sqlalchemy.func.sum(_COLUMNS.unique_bytes), 0),
            sqlalchemy.func.coalesce(sqlalchemy.func.sum(_COLUMNS.shared_bytes), 0),
        ).where(
            _COLUMNS.project == project,
            _COLUMNS.state != VersionState.CONDEMNED,
            _COLUMNS.trigger_ != Trigger.SNAPSHOT.value,
        )
        row = self._database.read(lambda one: one.execute(statement).one())
        return Usage(*map(int, row))

    def nonces(self, after: str | None, limit: int) -> list[tuple[str, str]]:
        """Return ids with nonces, ascending; see :meth:`.VersionIndex.nonces`."""
        statement = sqlalchemy.select(_COLUMNS.id, _COLUMNS.nonce)
        if after is not None:
            statement = statement.where(_COLUMNS.id > after)
        statement = statement.order_by(_COLUMNS.id).limit(limit)
        return self._database.read(
            lambda one: [(row.id, row.nonce) for row in one.execute(statement)]
        )

    def _condition(self, one: Filter) -> Any:
        column, kind = _FIELDS[one.field]
        many = one.operator in (Operator.IN, Operator.NIN)
        if not 1 <= len(one.values) <= (VALUES_MAX if many else 1):
            raise exception.InvalidError(
                f"{one.operator} of {one.field} has {len(one.values)} values"
            )
        if any(not isinstance(value, kind) for value in one.values):
            raise exception.InvalidError(f"a value of {one.field} is no {kind.__name__}")
        if one.field is VersionField.LOCKED:
            return self._locked(one)
        return _COMPARISONS[one.operator](column, [_stored(value) for value in one.values])

    def _locked(self, one: Filter) -> Any:
        if one.operator not in (Operator.EQ, Operator.NEQ):
            raise exception.InvalidError("locked is compared with eq and neq only")
        until = sqlalchemy.func.coalesce(_COLUMNS.locked_until, 0)
        wants_locked = bool(one.values[0]) == (one.operator is Operator.EQ)
        now = self._database.now()
        return until > now if wants_locked else until <= now


def _of_whom(query: VersionQuery) -> Any:
    """Return the condition that a row is of the project, or a snapshot that is asked for."""
    is_snapshot = _COLUMNS.trigger_ == Trigger.SNAPSHOT.value
    wanted = sqlalchemy.not_(is_snapshot)
    if query.project is not None:
        wanted = sqlalchemy.and_(wanted, _COLUMNS.project == query.project)
    if query.snapshots_of is None:
        return wanted
    shown = sqlalchemy.and_(is_snapshot, _COLUMNS.volume == query.snapshots_of)
    return sqlalchemy.or_(wanted, shown)


def _stored(value: FilterValue) -> FilterValue:
    if not isinstance(value, datetime.datetime):
        return value
    if value.tzinfo is None:
        raise exception.InvalidError("a time has no zone")
    return to_ms(value)


def _values(version: IndexedVersion) -> dict[str, Any]:
    lock = version.lock
    until = None if lock is None or lock.until is None else to_ms(lock.until)
    return {
        "id": version.id,
        "project": version.project,
        "name": version.name,
        "state": version.state.value,
        "server": version.server,
        "volume": version.volume,
        "device": version.disk.device,
        "size_bytes": version.size_bytes,
        "created_at": to_ms(version.created_at),
        "committed_at": optional_ms(version.committed_at),
        "expires_at": optional_ms(version.expires_at),
        "trigger_": version.trigger.value,
        "consistency": version.consistency.value,
        "group_id": version.group,
        "group_size": version.group_size,
        "parent": version.parent,
        "base_image": version.base_image,
        "schedule": version.schedule,
        "slot": version.slot,
        "lock_reason": None if lock is None else lock.reason,
        "locked_until": None if lock is None else _NO_END if until is None else until,
        "host": version.host,
        "has_nvram": version.has_nvram,
        "has_vtpm": version.has_vtpm,
        "is_used": version.is_used,
        "unique_bytes": version.unique_bytes,
        "shared_bytes": version.shared_bytes,
        "labels": json_text.encode(dict(version.labels), "labels of a version"),
        "nonce": version.nonce,
    }


def _version(row: Row[Any]) -> IndexedVersion:
    kind = DiskKind.VOLUME if row.server is None else DiskKind.INSTANCE
    lock = None
    if row.locked_until is not None:
        until = None if row.locked_until == _NO_END else from_ms(row.locked_until)
        lock = Lock(row.lock_reason or "", until)
    return IndexedVersion(
        id=row.id,
        project=row.project,
        name=row.name,
        state=VersionState(row.state),
        disk=DiskName(kind, row.server or row.volume, row.device),
        size_bytes=row.size_bytes,
        created_at=from_ms(row.created_at),
        committed_at=optional_moment(row.committed_at),
        expires_at=optional_moment(row.expires_at),
        trigger=Trigger(row.trigger_),
        consistency=Consistency(row.consistency),
        group=row.group_id,
        group_size=row.group_size,
        parent=row.parent,
        base_image=row.base_image,
        schedule=row.schedule,
        slot=row.slot,
        lock=lock,
        host=row.host,
        has_nvram=row.has_nvram,
        has_vtpm=row.has_vtpm,
        is_used=row.is_used,
        unique_bytes=row.unique_bytes,
        shared_bytes=row.shared_bytes,
        labels=json_text.decode_object(row.labels, f"version {row.id}"),
        nonce=row.nonce,
    )
