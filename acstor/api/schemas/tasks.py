"""Schemas of tasks."""

from acstor.api.schemas import parts

ERROR = parts.record(
    {"code": parts.TEXT, "title": parts.TEXT, "detail": parts.TEXT, "hint": parts.TEXT}
)
TASK = parts.record(
    {
        "id": parts.UUID,
        "kind": parts.TEXT,
        "state": {
            "type": "string",
            "enum": ["queued", "running", "reverting", "done", "failed", "cancelled"],
        },
        "step": parts.nullable(parts.TEXT),
        "progress": parts.SHARE,
        "bytes_done": parts.COUNT,
        "bytes_total": parts.nullable(parts.COUNT),
        "result": parts.nullable({"type": "object"}),
        "error": parts.nullable(ERROR),
        "created_at": parts.TIME,
        "finished_at": parts.nullable(parts.TIME),
        "project_id": parts.NAME,
        "group_id": parts.UUID,
    },
    optional=["group_id"],
)
SHOWN = parts.wrapped("task", TASK)
LISTED = parts.listed("tasks", TASK)
QUERY = parts.list_query(
    {
        "kind": parts.FILTER,
        "state": parts.FILTER,
        "server_id": parts.UUID,
        "volume_id": parts.UUID,
        "version_id": parts.UUID,
    }
)
