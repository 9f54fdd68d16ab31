"""Transactions, their attempts, and what errors become."""

import datetime
import pathlib

import pytest
import sqlalchemy
from oslo_db import exception as db_exception

from acstor import exception
from acstor.versions.database import engine, schema
from acstor.versions.database.engine import ATTEMPTS_MAX, Database
from acstor.versions.database.tables import DEFAULTS
from testbed.doubles.faulty_database import FaultyDatabase

DEADLOCK = db_exception.DBDeadlock()
LOST = db_exception.DBConnectionError()


@pytest.fixture
def database(tmp_path: pathlib.Path) -> FaultyDatabase:
    return FaultyDatabase(f"sqlite:///{tmp_path}/db.sqlite")


def answer(database: Database) -> int:
    return int(
        database.write(
            lambda one: one.execute(sqlalchemy.select(sqlalchemy.literal(42))).scalar_one()
        )
    )


@pytest.mark.parametrize("error", [DEADLOCK, LOST])
def test_attempts_are_repeated(database: FaultyDatabase, error: Exception) -> None:
    database.errors = [error] * (ATTEMPTS_MAX - 1)
    assert answer(database) == 42


@pytest.mark.parametrize(
    ("error", "expected"),
    [(DEADLOCK, exception.OverloadedError), (LOST, exception.UnavailableError)],
)
def test_attempts_end(
    database: FaultyDatabase, error: Exception, expected: type[exception.AcstorError]
) -> None:
    database.errors = [error] * ATTEMPTS_MAX
    with pytest.raises(expected):
        answer(database)
    assert database.errors == []


def test_missing_tables_are_told_with_the_remedy(database: FaultyDatabase) -> None:
    with pytest.raises(exception.UnsupportedError, match="project_defaults") as caught:
        database.read(lambda one: one.execute(sqlalchemy.select(DEFAULTS)).all())
    assert caught.value.hint == "run 'acstor database upgrade'"


def test_other_errors_quote_no_values(database: FaultyDatabase) -> None:
    with pytest.raises(exception.InternalError, match="refused a statement") as caught:
        database.write(lambda one: one.execute(sqlalchemy.text("SELECT hunter2 FROM")))
    assert "hunter2" not in str(caught.value)


def test_transaction_that_fails_has_no_effect(database: FaultyDatabase) -> None:
    schema.upgrade(database)

    def work(connection: sqlalchemy.Connection) -> None:
        connection.execute(
            DEFAULTS.insert().values(project="p", version_on="[]", version_keep="{}", updated_at=1)
        )
        raise KeyError("p")

    with pytest.raises(KeyError):
        database.write(work)
    assert database.read(lambda one: one.execute(sqlalchemy.select(DEFAULTS)).all()) == []


def test_clock_of_the_database_is_that_of_the_day(database: FaultyDatabase) -> None:
    now = database.read(lambda one: one.execute(sqlalchemy.select(database.now())).scalar_one())
    away = engine.from_ms(now) - datetime.datetime.now(datetime.UTC)
    assert abs(away) < datetime.timedelta(days=1)


def test_clock_is_written_for_mariadb_too() -> None:
    from sqlalchemy.dialects import mysql

    text = str(sqlalchemy.select(engine.database_clock()).compile(dialect=mysql.dialect()))
    assert "UTC_TIMESTAMP(6)" in text


def test_moments_are_stored_to_the_millisecond() -> None:
    moment = datetime.datetime(2026, 10, 25, 0, 30, 0, 123456, tzinfo=datetime.UTC)
    assert engine.from_ms(engine.to_ms(moment)) == moment.replace(microsecond=123000)


def test_connections_to_mariadb_have_deadlines() -> None:
    parameters = engine.connection_parameters("mysql+pymysql://u:p@h/acstor")
    assert {"connect_timeout", "read_timeout", "write_timeout"} <= {
        one.partition("=")[0] for one in parameters.split("&")
    }
    assert engine.connection_parameters("sqlite://") == ""
