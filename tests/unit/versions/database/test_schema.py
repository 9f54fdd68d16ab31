"""The tables that migrations make are those that the code has."""

import pathlib

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from oslo_config import cfg
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateTable

from acstor import exception
from acstor.conf import database as options
from acstor.versions.database import opening, schema
from acstor.versions.database.engine import Database
from acstor.versions.database.tables import METADATA


@pytest.fixture
def database(tmp_path: pathlib.Path) -> Database:
    return Database(f"sqlite:///{tmp_path}/db.sqlite")


def test_revisions_lead_to_the_tables_of_the_code(database: Database) -> None:
    schema.upgrade(database)

    def differences(connection: sqlalchemy.Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, METADATA))

    assert database.read(differences) == []
    assert schema.table_names(database) == {*METADATA.tables, "alembic_version"}


def test_upgrade_may_be_repeated(database: Database) -> None:
    assert schema.current_revision(database) is None
    for _ in range(2):
        schema.upgrade(database)
        assert schema.current_revision(database) == schema.head_revision(database)
    schema.check(database)


def test_each_revision_is_reached_from_the_one_before(database: Database) -> None:
    for revision in ("0001", "0002"):
        schema.upgrade(database, revision)
        assert schema.current_revision(database) == revision
    assert schema.head_revision(database) == "0002"


def test_missing_tables_are_refused(database: Database) -> None:
    with pytest.raises(exception.UnsupportedError, match="no tables"):
        schema.check(database)


def test_newer_tables_are_refused(database: Database) -> None:
    schema.upgrade(database)
    statement = sqlalchemy.text("UPDATE alembic_version SET version_num = '9999'")
    database.write(lambda one: one.execute(statement))
    with pytest.raises(exception.UnsupportedError, match="newer release"):
        schema.check(database)


@pytest.mark.parametrize("name", sorted(METADATA.tables))
def test_tables_are_made_for_galera(name: str) -> None:
    """InnoDB, a primary key, and names that differ by case differ."""
    table = METADATA.tables[name]
    text = str(CreateTable(table).compile(dialect=mysql.dialect()))
    assert "ENGINE=InnoDB" in text
    assert "utf8mb4_bin" in text
    assert list(table.primary_key)


def configured(**values: object) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for name, value in values.items():
        conf.set_override(name, value, group="database")
    return conf


def test_database_is_opened_as_configured(tmp_path: pathlib.Path) -> None:
    conf = configured(connection=f"sqlite:///{tmp_path}/db.sqlite")
    with pytest.raises(exception.UnsupportedError, match="no tables"):
        opening.open_stores(conf)
    schema.upgrade(opening.open_database(conf))
    assert opening.open_stores(conf).versions.nonces(None, 10) == []


def test_database_has_to_be_named() -> None:
    with pytest.raises(exception.ConfigurationError, match="connection is not set"):
        opening.open_database(configured())
    with pytest.raises(exception.ConfigurationError, match="no absolute path"):
        opening.open_database(configured(connection="sqlite:///here.sqlite"))
