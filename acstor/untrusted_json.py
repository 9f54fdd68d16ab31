"""Reading JSON that others wrote: documents of the origin, answers of services, files of a state.

What the standard decoder lets pass ends a pass over many documents far from where it was read:
``NaN`` and ``Infinity``, which JSON does not have; numbers that no float holds (``10**400``); half
a character, as the escape ``ud800`` is one, which nobody can encode again; and nesting so deep that
reading it, or showing it, is a :class:`RecursionError`. All of them are a :class:`ValueError` here,
as any other text that is no JSON is, and it names the document.
"""

import json
import math
import re
from typing import Any

DEPTH_MAX = 64
"""Objects and lists in one another; those of the formats here are a handful deep."""
INTEGER_LENGTH_MAX = 20
"""Characters of a whole number, enough for 64 bits with a sign; more than any format has."""
COUNT_MAX = (1 << 62) - 1
"""Largest count by default: one more still fits in 64 bits, with a sign."""

_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Half a character in a document's text; two of them, as escapes, may make a whole one."""


def load(content: bytes | bytearray | str, what: str) -> Any:
    """Return what a document says.

    :param what: names the document in errors.
    :raises ValueError: when it is no JSON, too deep, has a number that is none or too long, or half
        a character.
    """
    try:
        text = content if isinstance(content, str) else _decoded(content)
        found = json.loads(
            text, parse_int=_integer, parse_float=_float, parse_constant=_no_constant
        )
    except RecursionError:
        raise _too_deep(what) from None
    except ValueError as error:
        raise ValueError(f"{what} is no JSON: {error}") from error
    _check_depth(found, what)
    if _HALF.search(text):
        _check_characters(found, what)
    return found


def is_whole(value: object, lowest: int, highest: int) -> bool:
    """Return whether a value is a whole number of a range, true and false left out."""
    return type(value) is int and lowest <= value <= highest


def is_number(value: object, lowest: float, highest: float) -> bool:
    """Return whether a value is a finite number of a range, true and false left out."""
    # Compared, not converted: of a whole number without an end, math.isfinite is an error.
    is_one = type(value) is int or (isinstance(value, float) and math.isfinite(value))
    return is_one and lowest <= value <= highest  # type: ignore[operator]


def whole(value: object, what: str, lowest: int = 0, highest: int = COUNT_MAX) -> int:
    """Return a whole number.

    :param what: names it in errors.
    :raises ValueError: when the value is none from ``lowest`` to ``highest``.
    """
    if not is_whole(value, lowest, highest):
        raise ValueError(f"{what} is no whole number from {lowest} to {highest}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def number(value: object, what: str, lowest: float, highest: float) -> float:
    """Return a finite number, as :func:`whole` does."""
    if not is_number(value, lowest, highest):
        raise ValueError(f"{what} is no number from {lowest:g} to {highest:g}")
    return float(value)  # type: ignore[arg-type]


def _decoded(content: bytes | bytearray) -> str:
    """Return a document's text; the standard decoder would let halves of characters pass."""
    encoding = json.detect_encoding(content)
    return content.decode(encoding)


def _check_characters(found: Any, what: str) -> None:
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} has half a character in a text") from None


def _integer(text: str) -> int:
    if len(text) > INTEGER_LENGTH_MAX:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is too large a number")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _check_depth(found: Any, what: str) -> None:
    level = [found]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep(what)


def _too_deep(what: str) -> ValueError:
    return ValueError(f"{what} has more than {DEPTH_MAX} objects or lists in one another")
