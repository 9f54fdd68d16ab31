"""Tables of the database of versions.

``migrations/`` makes them; a test compares the two. What is free text or a list is JSON.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()
"""All tables."""
_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mariadb_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mariadb_charset": "utf8mb4",
    # Names that differ by case differ, as they do in SQLite and in the origin.
    "mysql_collate": "utf8mb4_bin",
    "mariadb_collate": "utf8mb4_bin",
}
UUID_LENGTH = 36
"""Characters of a UUID in its canonical form."""
NAME_LENGTH = 255
"""Characters of names, and of the names of steps and owners."""
WORD_LENGTH = 32
"""Characters of the values of enumerations."""


def _id(name: str, *, primary: bool = False, is_optional: bool = False) -> Column[str]:
    return Column(name, String(UUID_LENGTH), primary_key=primary, nullable=is_optional)


def _name(name: str, *, is_optional: bool = False) -> Column[str]:
    return Column(name, String(NAME_LENGTH), nullable=is_optional)


def _word(name: str) -> Column[str]:
    return Column(name, String(WORD_LENGTH), nullable=False)


def _count(name: str, *, is_optional: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=is_optional)


VERSIONS = Table(
    "versions",
    METADATA,
    _id("id", primary=True),
    _name("project"),
    _name("name"),
    _word("state"),
    _id("server", is_optional=True),
    _id("volume", is_optional=True),
    _name("device"),
    _count("size_bytes"),
    _count("created_at"),
    _count("committed_at", is_optional=True),
    _count("expires_at", is_optional=True),
    _word("trigger_"),
    _word("consistency"),
    _id("group_id", is_optional=True),
    Column("group_size", Integer, nullable=False),
    _id("parent", is_optional=True),
    _id("base_image", is_optional=True),
    _name("schedule", is_optional=True),
    _name("slot", is_optional=True),
    _name("lock_reason", is_optional=True),
    _count("locked_until", is_optional=True),
    _name("host", is_optional=True),
    Column("has_nvram", Boolean, nullable=False),
    Column("has_vtpm", Boolean, nullable=False),
    Column("is_used", Boolean, nullable=False),
    _count("unique_bytes", is_optional=True),
    _count("shared_bytes", is_optional=True),
    Column("labels", Text, nullable=False),
    Column("nonce", String(WORD_LENGTH), nullable=False),
    Index("versions_of_project", "project", "created_at", "id"),
    Index("versions_by_time", "created_at", "id"),
    Index("versions_of_server", "server", "created_at"),
    Index("versions_of_volume", "volume", "created_at"),
    Index("versions_of_group", "group_id"),
    **_MARIADB,
)
"""Index of the versions in the origin."""

SCHEDULES = Table(
    "schedules",
    METADATA,
    _id("id", primary=True),
    _name("project"),
    _name("name"),
    Column("times", Text, nullable=False),
    Column("keep", Text, nullable=False),
    _word("consistency"),
    Column("is_enabled", Boolean, nullable=False),
    _count("enabled_at"),
    _count("created_at"),
    _count("updated_at"),
    Column("revision", Integer, nullable=False),
    UniqueConstraint("project", "name", name="schedules_by_name"),
    Index("schedules_of_project", "project", "created_at", "id"),
    **_MARIADB,
)
"""Schedules."""

TARGETS = Table(
    "schedule_targets",
    METADATA,
    Column(
        "schedule",
        String(UUID_LENGTH),
        ForeignKey("schedules.id", ondelete="CASCADE", name="target_of_schedule"),
        primary_key=True,
    ),
    _id("target", primary=True),
    _word("kind"),
    _count("added_at"),
    _count("last_slot", is_optional=True),
    Index("targets_by_id", "target"),
    **_MARIADB,
)
"""Servers and volumes of schedules."""

RUNS = Table(
    "schedule_runs",
    METADATA,
    _id("schedule", primary=True),
    _id("target", primary=True),
    Column("slot", String(WORD_LENGTH), primary_key=True),
    _count("slot_at"),
    _id("task"),
    _count("created_at"),
    Index("runs_by_time", "created_at"),
    **_MARIADB,
)
"""Runs of schedules: a row each, whoever makes it."""

TASKS = Table(
    "tasks",
    METADATA,
    _id("id", primary=True),
    _name("project"),
    _name("user", is_optional=True),
    _name("request", is_optional=True),
    _word("kind"),
    _word("state"),
    _name("resource"),
    # Resource while the task is at work, else NULL: at most one task of a resource is.
    Column("holds", String(NAME_LENGTH), nullable=True, unique=True),
    Column("parameters", Text, nullable=False),
    _name("step"),
    Column("progress", Float, nullable=False),
    _count("bytes_done"),
    _count("bytes_total", is_optional=True),
    Column("result", Text, nullable=True),
    Column("error", Text, nullable=True),
    Column("is_cancelled", Boolean, nullable=False),
    _count("not_before"),
    _count("created_at"),
    _count("updated_at"),
    _count("finished_at", is_optional=True),
    _name("owner", is_optional=True),
    Column("epoch", Integer, nullable=False),
    _count("lease_until", is_optional=True),
    Index("tasks_of_project", "project", "created_at", "id"),
    Index("tasks_by_time", "created_at", "id"),
    Index("tasks_by_state", "state", "not_before", "created_at"),
    Index("tasks_of_resource", "resource"),
    # Unfinished tasks of a project are counted before each new one: by the index alone.
    Index("tasks_unfinished", "project", "state", "user"),
    Index("tasks_finished", "finished_at"),
    **_MARIADB,
)
"""Tasks."""

KEYS = Table(
    "idempotency_keys",
    METADATA,
    Column("project", String(NAME_LENGTH), primary_key=True),
    Column("key_", String(NAME_LENGTH), primary_key=True),
    Column("digest", String(64), nullable=False),
    _id("resource"),
    _count("created_at"),
    Index("keys_by_time", "created_at"),
    **_MARIADB,
)
"""Idempotency keys, and the id that the first request with each was given."""

DEFAULTS = Table(
    "project_defaults",
    METADATA,
    Column("project", String(NAME_LENGTH), primary_key=True),
    Column("version_on", Text, nullable=False),
    Column("version_keep", Text, nullable=False),
    _count("updated_at"),
    **_MARIADB,
)
"""Defaults of projects."""

BOOT_IMAGES = Table(
    "boot_images",
    METADATA,
    _id("version", primary=True),
    Column("project", String(NAME_LENGTH), primary_key=True),
    Column("image", String(UUID_LENGTH), nullable=False, unique=True),
    _count("created_at"),
    **_MARIADB,
)
"""Images of Glance whose content is a version: one for each version and project."""
