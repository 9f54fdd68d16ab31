"""Schemas of versions."""

from acstor.api.schemas import parts

LOCK = parts.record({"reason": parts.NAME, "until": parts.nullable(parts.TIME)})
VERSION = parts.record(
    {
        "id": parts.UUID,
        "name": parts.TEXT,
        "group_id": parts.nullable(parts.UUID),
        "server_id": parts.nullable(parts.UUID),
        "volume_id": parts.nullable(parts.UUID),
        "disk": parts.TEXT,
        "state": {"type": "string", "enum": ["captured", "committed", "merged", "condemned"]},
        "restorable": parts.FLAG,
        "consistency": {"type": "string", "enum": ["crash", "fs"]},
        "trigger": parts.TEXT,
        "parent_id": parts.nullable(parts.UUID),
        "base_image_id": parts.nullable(parts.UUID),
        "size_bytes": parts.COUNT,
        "unique_bytes": parts.nullable(parts.COUNT),
        "shared_bytes": parts.nullable(parts.COUNT),
        "created_at": parts.TIME,
        "expires_at": parts.nullable(parts.TIME),
        "lock": parts.nullable(LOCK),
        "has_nvram": parts.FLAG,
        "project_id": parts.NAME,
        "metadata": {"type": "object", "additionalProperties": parts.TEXT},
        "host": parts.nullable(parts.TEXT),
    },
    optional=["host"],
)
SHOWN = parts.wrapped("version", VERSION)
LISTED = parts.listed("versions", VERSION)
FILTERS = (
    "name",
    "server_id",
    "volume_id",
    "disk",
    "group_id",
    "state",
    "trigger",
    "consistency",
    "locked",
    "created_at",
    "expires_at",
)
"""Fields that a list may be filtered by."""
_LOCKED = {
    **parts.FILTER,
    "items": {"type": "string", "pattern": "^((eq|neq):)?(true|false)$", "maxLength": 9},
}
QUERY = parts.list_query(
    {**dict.fromkeys(FILTERS, parts.FILTER), "locked": _LOCKED},
    sort_keys=["created_at", "name", "size_bytes"],
)
CREATE_IMAGE = parts.changes({})
DATA_QUERY = parts.changes({"format": {"type": "string", "enum": ["qcow2", "raw"]}})
DATA_HEADERS = parts.changes({"Range": parts.TEXT, "If-Range": parts.TEXT})
CREATE = parts.wrapped(
    "version",
    {
        **parts.changes(
            {
                "server_id": parts.UUID,
                "volume_id": parts.UUID,
                "name": parts.NAME,
                "consistency": {"type": "string", "enum": ["best", "crash", "fs"]},
                "expires_at": parts.nullable(parts.TIME),
                "metadata": parts.LABELS,
            }
        ),
        "oneOf": [{"required": ["server_id"]}, {"required": ["volume_id"]}],
    },
)
CHANGE = parts.wrapped(
    "version",
    parts.changes(
        {
            "name": parts.NAME,
            "expires_at": parts.nullable(parts.TIME),
            "metadata": parts.LABELS,
        }
    ),
)
SET_LOCK = parts.wrapped(
    "lock", parts.changes({"reason": parts.NAME, "until": parts.nullable(parts.TIME)})
)
DIFF_QUERY = parts.changes(
    {
        "against": parts.UUID,
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
        "marker": {"type": "integer", "minimum": 0},
    },
    required=["against"],
)
DIFF = parts.record(
    {
        "diff": parts.record(
            {
                "changed_bytes": parts.COUNT,
                "extents": {
                    "type": "array",
                    "items": {
                        "type": "array",
                        "items": parts.COUNT,
                        "minItems": 2,
                        "maxItems": 2,
                    },
                },
            }
        ),
        "links": parts.LINKS,
    }
)
"""Offset and length, bytes, of each extent."""
