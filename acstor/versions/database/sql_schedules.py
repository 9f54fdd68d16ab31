"""Schedules in SQL."""

from typing import Any

import sqlalchemy
from sqlalchemy import Row
from sqlalchemy.engine import Connection

from acstor import exception
from acstor.versions.database import json_text
from acstor.versions.database.engine import (
    Database,
    DuplicateError,
    from_ms,
    optional_moment,
    to_ms,
)
from acstor.versions.database.paging import behind, ordered
from acstor.versions.database.schedule_store import (
    TARGETS_MAX,
    DueTarget,
    NewSchedule,
    ScheduleQuery,
    StoredSchedule,
    Target,
    TargetKind,
    WantedConsistency,
)
from acstor.versions.database.sql_tasks import PURGE_ROWS_MAX, insert_task
from acstor.versions.database.tables import NAME_LENGTH, RUNS, SCHEDULES, TARGETS
from acstor.versions.database.tasks import KEEP_DAYS, NewTask
from acstor.versions.retention import Policy
from acstor.versions.schedules import Run, Schedule

_DAY_MS = 86_400_000
_COLUMNS = SCHEDULES.c


class SqlSchedules:
    """Schedules in a database; see :class:`.ScheduleStore`."""

    def __init__(self, database: Database) -> None:
        """Keep the database."""
        self._database = database

    def create(self, new: NewSchedule) -> StoredSchedule:
        """Make a schedule; see :meth:`.ScheduleStore.create`."""
        now = self._database.now()
        statement = SCHEDULES.insert().values(
            id=new.schedule.id,
            project=new.project,
            enabled_at=now,
            created_at=now,
            updated_at=now,
            revision=0,
            **_values(new),
        )
        try:
            self._database.write(lambda one: one.execute(statement))
        except DuplicateError as error:
            found = self._find(new.schedule.id)
            if found is None or not _is_same(found, new):
                raise _name_taken(new) from error
            return found
        return self.get(new.schedule.id)

    def get(self, schedule_id: str, project: str | None = None) -> StoredSchedule:
        """Return a schedule; see :meth:`.ScheduleStore.get`."""
        found = self._find(schedule_id)
        if found is None or (project is not None and found.project != project):
            raise _no_schedule(schedule_id)
        return found

    def _find(self, schedule_id: str) -> StoredSchedule | None:
        return self._first(_COLUMNS.id == schedule_id)

    def find_name(self, project: str, name: str) -> StoredSchedule | None:
        """Return the schedule of a project with a name."""
        return self._first(_COLUMNS.project == project, _COLUMNS.name == name)

    def _first(self, *conditions: Any) -> StoredSchedule | None:
        statement = sqlalchemy.select(SCHEDULES).where(*conditions)
        row = self._database.read(lambda one: one.execute(statement).first())
        return None if row is None else _stored(row)

    def page(self, query: ScheduleQuery) -> list[StoredSchedule]:
        """Return a page."""
        statement = sqlalchemy.select(SCHEDULES)
        if query.project is not None:
            statement = statement.where(_COLUMNS.project == query.project)
        if query.target is not None:
            has = sqlalchemy.select(TARGETS.c.schedule).where(TARGETS.c.target == query.target)
            statement = statement.where(_COLUMNS.id.in_(has))
        if query.after is not None:
            statement = statement.where(
                behind(_COLUMNS.created_at, _COLUMNS.id, query.after, query.is_descending)
            )
        statement = ordered(statement, _COLUMNS.created_at, _COLUMNS.id, query)
        return self._database.read(lambda one: [_stored(row) for row in one.execute(statement)])

    def count(self, project: str) -> int:
        """Return the number of a project's schedules."""
        statement = (
            sqlalchemy.select(sqlalchemy.func.count())
            .select_from(SCHEDULES)
            .where(_COLUMNS.project == project)
        )
        return int(self._database.read(lambda one: one.execute(statement).scalar_one()))

    def replace(self, schedule_id: str, revision: int, new: NewSchedule) -> StoredSchedule:
        """Change a schedule; see :meth:`.ScheduleStore.replace`."""
        before = self.get(schedule_id)
        values = _values(new)
        is_restarted = before.schedule != new.schedule or not before.is_enabled
        if new.is_enabled and is_restarted:
            values["enabled_at"] = self._database.now()
        statement = (
            SCHEDULES.update()
            .where(_COLUMNS.id == schedule_id, _COLUMNS.revision == revision)
            .values(updated_at=self._database.now(), revision=revision + 1, **values)
        )
        try:
            self._database.write(lambda one: one.execute(statement).rowcount)
        except DuplicateError as error:
            raise _name_taken(new) from error
        found = self.get(schedule_id)
        if found.revision == revision + 1 and _is_same(found, new):
            return found
        raise exception.ConflictError(f"schedule {schedule_id} was changed meanwhile")

    def delete(self, schedule_id: str) -> None:
        """Delete a schedule; see :meth:`.ScheduleStore.delete`."""

        def work(connection: Connection) -> None:
            connection.execute(TARGETS.delete().where(TARGETS.c.schedule == schedule_id))
            connection.execute(SCHEDULES.delete().where(_COLUMNS.id == schedule_id))

        self._database.write(work)

    def add_target(self, schedule_id: str, kind: TargetKind, target_id: str) -> Target:
        """Add a target; see :meth:`.ScheduleStore.add_target`."""
        self.get(schedule_id)
        found = self._target(schedule_id, target_id)
        if found is not None:
            return found
        self._check_room(schedule_id)
        statement = TARGETS.insert().values(
            schedule=schedule_id, target=target_id, kind=kind.value, added_at=self._database.now()
        )
        try:
            self._database.write(lambda one: one.execute(statement))
        except DuplicateError:
            pass  # somebody else has added it meanwhile
        except exception.InternalError as error:
            raise _no_schedule(schedule_id) from error  # it was deleted meanwhile
        found = self._target(schedule_id, target_id)
        if found is None:
            raise _no_schedule(schedule_id)
        return found

    def _check_room(self, schedule_id: str) -> None:
        statement = (
            sqlalchemy.select(sqlalchemy.func.count())
            .select_from(TARGETS)
            .where(TARGETS.c.schedule == schedule_id)
        )
        if self._database.read(lambda one: one.execute(statement).scalar_one()) >= TARGETS_MAX:
            raise exception.ExhaustedError(
                f"schedule {schedule_id} has {TARGETS_MAX} targets", hint="make another schedule"
            )

    def _target(self, schedule_id: str, target_id: str) -> Target | None:
        statement = sqlalchemy.select(TARGETS).where(
            TARGETS.c.schedule == schedule_id, TARGETS.c.target == target_id
        )
        row = self._database.read(lambda one: one.execute(statement).first())
        return None if row is None else _target(row)

    def remove_target(self, schedule_id: str, target_id: str) -> None:
        """Remove a target, if it is one."""
        statement = TARGETS.delete().where(
            TARGETS.c.schedule == schedule_id, TARGETS.c.target == target_id
        )
        self._database.write(lambda one: one.execute(statement))

    def targets(self, schedule_id: str, after: str | None, limit: int) -> list[Target]:
        """Return a page of the targets, by id."""
        statement = sqlalchemy.select(TARGETS).where(TARGETS.c.schedule == schedule_id)
        if after is not None:
            statement = statement.where(TARGETS.c.target > after)
        statement = statement.order_by(TARGETS.c.target).limit(limit)
        return self._database.read(lambda one: [_target(row) for row in one.execute(statement)])

    def enabled_targets(self, after: tuple[str, str] | None, limit: int) -> list[DueTarget]:
        """Return a page of the targets of all schedules that are switched on."""
        schedule, target = TARGETS.c.schedule, TARGETS.c.target
        statement = (
            sqlalchemy.select(SCHEDULES, *TARGETS.c)
            .join(TARGETS, schedule == _COLUMNS.id)
            .where(_COLUMNS.is_enabled.is_(True))
        )
        if after is not None:
            statement = statement.where(
                sqlalchemy.or_(
                    schedule > after[0],
                    sqlalchemy.and_(schedule == after[0], target > after[1]),
                )
            )
        statement = statement.order_by(schedule, target).limit(limit)
        return self._database.read(
            lambda one: [DueTarget(_stored(row), _target(row)) for row in one.execute(statement)]
        )

    def start_run(self, run: Run, new: NewTask) -> bool:
        """Note a run and queue its task; see :meth:`.ScheduleStore.start_run`."""
        slot_at, now = to_ms(run.slot.at), self._database.now()

        def work(connection: Connection) -> None:
            connection.execute(
                RUNS.insert().values(
                    schedule=run.schedule_id,
                    target=run.target_id,
                    slot=run.slot.key,
                    slot_at=slot_at,
                    task=new.id,
                    created_at=now,
                )
            )
            insert_task(connection, self._database, new)
            last = TARGETS.c.last_slot
            connection.execute(
                TARGETS.update()
                .where(
                    TARGETS.c.schedule == run.schedule_id,
                    TARGETS.c.target == run.target_id,
                    sqlalchemy.or_(last.is_(None), last < slot_at),
                )
                .values(last_slot=slot_at)
            )

        try:
            self._database.write(work)
        except DuplicateError:
            return self._is_run_of(run, new.id)
        return True

    def _is_run_of(self, run: Run, task_id: str) -> bool:
        """Return whether a run that is noted is this one, of an attempt whose answer was lost."""
        statement = sqlalchemy.select(RUNS.c.task).where(
            RUNS.c.schedule == run.schedule_id,
            RUNS.c.target == run.target_id,
            RUNS.c.slot == run.slot.key,
        )
        return self._database.read(lambda one: one.execute(statement).scalar()) == task_id

    def purge_runs(self, keep_days: float = KEEP_DAYS) -> int:
        """Forget runs that are older; see :meth:`.ScheduleStore.purge_runs`."""
        bound = self._database.now() - int(keep_days * _DAY_MS)
        keys = (RUNS.c.schedule, RUNS.c.target, RUNS.c.slot)

        def work(connection: Connection) -> int:
            old = connection.execute(
                sqlalchemy.select(*keys).where(RUNS.c.created_at < bound).limit(PURGE_ROWS_MAX)
            ).all()
            for row in old:
                connection.execute(
                    RUNS.delete().where(
                        *(key == value for key, value in zip(keys, row, strict=True))
                    )
                )
            return len(old)

        total = 0
        while count := self._database.write(work):
            total += count
        return total


def _values(new: NewSchedule) -> dict[str, Any]:
    if not isinstance(new.name, str) or not 0 < len(new.name) <= NAME_LENGTH:
        raise exception.InvalidError(f"the name of a schedule has 1 to {NAME_LENGTH} characters")
    return {
        "name": new.name,
        "times": json_text.encode(new.schedule.to_fields(), "a schedule"),
        "keep": json_text.encode(new.keep.to_fields(), "a retention policy"),
        "consistency": new.consistency.value,
        "is_enabled": new.is_enabled,
    }


def _is_same(found: StoredSchedule, new: NewSchedule) -> bool:
    return (
        found.project == new.project
        and found.name == new.name
        and found.schedule == new.schedule
        and found.keep == new.keep
        and found.consistency is new.consistency
        and found.is_enabled == new.is_enabled
    )


def _stored(row: Row[Any]) -> StoredSchedule:
    what = f"schedule {row.id}"
    return StoredSchedule(
        schedule=Schedule.from_fields(row.id, json_text.decode_object(row.times, what)),
        project=row.project,
        name=row.name,
        keep=Policy.from_fields(json_text.decode_object(row.keep, what)),
        consistency=WantedConsistency(row.consistency),
        is_enabled=row.is_enabled,
        enabled_at=from_ms(row.enabled_at),
        created_at=from_ms(row.created_at),
        updated_at=from_ms(row.updated_at),
        revision=row.revision,
    )


def _target(row: Row[Any]) -> Target:
    return Target(
        schedule_id=row.schedule,
        kind=TargetKind(row.kind),
        id=row.target,
        added_at=from_ms(row.added_at),
        last_slot=optional_moment(row.last_slot),
    )


def _name_taken(new: NewSchedule) -> exception.ConflictError:
    return exception.ConflictError(
        f"project {new.project} has another schedule {new.name!r:.60}", hint="give it another name"
    )


def _no_schedule(schedule_id: str) -> exception.NotFoundError:
    return exception.NotFoundError(f"schedule {schedule_id} does not exist")
