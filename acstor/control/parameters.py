"""Parameters of the operations on a data plane: what each may be, and the look at them."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acstor import untrusted_json

Check = Callable[[Any], bool]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Parameter:
    """A named argument of an operation. One that may be null may be left out as well."""

    name: str
    is_allowed: Check
    allowed: str
    """In words, after "must be"."""


class ParameterError(Exception):
    """An argument that an operation does not take; the text says which and what it must be."""


def checked(
    operation: str, parameters: Sequence[Parameter], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of an operation in the order of its parameters.

    :param given: by name, from a wire.
    :raises ParameterError: when one is unknown, missing or out of bounds.
    """
    known = {parameter.name for parameter in parameters}
    for unknown in sorted(given.keys() - known):
        raise ParameterError(f"{operation} has no parameter {unknown[:100]!r}")
    for parameter in parameters:
        if not parameter.is_allowed(given.get(parameter.name)):
            raise ParameterError(f"{operation}: {parameter.name} must be {parameter.allowed}")
    return {parameter.name: given.get(parameter.name) for parameter in parameters}


def is_int(low: int, high: int) -> Check:
    """Return a check for whole numbers."""
    return lambda value: untrusted_json.is_whole(value, low, high)


def is_int_or_null(low: int, high: int) -> Check:
    """Return a check for whole numbers or null."""
    return lambda value: value is None or untrusted_json.is_whole(value, low, high)


def is_seconds(longest: float) -> Check:
    """Return a check for durations above 0."""
    return lambda value: untrusted_json.is_number(value, 0, longest) and value > 0


def is_multiple(of: int, high: int) -> Check:
    """Return a check for whole numbers above 0 that are a multiple of one."""
    return lambda value: untrusted_json.is_whole(value, of, high) and value % of == 0


def is_one_of(words: Sequence[str]) -> Check:
    """Return a check for some words."""
    return lambda value: isinstance(value, str) and value in words


def is_matching(pattern: str) -> Check:
    """Return a check for text that a regular expression matches as a whole."""
    expression = re.compile(pattern)
    return lambda value: isinstance(value, str) and expression.fullmatch(value) is not None


def is_printable_or_null(longest: int) -> Check:
    """Return a check for printable text, or null.

    :param longest: characters.
    """
    return lambda value: (
        value is None or (isinstance(value, str) and len(value) <= longest and value.isprintable())
    )


def is_flag(value: Any) -> bool:
    """Return whether ``value`` is true or false."""
    return isinstance(value, bool)


def is_flag_or_null(value: Any) -> bool:
    """Return whether ``value`` is true, false or null."""
    return value is None or isinstance(value, bool)


def is_object(value: Any) -> bool:
    """Return whether ``value`` is an object."""
    return isinstance(value, Mapping)


def is_id(value: Any) -> bool:
    """Return whether ``value`` is a UUID in lower case, with dashes."""
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def is_path(value: Any) -> bool:
    """Return whether ``value`` is an absolute path."""
    return isinstance(value, str) and os.path.isabs(value) and "\0" not in value
