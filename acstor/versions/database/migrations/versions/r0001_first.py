"""First tables."""

from typing import Any

import sqlalchemy
from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, String, Text

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mariadb_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mariadb_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_collate": "utf8mb4_bin",
}


def _id(name: str, *, primary: bool = False, is_optional: bool = False) -> Column[Any]:
    return Column(name, String(36), primary_key=primary, nullable=is_optional)


def _name(name: str, *, primary: bool = False, is_optional: bool = False) -> Column[Any]:
    return Column(name, String(255), primary_key=primary, nullable=is_optional)


def _word(name: str, *, primary: bool = False) -> Column[Any]:
    return Column(name, String(32), primary_key=primary, nullable=False)


def _count(name: str, *, is_optional: bool = False) -> Column[Any]:
    return Column(name, BigInteger, nullable=is_optional)


def upgrade() -> None:
    """Make the tables."""
    _make_versions()
    _make_schedules()
    _make_tasks()
    _make_settings()


def _make_versions() -> None:
    op.create_table(
        "versions",
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
        Column("nonce", String(32), nullable=False),
        **_MARIADB,
    )
    op.create_index("versions_of_project", "versions", ["project", "created_at", "id"])
    op.create_index("versions_by_time", "versions", ["created_at", "id"])
    op.create_index("versions_of_server", "versions", ["server", "created_at"])
    op.create_index("versions_of_volume", "versions", ["volume", "created_at"])
    op.create_index("versions_of_group", "versions", ["group_id"])


def _make_schedules() -> None:
    op.create_table(
        "schedules",
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
        sqlalchemy.UniqueConstraint("project", "name", name="schedules_by_name"),
        **_MARIADB,
    )
    op.create_index("schedules_of_project", "schedules", ["project", "created_at", "id"])
    op.create_table(
        "schedule_targets",
        Column(
            "schedule",
            String(36),
            sqlalchemy.ForeignKey("schedules.id", ondelete="CASCADE", name="target_of_schedule"),
            primary_key=True,
        ),
        _id("target", primary=True),
        _word("kind"),
        _count("added_at"),
        _count("last_slot", is_optional=True),
        **_MARIADB,
    )
    op.create_index("targets_by_id", "schedule_targets", ["target"])
    op.create_table(
        "schedule_runs",
        _id("schedule", primary=True),
        _id("target", primary=True),
        Column("slot", String(32), primary_key=True),
        _count("slot_at"),
        _id("task"),
        _count("created_at"),
        **_MARIADB,
    )
    op.create_index("runs_by_time", "schedule_runs", ["created_at"])


def _make_tasks() -> None:
    op.create_table(
        "tasks",
        _id("id", primary=True),
        _name("project"),
        _name("user", is_optional=True),
        _name("request", is_optional=True),
        _word("kind"),
        _word("state"),
        _name("resource"),
        Column("holds", String(255), nullable=True, unique=True),
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
        **_MARIADB,
    )
    op.create_index("tasks_of_project", "tasks", ["project", "created_at", "id"])
    op.create_index("tasks_by_time", "tasks", ["created_at", "id"])
    op.create_index("tasks_by_state", "tasks", ["state", "not_before", "created_at"])
    op.create_index("tasks_of_resource", "tasks", ["resource"])
    op.create_index("tasks_finished", "tasks", ["finished_at"])


def _make_settings() -> None:
    op.create_table(
        "idempotency_keys",
        Column("project", String(255), primary_key=True),
        Column("key_", String(255), primary_key=True),
        Column("digest", String(64), nullable=False),
        _id("resource"),
        _count("created_at"),
        **_MARIADB,
    )
    op.create_index("keys_by_time", "idempotency_keys", ["created_at"])
    op.create_table(
        "project_defaults",
        Column("project", String(255), primary_key=True),
        Column("version_on", Text, nullable=False),
        Column("version_keep", Text, nullable=False),
        _count("updated_at"),
        **_MARIADB,
    )
    op.create_table(
        "boot_images",
        _id("version", primary=True),
        Column("project", String(255), primary_key=True),
        Column("image", String(36), nullable=False, unique=True),
        _count("created_at"),
        **_MARIADB,
    )
