"""Parts that schemas of several resources have."""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

UUID: Schema = {"type": "string", "format": "uuid"}
TIME: Schema = {"type": "string", "format": "date-time", "maxLength": 40}
NAME: Schema = {"type": "string", "maxLength": 255}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
FILTER: Schema = {
    "type": "array",
    "items": {"type": "string", "maxLength": 4096},
    "maxItems": 10,
    "description": "A value, or a comparison: in:, nin:, neq:, gt:, gte:, lt:, lte: before it.",
}
"""Values of a field that a list is filtered by; all must hold."""
LABELS: Schema = {
    "type": "object",
    "maxProperties": 64,
    "propertyNames": {"minLength": 1, "maxLength": 255},
    "additionalProperties": {"type": "string", "maxLength": 255},
}
LINKS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["rel", "href"],
        "properties": {"rel": TEXT, "href": TEXT},
        "additionalProperties": False,
    },
}
KEEP: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **{
            name: {"type": "integer", "minimum": -1, "maximum": 100_000}
            for name in ("last", "hourly", "daily", "weekly", "monthly", "yearly")
        },
        **{
            name: {"type": "string", "pattern": "^([0-9]{1,6}[ymdh])+$", "maxLength": 40}
            for name in (
                "within",
                "within_hourly",
                "within_daily",
                "within_weekly",
                "within_monthly",
                "within_yearly",
            )
        },
    },
}
"""Retention policy, in restic's words."""


def nullable(schema: Schema) -> Schema:
    """Return a schema that allows null, too."""
    return {"anyOf": [schema, {"type": "null"}]}


def record(properties: Mapping[str, Schema], optional: Sequence[str] = ()) -> Schema:
    """Return the schema of an object that has all properties and no other.

    :param optional: those that may be missing.
    """
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name in properties if name not in optional],
        "properties": dict(properties),
    }


def changes(properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """Return the schema of an object that has some properties and no other."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": dict(properties),
    }


def wrapped(key: str, schema: Schema) -> Schema:
    """Return the schema of an object with one key."""
    return record({key: schema})


def listed(key: str, schema: Schema) -> Schema:
    """Return the schema of a page."""
    return record({key: {"type": "array", "items": schema}, "links": LINKS})


def list_query(filters: Mapping[str, Schema], sort_keys: Sequence[str] = ("created_at",)) -> Schema:
    """Return the schema of the query of a list."""
    return changes(
        {
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            "marker": {"type": "string", "minLength": 1, "maxLength": 1024},
            "sort_key": {"type": "string", "enum": list(sort_keys)},
            "sort_dir": {"type": "string", "enum": ["asc", "desc"]},
            "all_projects": FLAG,
            "project_id": NAME,
            **filters,
        }
    )


IDEMPOTENCY: Schema = {
    "properties": {
        "Idempotency-Key": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "description": "Makes repeating safe: for 24 hours the same answer of one effect.",
        }
    }
}
"""Header of requests that make something."""
