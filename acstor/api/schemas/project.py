"""Schemas of a project's defaults, usage and limits."""

from acstor.api.schemas import parts

DEFAULTS = parts.wrapped(
    "defaults",
    parts.record(
        {
            "version_on": {
                "type": "array",
                "uniqueItems": True,
                "maxItems": 8,
                "items": {"type": "string", "enum": ["shutdown", "resize", "rebuild", "quota"]},
            },
            "version_keep": parts.KEEP,
            "on_delete": parts.FLAG,
        }
    ),
)
LIMIT = {"type": "integer", "minimum": -1}
USAGE_QUERY = parts.changes({"project_id": parts.NAME})
USAGE = parts.record(
    {
        "usage": parts.record(
            {
                "versions": parts.COUNT,
                "unique_bytes": parts.COUNT,
                "shared_bytes": parts.COUNT,
                "schedules": parts.COUNT,
                "export_bytes": parts.COUNT,
            }
        ),
        "limits": parts.record(
            {"versions": LIMIT, "version_mib": LIMIT, "schedules": LIMIT, "export_mib": LIMIT}
        ),
    }
)
