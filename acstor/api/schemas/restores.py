"""Schemas of restores."""

from acstor.api.schemas import parts
from acstor.api.schemas.since import since
from acstor.versions.host_restore.request import DISKS_MAX
from acstor.versions.rebuilding import Loss
from acstor.versions.restore_choice import RestoreMethod

DISKS_SINCE = (1, 1)
"""Microversion that brought restores of several disks, and of UEFI variables."""

_DISKS = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[a-z]{1,16}[0-9]{0,3}$", "maxLength": 19},
    "minItems": 1,
    "maxItems": DISKS_MAX,
    "uniqueItems": True,
    "description": "Names of disks of a server, as versions have them; none: all of the group.",
}
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
        "version_ids": since(DISKS_SINCE, {"type": "array", "items": parts.UUID}),
        "restore_nvram": since(DISKS_SINCE, parts.FLAG),
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
                "disks": since(DISKS_SINCE, _DISKS),
                "restore_nvram": since(DISKS_SINCE, parts.FLAG),
            }
        ),
        "allOf": [
            {"oneOf": [{"required": ["version_id"]}, {"required": ["group_id"]}]},
            {"oneOf": [{"required": ["server_id"]}, {"required": ["volume_id"]}]},
        ],
    },
)
