"""Checks of queries and bodies against their schemas (JSON Schema 2020-12)."""

import functools
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

import jsonschema

from acstor import untrusted_json
from acstor.api.errors import ApiError
from acstor.repository.versions.locks import parse_time

Schema = Mapping[str, Any]
"""Schema as JSON has it."""
MEDIA_BYTES = "application/octet-stream"
BYTES: Schema = {"contentMediaType": MEDIA_BYTES}
"""Stands for a body that is no JSON: bytes of a file."""

_FORMATS = jsonschema.FormatChecker(formats=())
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_FLAGS = {"true": True, "false": False}


def _is_uuid(value: object) -> bool:
    return not isinstance(value, str) or str(uuid.UUID(value)) == value


def _is_time(value: object) -> bool:
    return not isinstance(value, str) or bool(parse_time(value, "time"))


_FORMATS.checks("uuid", raises=ValueError)(_is_uuid)
_FORMATS.checks("date-time", raises=(ValueError, OverflowError))(_is_time)


def check(value: object, schema: Schema, where: str) -> None:
    """Refuse a value that is unlike its schema.

    :param where: ``query``, ``body`` or ``answer``: begins the text.
    :raises ApiError: naming the first thing that is wrong, and its place.
    """
    found = jsonschema.exceptions.best_match(_validator(_key(schema)).iter_errors(value))
    if found is None:
        return
    path = ".".join(str(part) for part in found.absolute_path)
    place = f"{where} {path}".rstrip()
    raise ApiError(
        f"{place}: {found.message:.300}",
        hint=f"the reference of the API has the schema of the {where}",
        code=f"acstor.{where}.invalid",
    )


def query_of(parameters: Mapping[str, Any], schema: Schema | None) -> dict[str, Any]:
    """Return the values of a query, by the types of its schema.

    Of a name that comes several times all values are taken where the schema has a list of them;
    where it has one, the query is refused.

    :raises ApiError: when it is unlike the schema, or has what that does not.
    """
    properties: Mapping[str, Schema] = {} if schema is None else schema["properties"]
    found: dict[str, Any] = {}
    for name, text in parameters.items():
        if name not in properties:
            raise ApiError(
                f"query: there is no parameter {name[:100]!r}",
                hint=f"there are {', '.join(sorted(properties)) or 'none'}",
                code="acstor.query.invalid",
            )
        found[name] = _typed(text, properties[name])
    if schema is not None:
        check(found, schema, "query")
    return found


def _typed(text: str | list[str], schema: Schema) -> Any:
    """Return a value as its type has it; what is no such value is left for the schema."""
    if schema.get("type") == "array":
        return [text] if isinstance(text, str) else text
    if isinstance(text, list):
        return text
    if schema.get("type") == "integer" and _WHOLE.fullmatch(text):
        return int(text)
    if schema.get("type") == "boolean":
        return _FLAGS.get(text.lower(), text)
    return text


def _key(schema: Schema) -> str:
    return json.dumps(schema, sort_keys=True)


@functools.lru_cache(maxsize=512)
def _validator(text: str) -> Any:
    schema = untrusted_json.load(text, "a schema")
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=_FORMATS)
