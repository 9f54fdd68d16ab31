"""Properties of schemas that later microversions have brought.

A schema is written once, as the newest microversion has it; for an older one the properties that
came later are taken out. So a body that has one of them is refused there as any unknown one is.
"""

from collections.abc import Mapping
from typing import Any

from acstor.api.microversions import Microversion
from acstor.api.validation import Schema

_SINCE = "x-since"
"""Key of a property's schema; JSON Schema ignores it, and no document has it."""


def since(version: Microversion, schema: Schema) -> Schema:
    """Return the schema of a property that a microversion has brought."""
    return {**schema, _SINCE: list(version)}


def at(schema: Schema, version: Microversion) -> Schema:
    """Return a schema as a microversion has it."""
    found: Schema = _at(schema, version)
    return found


def _at(part: Any, version: Microversion) -> Any:
    if isinstance(part, list | tuple):
        return [_at(each, version) for each in part]
    if not isinstance(part, Mapping):
        return part
    found = {name: each for name, each in part.items() if name != _SINCE}
    properties = found.get("properties")
    if isinstance(properties, Mapping):
        later = {name for name, each in properties.items() if _is_later(each, version)}
        found["properties"] = {name: each for name, each in properties.items() if name not in later}
        if "required" in found:
            found["required"] = [name for name in found["required"] if name not in later]
    return {name: _at(each, version) for name, each in found.items()}


def _is_later(schema: Any, version: Microversion) -> bool:
    brought = schema.get(_SINCE) if isinstance(schema, Mapping) else None
    return brought is not None and tuple(brought) > version
