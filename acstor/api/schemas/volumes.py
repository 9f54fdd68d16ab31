"""Schemas of volumes."""

from acstor.api.schemas import parts
from acstor.api.schemas.images import QUERY
from acstor.repository.volumes.durability import PERIOD_S_MAX, PERIOD_S_MIN

_DURABILITY = {"type": "string", "enum": ["write-through", "write-back", "none"]}
VOLUME = parts.record(
    {
        "id": parts.UUID,
        "name": parts.TEXT,
        "durability": _DURABILITY,
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
UPDATE = parts.wrapped(
    "volume",
    {
        **parts.changes(
            {
                "durability": _DURABILITY,
                "interval_seconds": {
                    "type": "number",
                    "minimum": PERIOD_S_MIN,
                    "maximum": PERIOD_S_MAX,
                },
            }
        ),
        "minProperties": 1,
    },
)
LISTED = parts.listed("volumes", VOLUME)

__all__ = ["LISTED", "QUERY", "SHOWN", "UPDATE", "VOLUME"]
