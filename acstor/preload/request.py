"""Request for a preload, and the checks of everything that comes from another host."""

import dataclasses
import sys
import uuid
from collections.abc import Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.control.protocol import PRELOAD_RATE_MAX, PreloadWhat
from acstor.repository import layout

RATE_MIN = 64 << 10
"""Lowest rate, bytes per second: one chunk of the default size."""
DEADLINE_MIN = 1.0
DEADLINE_MAX = 31 * 86400.0
"""Shortest and longest deadline, seconds from now."""


@dataclasses.dataclass(frozen=True, slots=True)
class PreloadRequest:
    """Request that each of the hosts gets."""

    image: str
    what: PreloadWhat
    rate_bytes_per_s: int | None = None
    """Of one host. None: as the deadline needs it, or the host's default."""
    deadline_s: float | None = None
    """Seconds from now. None: none."""
    pin: bool = False

    def to_arguments(self) -> dict[str, object]:
        """Return the request as a call carries it."""
        return {**dataclasses.asdict(self), "what": str(self.what)}

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "PreloadRequest":
        """Return the request that a call carries.

        :raises InvalidError: when a field is missing, unknown or out of range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(map(str, arguments.keys() - known)):
            raise exception.InvalidError(f"a preload has no field {name[:100]!r}")
        rate, deadline = arguments.get("rate_bytes_per_s"), arguments.get("deadline_s")
        pin = arguments.get("pin", False)
        if rate is not None and not (is_whole(rate) and RATE_MIN <= rate <= PRELOAD_RATE_MAX):
            raise exception.InvalidError(
                f"a rate is {RATE_MIN} to {PRELOAD_RATE_MAX} bytes per second, not {rate!r:.50}"
            )
        if deadline is not None and not (
            is_number(deadline) and DEADLINE_MIN <= deadline <= DEADLINE_MAX
        ):
            raise exception.InvalidError(
                f"a deadline is {DEADLINE_MIN:g} to {DEADLINE_MAX:g} s away, not {deadline!r:.50}"
            )
        if not isinstance(pin, bool):
            raise exception.InvalidError(f"pin is true or false, not {pin!r:.50}")
        return cls(
            checked_image(arguments.get("image")),
            checked_what(arguments.get("what")),
            rate,
            None if deadline is None else float(deadline),
            pin,
        )


def checked_image(value: object) -> str:
    """Return the id of an image.

    :raises InvalidError: when it is no UUID in its one form.
    """
    if not isinstance(value, str) or layout.canonical_image_id(value) != value:
        raise exception.InvalidError(f"image id {value!r:.100} is no UUID in lower case")
    return value


def checked_what(value: object) -> PreloadWhat:
    """Return what is to be preloaded.

    :raises InvalidError: when there is no such thing.
    """
    try:
        return PreloadWhat(value)  # type: ignore[arg-type]
    except ValueError as error:
        allowed = " or ".join(PreloadWhat)
        raise exception.InvalidError(f"what to preload is {allowed}, not {value!r:.50}") from error


def checked_id(value: object) -> str:
    """Return the id of an admitted preload.

    :raises InvalidError: when it is no UUID in its one form.
    """
    try:
        if isinstance(value, str) and str(uuid.UUID(value)) == value:
            return value
    except ValueError:
        pass
    raise exception.InvalidError(f"the id of a preload is a UUID, not {value!r:.100}")


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number, true and false left out."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    return untrusted_json.is_number(value, -sys.float_info.max, sys.float_info.max)
