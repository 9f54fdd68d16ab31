"""JSON in columns of text: small objects and lists of our own."""

import json
from collections.abc import Mapping
from typing import Any

from acstor import exception, untrusted_json

LENGTH_MAX = 60_000
"""Longest text of one column, bytes: a TEXT of MariaDB holds 65,535."""


def encode(value: Mapping[str, Any] | list[Any] | None, what: str) -> str | None:
    """Return the text of a value; None of None.

    :raises InvalidError: when it is no JSON, or too long.
    """
    if value is None:
        return None
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise exception.InvalidError(f"{what} is no JSON: {error}") from error
    if len(text.encode()) > LENGTH_MAX:
        raise exception.InvalidError(f"{what} is longer than {LENGTH_MAX} bytes")
    return text


def decode_object(text: str | None, what: str) -> dict[str, Any]:
    """Return the object that a text is; empty of None.

    :raises CorruptError: when it is none.
    """
    found = {} if text is None else _decode(text, what)
    if not isinstance(found, dict):
        raise _malformed(what, "it is no object")
    return found


def decode_list(text: str, what: str) -> list[Any]:
    """Return the list that a text is.

    :raises CorruptError: when it is none.
    """
    found = _decode(text, what)
    if not isinstance(found, list):
        raise _malformed(what, "it is no list")
    return found


def _decode(text: str, what: str) -> Any:
    try:
        return untrusted_json.load(text, what)
    except ValueError as error:
        raise _malformed(what, str(error)) from error


def _malformed(what: str, reason: str) -> exception.CorruptError:
    return exception.CorruptError(
        f"{what} in the database is malformed: {reason}",
        hint="somebody wrote into the database by hand: correct the row",
    )
