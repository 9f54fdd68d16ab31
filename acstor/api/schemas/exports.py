"""Schemas of exports."""

from acstor.api.schemas import parts

CREATE = parts.wrapped(
    "export",
    parts.changes(
        {
            "version_id": parts.UUID,
            "disk_format": {"type": "string", "enum": ["qcow2", "raw"]},
            "name": {**parts.NAME, "minLength": 1},
        },
        required=["version_id"],
    ),
)
