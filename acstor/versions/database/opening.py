"""The database that the configuration names."""

import dataclasses
import os
from typing import Any

from oslo_config import cfg

from acstor import exception
from acstor.versions.database import schema
from acstor.versions.database.engine import Database
from acstor.versions.database.project_settings import (
    BootImages,
    DefaultsStore,
    IdempotencyKeys,
    SqlBootImages,
    SqlDefaults,
    SqlKeys,
)
from acstor.versions.database.schedule_store import ScheduleStore
from acstor.versions.database.sql_index import SqlIndex
from acstor.versions.database.sql_schedules import SqlSchedules
from acstor.versions.database.sql_tasks import SqlTasks
from acstor.versions.database.tasks import TaskStore
from acstor.versions.database.version_index import VersionIndex


@dataclasses.dataclass(frozen=True, slots=True)
class Stores:
    """All that is in the database."""

    versions: VersionIndex
    schedules: ScheduleStore
    tasks: TaskStore
    keys: IdempotencyKeys
    defaults: DefaultsStore
    boot_images: BootImages


def stores_of(database: Database) -> Stores:
    """Return the stores of a database whose tables are there."""
    return Stores(
        versions=SqlIndex(database),
        schedules=SqlSchedules(database),
        tasks=SqlTasks(database),
        keys=SqlKeys(database),
        defaults=SqlDefaults(database),
        boot_images=SqlBootImages(database),
    )


def open_database(conf: cfg.ConfigOpts) -> Database:
    """Return the database of ``[database] connection``; nobody has looked at its tables.

    :raises ConfigurationError: when none is named.
    """
    url = conf.database.connection
    if not url:
        raise exception.ConfigurationError(
            "[database] connection is not set",
            hint="name the database of ACStor: mysql+pymysql://USER:PASSWORD@HOST/acstor",
        )
    if url.startswith("sqlite:///") and not os.path.isabs(url.removeprefix("sqlite:///")):
        raise exception.ConfigurationError("the file of [database] connection is no absolute path")
    return Database(url, **pool_of(conf, url))


def pool_of(conf: cfg.ConfigOpts, url: str) -> dict[str, Any]:
    """Return the options of the pool of connections to a database."""
    if url.startswith("sqlite"):
        return {}
    names = ("max_pool_size", "max_overflow", "pool_timeout", "connection_recycle_time")
    return {name: conf.database[name] for name in names}


def open_stores(conf: cfg.ConfigOpts) -> Stores:
    """Return what is in the database of ``[database] connection``.

    :raises ConfigurationError: when none is named.
    :raises UnsupportedError: when its tables are not those of this release.
    :raises UnavailableError: when it cannot be reached.
    """
    database = open_database(conf)
    schema.check(database)
    return stores_of(database)
