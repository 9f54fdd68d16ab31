"""Schemas of hosts, ring, decisions, pins and the live state."""

from acstor.api.schemas import parts

_STATE = {"type": "string", "enum": ["serving", "draining", "gone"]}
_RATE = parts.nullable({"type": "integer", "minimum": 0})
HOST = parts.record(
    {
        "name": parts.NAME,
        "state": _STATE,
        "draining": parts.FLAG,
        "store": parts.nullable(parts.record({"capacity_bytes": parts.COUNT})),
        "topology": parts.TEXT,
        "release": parts.nullable(parts.TEXT),
        "seen_at": parts.nullable(parts.TIME),
    }
)
HOST_SHOWN = parts.wrapped("host", HOST)
HOSTS_LISTED = parts.listed("hosts", HOST)
HOSTS_QUERY = parts.changes({"name": parts.NAME, "state": _STATE})
HOST_CHANGE = parts.wrapped("host", parts.record({"draining": parts.FLAG}))
ORIGIN_MEMBER = parts.record(
    {
        "name": parts.NAME,
        "state": {
            "type": "string",
            "enum": ["joining", "active", "draining", "failed", "removed"],
        },
        "home": parts.FLAG,
        "draining": parts.FLAG,
        "reachable": parts.nullable(parts.FLAG),
        "owed_bytes": parts.nullable(parts.COUNT),
        "sole_bytes": parts.nullable(parts.COUNT),
        "refs_behind": parts.nullable(parts.COUNT),
        "refs_age_seconds": parts.nullable(parts.COUNT),
        "problem": parts.TEXT,
        "seen_at": parts.nullable(parts.TIME),
    }
)
MEMBER_SHOWN = parts.wrapped("origin_member", ORIGIN_MEMBER)
MEMBERS_LISTED = parts.listed("origin_members", ORIGIN_MEMBER)
MEMBER_CHANGE = parts.wrapped("origin_member", parts.record({"draining": parts.FLAG}))
RING = parts.wrapped(
    "ring",
    parts.record(
        {
            "generation": parts.COUNT,
            "term": parts.nullable(parts.COUNT),
            "arcs": {
                "type": "array",
                "items": parts.record({"host": parts.NAME, "share": parts.SHARE}),
            },
        }
    ),
)
DECISION = parts.record(
    {
        "id": parts.TEXT,
        "created_at": parts.TIME,
        "term": parts.COUNT,
        "sequence": parts.COUNT,
        "generation": parts.nullable(parts.COUNT),
        "policy": parts.TEXT,
        "result": {"type": "string", "enum": ["in_force"]},
        "threshold": parts.nullable(parts.COUNT),
        "weights": {"type": "object", "additionalProperties": {"type": "number"}},
        "reasons": {"type": "array", "items": parts.TEXT},
    }
)
DECISIONS_LISTED = parts.listed("decisions", DECISION)
PIN = parts.record({"host": parts.NAME, "weight": {"type": "number", "minimum": 0}})
PIN_SHOWN = parts.wrapped("pin", PIN)
PINS_LISTED = parts.listed("pins", PIN)
PIN_CREATE = parts.wrapped(
    "pin",
    parts.record(
        {
            "host": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_.-]{0,239}$"},
            "weight": {"type": "number", "exclusiveMinimum": 0, "maximum": 100},
        }
    ),
)
LIVE = parts.wrapped(
    "cluster",
    parts.record(
        {
            "cursor": parts.TEXT,
            "ring_generation": parts.nullable(parts.COUNT),
            "hosts": {
                "type": "array",
                "items": parts.record(
                    {
                        "name": parts.NAME,
                        "state": _STATE,
                        "is_up": parts.nullable(parts.FLAG),
                        "topology": parts.TEXT,
                        "capacity_bytes": parts.nullable(parts.COUNT),
                        "ring_share": parts.SHARE,
                        "extra_in_bytes_per_second": _RATE,
                        "extra_out_bytes_per_second": _RATE,
                        "moved_in_bytes_per_second": _RATE,
                        "moved_out_bytes_per_second": _RATE,
                        "link_bytes_per_second": _RATE,
                        "load": parts.nullable(parts.SHARE),
                        "disk": parts.nullable({"type": "object"}),
                        "peers": {"type": "object"},
                        "images_covered": {"type": "object", "additionalProperties": parts.SHARE},
                    }
                ),
            },
        }
    ),
)
LIVE_QUERY = parts.changes({"since": {"type": "string", "maxLength": 64}})
IF_NONE_MATCH = {"properties": {"If-None-Match": parts.TEXT}}
"""Header of a viewer that has a state already."""
