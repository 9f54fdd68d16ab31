"""Records in refs: JSON objects of one version, whose parts are checked as they are read."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from acstor import exception, untrusted_json

RECORD_SIZE_MAX = 1 << 20
"""Longest record, bytes."""
HINT = (
    "restore the ref from a backup of the origin; 'acstor repository verify' lists what is damaged"
)
"""Hint for whoever finds a damaged record."""

Parsed = TypeVar("Parsed")

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


def load_fields(content: bytes, what: str, *versions: int) -> Mapping[str, Any]:
    """Return the fields of a record.

    :param what: names the record in messages.
    :param versions: that this release reads.
    :raises UnsupportedError: when it is of another version.
    :raises CorruptError: when it is malformed or too long.
    """
    try:
        if len(content) > RECORD_SIZE_MAX:
            raise ValueError("it is too long")
        fields: Mapping[str, Any] = untrusted_json.load(content, what)
        found = fields["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise exception.CorruptError(f"{what} is malformed", hint=HINT) from error
    if found not in versions or isinstance(found, bool):
        known = " and ".join(map(str, versions))
        raise exception.UnsupportedError(
            f"{what} has version {found!r:.20}, this release reads {known}"
        )
    return fields


def checked(what: str, parse: Callable[[], Parsed]) -> Parsed:
    """Return what a reader of fields makes of them.

    :raises CorruptError: when they are malformed.
    """
    try:
        return parse()
    except exception.InvalidError as error:
        raise exception.CorruptError(f"{what} is malformed: {error}", hint=HINT) from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise exception.CorruptError(f"{what} is malformed: {error}", hint=HINT) from error


def encoded(fields: Mapping[str, Any], hint: str) -> bytes:
    """Return a record as JSON.

    :param hint: what to do about one that is too long.
    :raises ExhaustedError: when it is.
    """
    content = json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"
    if len(content) > RECORD_SIZE_MAX:
        raise exception.ExhaustedError(
            f"the record has {len(content)} bytes, at most {RECORD_SIZE_MAX} may be", hint=hint
        )
    return content


def check_digest(value: object, what: str) -> None:
    """Refuse what is no digest; None is allowed.

    :raises ValueError: unless it has 64 hexadecimal digits.
    """
    if value is not None and (not isinstance(value, str) or not _DIGEST.match(value)):
        raise ValueError(f"{what} is no digest")


def list_of(fields: Mapping[str, Any], name: str, length_max: int) -> list[Any]:
    """Return a list of a record.

    :raises ValueError: when it is none, or too long.
    """
    found = fields.get(name)
    if not isinstance(found, list) or len(found) > length_max:
        raise ValueError(f"{name} is no list of at most {length_max}")
    return found
