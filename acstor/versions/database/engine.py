"""The database: transactions, its clock, and its errors as ours.

MariaDB in production, SQLite in tests. Nothing asks for locks (``SELECT FOR UPDATE``), which a
Galera cluster does not have across its nodes: every decision is one conditional ``UPDATE`` or one
``INSERT`` against a unique index. Times are whole milliseconds since the epoch, and those that are
compared with the present are compared with the database's own clock, of which there is one.
"""

import datetime
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy
import sqlalchemy.exc
import tenacity
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import enginefacade
from sqlalchemy.engine import Connection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from acstor import exception

ATTEMPTS_MAX = 5
"""Attempts at one transaction: deadlocks, and certifications that fail in a Galera cluster, pass by
themselves."""
DEADLINE_SECONDS = 30.0
"""Seconds after which no other attempt begins."""
STATEMENT_SECONDS = 20
"""Seconds that the server may let one statement wait, MariaDB only."""
CONNECT_SECONDS = 5
"""Seconds that connecting may take, MariaDB only."""
_HINT = "check that the database of [database] connection is up and reachable"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)

Result = TypeVar("Result")
Work = Callable[[Connection], Result]
"""Statements of one transaction; repeated as a whole where it fails."""
Clock = Callable[[], sqlalchemy.ColumnElement[int]]
"""Returns the expression for the present, milliseconds since the epoch."""


class _NowMs(FunctionElement[int]):
    """Present of the database's clock, milliseconds since the epoch."""

    type = sqlalchemy.BigInteger()
    inherit_cache = True
    name = "now_ms"


@compiles(_NowMs, "sqlite")
def _now_of_sqlite(element: object, compiler: object, **options: object) -> str:
    del element, compiler, options
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@compiles(_NowMs, "mysql", "mariadb")
def _now_of_mariadb(element: object, compiler: object, **options: object) -> str:
    del element, compiler, options
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000)"


def database_clock() -> sqlalchemy.ColumnElement[int]:
    """Return the expression for the present of the database's clock."""
    return _NowMs()


def to_ms(moment: datetime.datetime) -> int:
    """Return a moment as it is stored."""
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(value: int) -> datetime.datetime:
    """Return a moment that is stored, in UTC."""
    return _EPOCH + value * _MILLISECOND


def optional_ms(moment: datetime.datetime | None) -> int | None:
    """Return a moment as it is stored, if there is one."""
    return None if moment is None else to_ms(moment)


def optional_moment(value: int | None) -> datetime.datetime | None:
    """Return a moment that is stored, if there is one."""
    return None if value is None else from_ms(value)


class DuplicateError(exception.ConflictError):
    """A row with that key exists already."""


@enginefacade.transaction_context_provider
class _Transaction:
    """Context of one transaction."""


class Database:
    """A database, from any thread. It is connected to at the first transaction.

    :param url: as SQLAlchemy has it.
    :param clock: the present; a test may put its own.
    :param wait: how to wait between attempts; a test may put its own.
    :param pool: oslo.db's options of the pool: ``max_pool_size``, ``max_overflow``,
        ``pool_timeout``, ``connection_recycle_time``.
    :raises ConfigurationError: when the URL is none.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock = database_clock,
        wait: Callable[[float], None] = time.sleep,
        **pool: Any,
    ) -> None:
        """Connect to nothing yet."""
        self._facade = enginefacade.transaction_context()
        parameters = connection_parameters(url)
        self._facade.configure(
            connection=url,
            max_retries=0,  # attempts are made by transaction, with a deadline
            sqlite_fk=True,
            connection_parameters=parameters,
            thread_checkin=False,  # a turn for green threads, of which there are none
            **pool,
        )
        self._wait = wait
        self.url = url
        self.now = clock

    def read(self, work: Work[Result]) -> Result:
        """Return the result of a transaction that changes nothing.

        :raises UnavailableError: when the database cannot be reached.
        """
        return self._repeat(lambda: self._once(self._facade.reader, work))

    def write(self, work: Work[Result]) -> Result:
        """Return the result of a transaction, which has its effect as a whole or none.

        :param work: may be repeated, and may have had its effect before, where the connection was
            lost: it finds that out.
        :raises DuplicateError: when a row with one of its keys exists.
        :raises UnavailableError: when the database cannot be reached: it may have had its effect.
        """
        return self._repeat(lambda: self._once(self._facade.writer, work))

    def close(self) -> None:
        """Close the connections that are idle."""
        self._facade.dispose_pool()

    def _once(self, mode: Any, work: Work[Result]) -> Result:
        with mode.connection.using(_Transaction()) as connection:
            return work(connection)

    def _repeat(self, once: Callable[[], Result]) -> Result:
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS_MAX)
            | tenacity.stop_after_delay(DEADLINE_SECONDS),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=2.0),
            retry=tenacity.retry_if_exception_type(
                (db_exception.DBDeadlock, db_exception.DBConnectionError)
            ),
            sleep=self._wait,
            reraise=True,
        )
        try:
            return retrying(once)
        except db_exception.DBDuplicateEntry as error:
            columns = ", ".join(error.columns or ["its key"])
            raise DuplicateError(f"the database has a row with the same {columns}") from error
        except db_exception.DBDeadlock as error:
            raise exception.OverloadedError("the database is busy with the same rows") from error
        except db_exception.DBConnectionError as error:
            raise exception.UnavailableError(
                "the database cannot be reached", hint=_HINT
            ) from error
        except db_exception.DBNonExistentTable as error:
            raise exception.UnsupportedError(
                f"the database has no table {error.table}",
                hint="run 'acstor database upgrade'",
            ) from error
        except sqlalchemy.exc.TimeoutError as error:
            raise exception.OverloadedError(
                "all connections to the database are in use",
                hint="raise [database] max_pool_size or max_overflow",
            ) from error
        except (db_exception.DBError, sqlalchemy.exc.SQLAlchemyError) as error:
            # Its text may have values of rows.
            raise exception.InternalError(
                f"the database refused a statement: {type(error).__name__}"
            ) from error


def connection_parameters(url: str) -> str:
    """Return what is added to a URL so that nothing waits for a silent server without end."""
    if not url.startswith(("mysql", "mariadb")):
        return ""
    return urllib.parse.urlencode(
        {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": STATEMENT_SECONDS,
            "write_timeout": STATEMENT_SECONDS,
        }
    )
