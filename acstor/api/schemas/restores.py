"""Schemas of restores."""

from acstor.api.schemas import parts

_METHOD = {"type": "string", "enum": ["auto", "rebuild", "in_place"]}
RESTORE = parts.record(
    {
        "id": parts.UUID,
        "version_id": parts.nullable(parts.UUID),
        "group_id": parts.nullable(parts.UUID),
        "server_id": parts.nullable(parts.UUID),
        "volume_id": parts.nullable(parts.UUID),
        "method": parts.TEXT,
        "reason": parts.nullable(parts.TEXT),
        "keep_current": parts.FLAG,
        "bytes_moved": parts.nullable(parts.COUNT),
        "state": parts.TEXT,
        "task_id": parts.UUID,
        "created_at": parts.TIME,
    }
)
SHOWN = parts.wrapped("restore", RESTORE)
LISTED = parts.listed("restores", RESTORE)
QUERY = parts.list_query({"server_id": parts.UUID, "volume_id": parts.UUID, "state": parts.FILTER})
CREATE = parts.wrapped(
    "restore",
    {
        **parts.changes(
            {
                "version_id": parts.UUID,
                "group_id": parts.UUID,
                "server_id": parts.UUID,
                "volume_id": parts.UUID,
                "method": _METHOD,
                "keep_current": parts.FLAG,
            }
        ),
        "allOf": [
            {"oneOf": [{"required": ["version_id"]}, {"required": ["group_id"]}]},
            {"oneOf": [{"required": ["server_id"]}, {"required": ["volume_id"]}]},
        ],
    },
)
