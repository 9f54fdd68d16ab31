"""Tasks in SQL."""

import contextlib
from collections.abc import Iterable, Mapping
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
    optional_ms,
)
from acstor.versions.database.paging import behind, ordered
from acstor.versions.database.tables import NAME_LENGTH, TASKS
from acstor.versions.database.task_order import by_turns, is_takeable
from acstor.versions.database.task_states import (
    ACTIVE,
    FINISHED,
    TRANSITIONS,
    UNFINISHED,
    TaskEvent,
    TaskState,
    states_before,
)
from acstor.versions.database.tasks import (
    CHOSEN,
    KEEP_DAYS,
    Lease,
    NewTask,
    Progress,
    Task,
    TaskError,
    TaskKind,
    TaskQuery,
)

CANDIDATES_MAX = 16
"""Tasks that one attempt to take a lease looks at: other workers take some of them first."""
PURGE_ROWS_MAX = 1000
"""Rows that one statement deletes: a Galera cluster certifies it as a whole."""
_DAY_MS = 86_400_000
_COLUMNS = TASKS.c


def insert_task(connection: Connection, database: Database, new: NewTask, now: Any = None) -> None:
    """Queue a task within a transaction.

    :raises InvalidError: when it is malformed.
    """
    for name in ("project", "resource"):
        value = getattr(new, name)
        if not isinstance(value, str) or not 0 < len(value) <= NAME_LENGTH:
            raise exception.InvalidError(f"{name} of a task is no name: {value!r:.40}")
    present = database.now() if now is None else now
    due = optional_ms(new.not_before)
    connection.execute(
        TASKS.insert().values(
            id=new.id,
            project=new.project,
            user=new.user,
            request=new.request,
            kind=new.kind.value,
            state=TRANSITIONS.after(None, TaskEvent.CREATE),
            resource=new.resource,
            holds=None,
            parameters=json_text.encode(new.parameters, "parameters of a task"),
            step="",
            progress=0.0,
            bytes_done=0,
            is_cancelled=False,
            not_before=present if due is None else due,
            created_at=present,
            updated_at=present,
            epoch=0,
        )
    )


class SqlTasks:
    """Tasks in a database; see :class:`.TaskStore`."""

    def __init__(self, database: Database) -> None:
        """Keep the database."""
        self._database = database

    def create(self, new: NewTask) -> Task:
        """Queue a task; see :meth:`.TaskStore.create`."""
        try:
            self._database.write(lambda one: insert_task(one, self._database, new))
        except DuplicateError:
            found = self.get(new.id)
            asked = {name: one for name, one in found.parameters.items() if name != CHOSEN}
            same = (found.project, found.kind, found.resource, asked)
            if same != (new.project, new.kind, new.resource, dict(new.parameters)):
                raise
            return found
        return self.get(new.id)

    def get(self, task_id: str, project: str | None = None) -> Task:
        """Return a task; see :meth:`.TaskStore.get`."""
        return self._database.read(lambda one: _get(one, task_id, project))

    def page(self, query: TaskQuery) -> list[Task]:
        """Return a page of tasks."""
        statement = sqlalchemy.select(TASKS)
        if query.project is not None:
            statement = statement.where(_COLUMNS.project == query.project)
        if query.states:
            statement = statement.where(_COLUMNS.state.in_(sorted(query.states)))
        if query.kinds:
            statement = statement.where(_COLUMNS.kind.in_(sorted(query.kinds)))
        if query.resource is not None:
            statement = statement.where(_COLUMNS.resource == query.resource)
        if query.after is not None:
            statement = statement.where(
                behind(_COLUMNS.created_at, _COLUMNS.id, query.after, query.is_descending)
            )
        statement = ordered(statement, _COLUMNS.created_at, _COLUMNS.id, query)
        return self._database.read(lambda one: [_task(row) for row in one.execute(statement)])

    def unfinished(self, project: str, *, are_asked_for: bool) -> int:
        """Return how many tasks have not ended; see :meth:`.TaskStore.unfinished`."""
        user = _COLUMNS.user
        statement = (
            sqlalchemy.select(sqlalchemy.func.count())
            .select_from(TASKS)
            .where(
                _COLUMNS.project == project,
                _COLUMNS.state.in_(sorted(UNFINISHED)),
                user.is_not(None) if are_asked_for else user.is_(None),
            )
        )
        return self._database.read(lambda one: int(one.execute(statement).scalar_one()))

    def forget(self, task_id: str) -> None:
        """Forget a task that nobody has taken; see :meth:`.TaskStore.forget`."""
        is_it = _COLUMNS.id == task_id
        is_untouched = sqlalchemy.and_(_COLUMNS.state == TaskState.QUEUED, _COLUMNS.epoch == 0)
        self._database.write(lambda one: one.execute(TASKS.delete().where(is_it, is_untouched)))
        with contextlib.suppress(exception.NotFoundError):
            self.cancel(task_id)

    def cancel(self, task_id: str) -> Task:
        """Cancel a task; see :meth:`.TaskStore.cancel`."""
        now = self._database.now()

        def work(connection: Connection) -> Task:
            for state, values in (
                (TaskState.QUEUED, {"state": TaskState.CANCELLED, "finished_at": now}),
                (TaskState.RUNNING, {}),
            ):
                changed = connection.execute(
                    TASKS.update()
                    .where(_COLUMNS.id == task_id, _COLUMNS.state == state)
                    .values(is_cancelled=True, updated_at=now, **values)
                )
                if changed.rowcount:
                    break
            return _get(connection, task_id)

        return self._database.write(work)

    def take(self, owner: str, lease_seconds: float) -> tuple[Task, Lease] | None:
        """Take the lease of the task whose turn it is; see :meth:`.TaskStore.take`."""
        for task_id, epoch in self._database.read(self._due):
            lease = Lease(task_id, owner, epoch + 1)
            task = self._try_to_take(lease, lease_seconds)
            if task is not None:
                return task, lease
        return None

    def _try_to_take(self, lease: Lease, seconds: float) -> Task | None:
        """Take a lease, unless somebody else was quicker."""
        try:
            return self._database.write(lambda one: self._take(one, lease, seconds))
        except DuplicateError:
            return None  # another task of the resource was taken meanwhile

    def _due(self, connection: Connection) -> list[tuple[str, int]]:
        statement = by_turns(self._database.now(), CANDIDATES_MAX)
        return [(row.id, row.epoch) for row in connection.execute(statement)]

    def _take(self, connection: Connection, lease: Lease, seconds: float) -> Task | None:
        now = self._database.now()
        connection.execute(
            TASKS.update()
            .where(
                _COLUMNS.id == lease.task_id,
                _COLUMNS.epoch == lease.epoch - 1,
                is_takeable(now),
            )
            .values(
                owner=lease.owner,
                epoch=lease.epoch,
                lease_until=now + int(seconds * 1000),
                holds=_COLUMNS.resource,
                updated_at=now,
                state=sqlalchemy.case(
                    (_COLUMNS.state == TaskState.QUEUED, TaskState.RUNNING),
                    else_=_COLUMNS.state,
                ),
            )
        )
        # Looked at rather than counted: an attempt whose answer was lost may have taken it.
        row = connection.execute(sqlalchemy.select(TASKS).where(_is_of(lease))).first()
        return None if row is None else _task(row)

    def renew(self, lease: Lease, lease_seconds: float) -> Task:
        """Make a lease last longer; see :meth:`.TaskStore.renew`."""
        until = self._database.now() + int(lease_seconds * 1000)
        return self._change(lease, ACTIVE, lease_until=until)

    def release(self, lease: Lease, delay_seconds: float = 0.0) -> None:
        """Give a lease back before its end; see :meth:`.TaskStore.release`."""
        now = self._database.now()
        statement = (
            TASKS.update()
            .where(_is_of(lease), _COLUMNS.state.in_(sorted(ACTIVE)))
            .values(owner=None, lease_until=None, not_before=now + int(delay_seconds * 1000))
        )
        self._database.write(lambda one: one.execute(statement).rowcount)

    def report(self, lease: Lease, progress: Progress) -> None:
        """Note the progress; see :meth:`.TaskStore.report`."""
        values: dict[str, Any] = {}
        if progress.step is not None:
            values["step"] = progress.step[:NAME_LENGTH]
        if progress.share is not None:
            share = min(max(progress.share, 0.0), 1.0)
            values["progress"] = sqlalchemy.case(
                (_COLUMNS.progress < share, share), else_=_COLUMNS.progress
            )
        for name in ("bytes_done", "bytes_total"):
            count = getattr(progress, name)
            if count is not None:
                values[name] = count
        self._change(lease, ACTIVE, **values)

    def decide(self, lease: Lease, chosen: Mapping[str, Any]) -> Task:
        """Note what was left to the worker; see :meth:`.TaskStore.decide`."""
        # Nobody but the lease's worker changes parameters, so nothing comes between.
        parameters = {**self.get(lease.task_id).parameters, CHOSEN: dict(chosen)}
        text = json_text.encode(parameters, "parameters of a task")
        return self._change(lease, ACTIVE, parameters=text)

    def start_reverting(self, lease: Lease, error: TaskError | None) -> Task:
        """Note that undoing begins; see :meth:`.TaskStore.start_reverting`."""
        values: dict[str, Any] = {"state": TaskState.REVERTING}
        if error is not None:
            values["error"] = json_text.encode(error.to_fields(), "error of a task")
        return self._change(
            lease, states_before(TaskEvent.REVERT), frozenset({TaskState.REVERTING}), **values
        )

    def finish(
        self,
        lease: Lease,
        event: TaskEvent,
        result: Mapping[str, Any] | None = None,
        error: TaskError | None = None,
    ) -> Task:
        """End a task; see :meth:`.TaskStore.finish`."""
        before = states_before(event)
        (after,) = {TRANSITIONS.after(state, event) for state in before}
        if after not in FINISHED:
            raise exception.InternalError(f"{event.value} does not end a task")
        values: dict[str, Any] = {
            "state": after,
            "holds": None,
            "finished_at": self._database.now(),
            "result": json_text.encode(result, "result of a task"),
        }
        if error is not None:
            values["error"] = json_text.encode(error.to_fields(), "error of a task")
        if after is TaskState.DONE:
            values["progress"] = 1.0
        return self._change(lease, before, frozenset({after}), **values)

    def purge(self, keep_days: float = KEEP_DAYS) -> int:
        """Forget tasks that ended longer ago; see :meth:`.TaskStore.purge`."""
        bound = self._database.now() - int(keep_days * _DAY_MS)

        def work(connection: Connection) -> int:
            old = connection.execute(
                sqlalchemy.select(_COLUMNS.id)
                .where(_COLUMNS.finished_at < bound, _COLUMNS.state.in_(sorted(FINISHED)))
                .limit(PURGE_ROWS_MAX)
            )
            ids = [row.id for row in old]
            connection.execute(TASKS.delete().where(_COLUMNS.id.in_(ids)))
            return len(ids)

        total = 0
        while count := self._database.write(work):
            total += count
        return total

    def _change(
        self,
        lease: Lease,
        before: Iterable[TaskState],
        done: frozenset[TaskState] = frozenset(),
        **values: Any,
    ) -> Task:
        """Change a task under a lease.

        :param before: states in which it may be.
        :param done: states in which it has been changed already, by the same lease.
        """
        statement = (
            TASKS.update()
            .where(_is_of(lease), _COLUMNS.state.in_(sorted(before)))
            .values(updated_at=self._database.now(), **values)
        )

        def work(connection: Connection) -> Task:
            changed = connection.execute(statement).rowcount
            task = _get(connection, lease.task_id)
            is_ours = (task.owner, task.epoch) == (lease.owner, lease.epoch)
            if changed or (is_ours and task.state in done):
                return task
            raise exception.FencedError(
                f"task {task.id} is {task.state.value}, and of {task.owner or 'nobody'} in "
                f"epoch {task.epoch}, not of {lease.owner} in epoch {lease.epoch}"
            )

        return self._database.write(work)


def _is_of(lease: Lease) -> Any:
    return sqlalchemy.and_(
        _COLUMNS.id == lease.task_id,
        _COLUMNS.owner == lease.owner,
        _COLUMNS.epoch == lease.epoch,
    )


def _get(connection: Connection, task_id: str, project: str | None = None) -> Task:
    statement = sqlalchemy.select(TASKS).where(_COLUMNS.id == task_id)
    if project is not None:
        statement = statement.where(_COLUMNS.project == project)
    row = connection.execute(statement).first()
    if row is None:
        raise exception.NotFoundError(f"task {task_id} does not exist")
    return _task(row)


def _task(row: Row[Any]) -> Task:
    what = f"task {row.id}"
    error = json_text.decode_object(row.error, what) if row.error else None
    return Task(
        id=row.id,
        project=row.project,
        user=row.user,
        request=row.request,
        kind=TaskKind(row.kind),
        state=TaskState(row.state),
        resource=row.resource,
        parameters=json_text.decode_object(row.parameters, what),
        step=row.step,
        progress=row.progress,
        bytes_done=row.bytes_done,
        bytes_total=row.bytes_total,
        result=json_text.decode_object(row.result, what) if row.result else None,
        error=None if error is None else TaskError(**error),
        is_cancelled=row.is_cancelled,
        created_at=from_ms(row.created_at),
        updated_at=from_ms(row.updated_at),
        finished_at=optional_moment(row.finished_at),
        owner=row.owner,
        epoch=row.epoch,
    )
