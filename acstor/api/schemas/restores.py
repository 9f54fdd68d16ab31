"""Schemas of restores."""

from acstor.api.schemas import parts
from acstor.versions.rebuilding import Loss
from acstor.versions.restore_choice import RestoreMethod

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
_LOSSES = {
    "type": "array",
    "items": {"type": "string", "enum": sorted(each.value for each in Loss)},
}
_PREVIEW_METHOD = parts.record(
    {
        "method": {"type": "string", "enum": sorted(each.value for each in RestoreMethod)},
        "is_possible": parts.FLAG,
        "reason": parts.nullable(parts.TEXT),
        "bytes": parts.nullable(parts.COUNT),
        "bytes_at_most": parts.nullable(parts.COUNT),
        "bytes_of": parts.TEXT,
        "losses": _LOSSES,
    }
)
PREVIEW = parts.wrapped(
    "restore_preview",
    parts.record(
        {
            "version_id": parts.UUID,
            "server_id": parts.UUID,
            "method": parts.nullable(_METHOD),
            "reason": parts.TEXT,
            "hint": parts.nullable(parts.TEXT),
            "losses": _LOSSES,
            "methods": {"type": "array", "items": _PREVIEW_METHOD},
            "compared_with": parts.nullable(parts.UUID),
        }
    ),
)
PREVIEW_QUERY = parts.changes({"server_id": parts.UUID}, required=["server_id"])
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
