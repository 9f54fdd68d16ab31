"""Times as the API writes them: UTC, ISO 8601, whole seconds."""

import datetime

from acstor.api.errors import ApiError
from acstor.repository.versions.locks import parse_time


def text(moment: datetime.datetime) -> str:
    """Return the text of a moment, ``2026-11-27T09:00:00Z``."""
    utc = moment.astimezone(datetime.UTC).replace(microsecond=0, tzinfo=None)
    return f"{utc.isoformat()}Z"


def optional_text(moment: datetime.datetime | None) -> str | None:
    """Return the text of a moment, if there is one."""
    return None if moment is None else text(moment)


def parse(value: str, what: str) -> datetime.datetime:
    """Return the moment that a text says.

    :raises ApiError: when it says none.
    """
    try:
        return parse_time(value, what).replace(microsecond=0)
    except ValueError as error:
        raise ApiError(
            f"{what}: {value!r:.60} is no time",
            hint="write 2026-11-27T09:00:00Z, or with another zone's offset",
            code="acstor.time.invalid",
        ) from error
