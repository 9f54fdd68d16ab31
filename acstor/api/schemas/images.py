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
HOSTS_MAX = 200
"""Most hosts that a preload names: a longer body is not read. Of more: all, or several."""
_HOSTS = {
    "oneOf": [
        {"const": "all"},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 255},
            "minItems": 1,
            "maxItems": HOSTS_MAX,
            "uniqueItems": True,
        },
    ]
}
_RATE = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
PRELOAD = parts.record(
    {
        "id": parts.UUID,
        "hosts": _HOSTS,
        "rate_mib": parts.nullable(_RATE),
        "state": parts.TEXT,
        "progress": parts.SHARE,
        "created_at": parts.TIME,
    }
)
PRELOADS_LISTED = parts.listed("preloads", PRELOAD)
PRELOADS_QUERY = parts.list_query({})
CREATE_PRELOAD = parts.wrapped(
    "preload", parts.changes({"hosts": _HOSTS, "rate_mib": parts.nullable(_RATE)})
)
QUERY = parts.changes(
    {
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
        "marker": parts.UUID,
        "name": parts.NAME,
    }
)
"""Query of lists whose order is another service's."""
