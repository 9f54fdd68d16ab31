"""Rows in which flows remember how far they are: taskflow's, in a database of their own.

Taskflow knows no fence: a worker that was stalled would write on beside the one that took its task.
So each epoch of a task has rows of its own, begun as a copy of those of the epoch before, and
nobody reads what is written into older ones. They go when the task has ended.

The tables are taskflow's, made by its own revisions under alembic's default table of versions,
which is why they need a database of their own.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Self

from oslo_db.sqlalchemy import engines
from taskflow import exceptions
from taskflow.persistence import models
from taskflow.persistence.backends.impl_sqlalchemy import SQLAlchemyBackend
from taskflow.persistence.base import Backend

from acstor import exception
from acstor.versions.database.engine import connection_parameters
from acstor.versions.flows.work import Interrupted


class FlowBooks:
    """The rows of all flows.

    :param backend: taskflow's, which has them.
    :param on_close: called at the end.
    """

    def __init__(self, backend: Backend, on_close: Callable[[], object] = lambda: None) -> None:
        """Connect to nothing yet."""
        self._backend = backend
        self._on_close = on_close
        self._kept: Any = None

    @classmethod
    def of_database(cls, url: str, **pool: Any) -> Self:
        """Return those in a database.

        :param url: as SQLAlchemy has it.
        """
        engine = database_engine(url, **pool)
        return cls(SQLAlchemyBackend({}, engine=engine), engine.dispose)

    def upgrade(self) -> None:
        """Make or upgrade the tables.

        :raises UnavailableError: when the database cannot be reached.
        """
        with self._reachable() as connection:
            connection.upgrade()

    def close(self) -> None:
        """Close the connections that are idle."""
        self._backend.close()
        self._on_close()

    def get_connection(self) -> "UnfailingConnection":
        """Return a connection for an engine of taskflow."""
        try:
            return UnfailingConnection(self._connection())
        except Exception as error:
            raise Interrupted from error

    def open(self, task_id: str, epoch: int, name: str) -> models.FlowDetail:
        """Return the rows of an epoch, those of the epoch before in them.

        :param name: of the flow, for people.
        :raises UnavailableError: when the database cannot be reached.
        """
        with self._reachable() as connection:
            book = self._find(connection, task_id, epoch)
            if book is None:
                book = models.LogBook(name, uuid=_book_id(task_id, epoch))
                book.meta = {"task": task_id}
                before = self._newest_before(connection, task_id, epoch)
                book.add(_new_flow(name) if before is None else _copy(before))
                book = connection.save_logbook(book)
            (flow,) = book
            return flow

    def forget(self, task_id: str, epoch: int) -> None:
        """Remove the rows of a task that has ended, of all epochs up to one.

        :raises UnavailableError: when the database cannot be reached.
        """
        with self._reachable() as connection:
            for number in range(epoch, 0, -1):
                with contextlib.suppress(exceptions.NotFound):
                    connection.destroy_logbook(_book_id(task_id, number))

    def sweep(self, is_ended: Callable[[str], bool]) -> int:
        """Remove what workers that died have left of tasks that have ended; return how many.

        :param is_ended: asked about each task that has rows.
        :raises UnavailableError: when the database cannot be reached.
        """
        count = 0
        with self._reachable() as connection:
            for book in list(connection.get_logbooks(lazy=True)):
                task_id = (book.meta or {}).get("task")
                if task_id is None or is_ended(str(task_id)):
                    with contextlib.suppress(exceptions.NotFound):
                        connection.destroy_logbook(book.uuid)
                        count += 1
        return count

    def _newest_before(self, connection: Any, task_id: str, epoch: int) -> Any:
        """Return the flow of the newest epoch before one; a worker may have died before its own."""
        for number in range(epoch - 1, 0, -1):
            book = self._find(connection, task_id, number)
            if book is not None:
                (flow,) = book
                return flow
        return None

    @staticmethod
    def _find(connection: Any, task_id: str, epoch: int) -> Any:
        try:
            return connection.get_logbook(_book_id(task_id, epoch))
        except exceptions.NotFound:
            return None

    def _connection(self) -> Any:
        """Return the one connection of taskflow's, which it takes for each read and write of a row.

        It holds no connection to the database, but tables, which it would describe anew each time;
        and SQLAlchemy would compile every statement on them again. Any thread may use it.
        """
        if self._kept is None:
            self._kept = self._backend.get_connection()
        return self._kept

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[Any]:
        """Yield the connection; what fails in the body is that the database cannot be reached."""
        try:
            yield self._connection()
        except (exceptions.TaskFlowException, OSError) as error:
            raise _away(error) from error
        except Exception as error:
            # Drivers of databases raise what their client libraries raise.
            if "sqlalchemy" not in type(error).__module__ and "db" not in type(error).__module__:
                raise
            raise _away(error) from error


def database_engine(url: str, **pool: Any) -> Any:
    """Return the engine of SQLAlchemy for rows of flows.

    :param url: as SQLAlchemy has it.
    :param pool: parameters of its pool.
    """
    return engines.create_engine(
        url,
        sqlite_fk=True,
        max_retries=0,
        connection_parameters=connection_parameters(url),
        thread_checkin=False,  # a turn for green threads, of which there are none
        **pool,
    )


class UnfailingConnection:
    """Connection whose failures are interruptions.

    An engine of taskflow that cannot write a row would mark the flow as failed, with nothing
    undone. This way it ends as if the worker had been killed, and the next one goes on.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def close(self) -> None:
        """Leave it open: others use it."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return found(*arguments, **named)
            except Exception as error:
                raise Interrupted from error

        return call


def _new_flow(name: str) -> models.FlowDetail:
    return models.FlowDetail(name, uuid=str(uuid.uuid4()))


def _copy(flow: models.FlowDetail) -> models.FlowDetail:
    """Return a copy of a flow under ids of its own."""
    copied = models.FlowDetail(flow.name, uuid=str(uuid.uuid4()))
    copied.meta, copied.state = dict(flow.meta or {}), flow.state
    for atom in flow:
        fields = {**atom.to_dict(), "uuid": str(uuid.uuid4())}
        copied.add(type(atom).from_dict(fields))
    return copied


def _book_id(task_id: str, epoch: int) -> str:
    return str(uuid.uuid5(uuid.UUID(task_id), f"flow {epoch}"))


def _away(error: Exception) -> exception.UnavailableError:
    return exception.UnavailableError(
        f"the database of flows cannot be reached: {type(error).__name__}",
        hint="check that the database of [worker] flow_connection is up and has its tables: "
        "'acstor database upgrade'",
    )
