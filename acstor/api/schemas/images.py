"""Schemas of images."""

from acstor.api.schemas import parts

IMAGE = parts.record(
    {
        "id": parts.UUID,
        "name": parts.TEXT,
        "state": {"type": "string", "enum": ["ready", "absent"]},
        "coverage": parts.record({"hosts": parts.COUNT, "hosts_whole": parts.COUNT}),
        "size_bytes": parts.nullable(parts.COUNT),
    }
)
SHOWN = parts.wrapped("image", IMAGE)
LISTED = parts.listed("images", IMAGE)
QUERY = parts.changes(
    {
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
        "marker": parts.UUID,
        "name": parts.NAME,
    }
)
"""Query of lists whose order is another service's."""
