"""What parameters of the admin protocol's methods may be, and looking at it before a call."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acstor.control import protocol
from acstor.control.server import Method

Check = Callable[[Any], bool]
Parameter = tuple[str, Check, str]
"""Name, check, what is allowed."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_int(low: int, high: int) -> Check:
    """Return a check for whole numbers."""
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    )


def is_int_or_null(low: int, high: int) -> Check:
    """Return a check for whole numbers or null; the parameter may be left out as well."""
    is_number = is_int(low, high)
    return lambda value: value is None or is_number(value)


def is_seconds(longest: float) -> Check:
    """Return a check for durations above 0."""
    return lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= longest
    )


def is_one_of(words: Sequence[str]) -> Check:
    """Return a check for some words."""
    return lambda value: isinstance(value, str) and value in words


def is_flag(value: Any) -> bool:
    """Return whether ``value`` is true or false."""
    return isinstance(value, bool)


def is_id(value: Any) -> bool:
    """Return whether ``value`` is a UUID in lower case, with dashes."""
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def is_path(value: Any) -> bool:
    """Return whether ``value`` is an absolute path."""
    return isinstance(value, str) and os.path.isabs(value) and "\0" not in value


def checked(name: str, parameters: Sequence[Parameter], action: Callable[..., object]) -> Method:
    """Return a method whose parameters, all required, are looked at before ``action`` is called."""
    known = {parameter for parameter, _, _ in parameters}

    def method(params: Mapping[str, Any]) -> object:
        for unknown in sorted(params.keys() - known):
            raise protocol.ProtocolError(
                protocol.Code.INVALID_PARAMS, f"{name} has no parameter {unknown[:100]!r}"
            )
        for parameter, is_allowed, allowed in parameters:
            if not is_allowed(params.get(parameter)):
                raise protocol.ProtocolError(
                    protocol.Code.INVALID_PARAMS, f"{name}: {parameter} must be {allowed}"
                )
        return action(*(params.get(parameter) for parameter, _, _ in parameters))

    return method


def done(action: Callable[..., None]) -> Callable[..., object]:
    """Return ``action`` with the result of those that have none to give."""

    def run(*arguments: Any) -> object:
        action(*arguments)
        return {"done": True}

    return run
