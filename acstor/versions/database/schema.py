"""Making and upgrading the tables, by alembic."""

import importlib.resources
import pathlib

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from acstor import exception
from acstor.versions.database.engine import Database


def _config(connection: Connection) -> Config:
    migrations = pathlib.Path(str(importlib.resources.files(__package__) / "migrations"))
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade(database: Database, revision: str = "head") -> None:
    """Make the tables, or bring them up to a revision; repeating it is safe.

    One program does this at a time: no other runs yet, at the first time, or all go on with the
    tables as they were, since a revision only adds.
    """
    database.write(lambda one: command.upgrade(_config(one), revision))


def current_revision(database: Database) -> str | None:
    """Return the revision of the tables, None where there are none."""
    return database.read(lambda one: MigrationContext.configure(one).get_current_revision())


def head_revision(database: Database) -> str:
    """Return the revision that this release has been written for."""
    return database.read(
        lambda one: str(ScriptDirectory.from_config(_config(one)).get_current_head())
    )


def check(database: Database) -> None:
    """Refuse tables that this release does not know.

    :raises UnsupportedError: when there are none, or they are older or newer.
    """
    current, head = current_revision(database), head_revision(database)
    if current == head:
        return
    if current is None:
        raise exception.UnsupportedError(
            "the database has no tables", hint="run 'acstor database upgrade'"
        )
    known = database.read(
        lambda one: {
            script.revision for script in ScriptDirectory.from_config(_config(one)).walk_revisions()
        }
    )
    if current in known:
        raise exception.UnsupportedError(
            f"the tables of the database are of revision {current}, not {head}",
            hint="run 'acstor database upgrade'",
        )
    raise exception.UnsupportedError(
        f"the tables of the database are of revision {current}, which a newer release made"
    )


def table_names(database: Database) -> frozenset[str]:
    """Return the names of the tables that are there."""
    return frozenset(database.read(lambda one: sqlalchemy.inspect(one).get_table_names()))
