"""Schemas of volumes."""

from acstor.api.schemas import parts
from acstor.api.schemas.images import QUERY

VOLUME = parts.record(
    {
        "id": parts.UUID,
        "name": parts.TEXT,
        "durability": {"type": "string", "enum": ["write-through", "write-back", "none"]},
        "interval_seconds": {"type": "number", "minimum": 0},
        "recovery_point": parts.nullable(
            parts.record({"at": parts.TIME, "age_seconds": {"type": "number", "minimum": 0}})
        ),
        "dirty_bytes": parts.nullable(parts.COUNT),
        "size_bytes": parts.COUNT,
        "host": parts.nullable(parts.TEXT),
    },
    optional=["host"],
)
SHOWN = parts.wrapped("volume", VOLUME)
LISTED = parts.listed("volumes", VOLUME)

__all__ = ["LISTED", "QUERY", "SHOWN", "VOLUME"]
