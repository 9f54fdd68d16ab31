"""The query for the turns of tasks: what databases make of it."""

import sqlalchemy
from sqlalchemy.dialects import mysql

from acstor.versions.database.engine import Database, database_clock
from acstor.versions.database.tables import METADATA
from acstor.versions.database.task_order import by_turns


def test_mariadb_understands_it() -> None:
    text = str(by_turns(database_clock(), 16).compile(dialect=mysql.dialect()))
    assert "row_number() OVER (PARTITION BY tasks.project, tasks.user IS NULL" in text
    assert "FOR UPDATE" not in text


def test_tasks_that_have_ended_are_not_read() -> None:
    """They are kept for 30 days, and are most of the table."""
    database = Database("sqlite://")
    database.write(METADATA.create_all)
    query = by_turns(sqlalchemy.literal(0, sqlalchemy.BigInteger), 16)

    def plan(connection: sqlalchemy.Connection) -> list[str]:
        text = str(query.compile(connection.engine, compile_kwargs={"literal_binds": True}))
        return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]

    steps = database.read(plan)
    assert [step for step in steps if "tasks_by_state" in step]
    assert not [step for step in steps if step.startswith(("SCAN tasks", "SCAN at_work"))]
    database.close()
