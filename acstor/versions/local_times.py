"""Local times of a zone as moments: times that come twice, and times that do not come.

Zones are those of the IANA database (``tzdata``), which the system has.
"""

import datetime
import zoneinfo

from acstor import exception

ZONE_LENGTH_MAX = 64
"""Longest name of a zone, characters."""


def open_zone(name: str) -> zoneinfo.ZoneInfo:
    """Return the zone of a name such as ``Europe/Berlin``.

    :raises InvalidError: when there is none.
    """
    try:
        if len(name) > ZONE_LENGTH_MAX:
            raise ValueError("the name is too long")
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, TypeError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise exception.InvalidError(
            f"{name!r:.70} is no time zone",
            hint="take a name of the IANA database, for example Europe/Berlin or UTC; where none "
            "is known, install the package tzdata",
        ) from error


def first_instant(local: datetime.datetime, zone: zoneinfo.ZoneInfo) -> datetime.datetime:
    """Return the moment, in UTC, at which clocks of a zone first show a time.

    Of a time that comes twice, when clocks are set back, it is the first; of one that does not
    come, when they are set forward, the moment at which they are.

    :param local: without a zone.
    """
    by_offset_before = local.replace(tzinfo=zone, fold=0).astimezone(datetime.UTC)
    if by_offset_before.astimezone(zone).replace(tzinfo=None) == local.replace(fold=0):
        return by_offset_before
    # It does not come: by the offset before the change it lies after it, and the other way round.
    by_offset_after = local.replace(tzinfo=zone, fold=1).astimezone(datetime.UTC)
    return _change_between(by_offset_after, by_offset_before, zone)


def _change_between(
    before: datetime.datetime, after: datetime.datetime, zone: zoneinfo.ZoneInfo
) -> datetime.datetime:
    """Return the first second, after a moment and up to another, with the offset of the latter."""
    offset = after.astimezone(zone).utcoffset()
    low, high = 0, int((after - before).total_seconds())
    start = before.replace(microsecond=0)
    while low + 1 < high:
        middle = (low + high) // 2
        moment = start + datetime.timedelta(seconds=middle)
        if moment.astimezone(zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return start + datetime.timedelta(seconds=high)
