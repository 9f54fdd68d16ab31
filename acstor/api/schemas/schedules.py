"""Schemas of schedules."""

from collections.abc import Mapping

from acstor.api.schemas import parts

_FIELDS: Mapping[str, parts.Schema] = {
    "name": {"type": "string", "minLength": 1, "maxLength": 255},
    "every": {"type": "string", "enum": ["hour", "day", "week", "month"]},
    "at": {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
    "on": parts.nullable({"type": "integer", "minimum": 1, "maximum": 31}),
    "timezone": {"type": "string", "maxLength": 64},
    "window_minutes": {"type": "integer", "minimum": 0, "maximum": 1440},
    "keep": parts.KEEP,
    "enabled": parts.FLAG,
    "consistency": {"type": "string", "enum": ["best", "crash", "fs"]},
}
TARGET = parts.record({"id": parts.UUID, "type": {"type": "string", "enum": ["server", "volume"]}})
SCHEDULE = parts.record(
    {
        "id": parts.UUID,
        **_FIELDS,
        "targets": {"type": "array", "items": TARGET},
        "next_run_at": parts.nullable(parts.TIME),
        "created_at": parts.TIME,
        "project_id": parts.NAME,
    }
)
SHOWN = parts.wrapped("schedule", SCHEDULE)
LISTED = parts.listed("schedules", SCHEDULE)
QUERY = parts.list_query({"name": parts.NAME, "enabled": parts.FLAG, "target_id": parts.UUID})
CREATE = parts.wrapped("schedule", parts.changes(_FIELDS, required=["name", "every"]))
CHANGE = parts.wrapped("schedule", parts.changes(_FIELDS))
ADD_TARGET = parts.wrapped(
    "target", parts.record({"type": {"type": "string", "enum": ["server", "volume"]}})
)
PREVIEW = parts.wrapped(
    "preview",
    parts.record(
        {
            "runs": {
                "type": "array",
                "items": parts.record({"target_id": parts.UUID, "starts_at": parts.TIME}),
            },
            "versions": {
                "type": "array",
                "items": parts.record(
                    {
                        "id": parts.UUID,
                        "target_id": parts.UUID,
                        "created_at": parts.TIME,
                        "kept": parts.FLAG,
                        "reasons": {"type": "array", "items": parts.TEXT},
                        "removed_after": parts.nullable(parts.TIME),
                    }
                ),
            },
        }
    ),
)
