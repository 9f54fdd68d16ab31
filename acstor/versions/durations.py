"""Spans of calendar time, in restic's words: ``1y5m7d2h``.

Source: restic, ``internal/data/duration.go``. Differs: a unit comes once, and nothing is negative.
"""

import dataclasses
import datetime
import re
import zoneinfo

from acstor import exception
from acstor.versions import local_times

PART_MAX = 100_000
"""Largest number of a unit: a span of 100,000 years reaches behind every date."""

_PART = re.compile(r"([0-9]{1,6})([ymdh])")


@dataclasses.dataclass(frozen=True, slots=True)
class CalendarSpan:
    """A span of years, months, days and hours; all 0: none."""

    years: int = 0
    months: int = 0
    days: int = 0
    hours: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no span.

        :raises InvalidError: when a number is out of range.
        """
        for number in dataclasses.astuple(self):
            if not isinstance(number, int) or not 0 <= number <= PART_MAX:
                raise exception.InvalidError(f"{number!r:.20} is not from 0 to {PART_MAX}")

    def __bool__(self) -> bool:
        """Return whether it has any length."""
        return any(dataclasses.astuple(self))

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        parts = zip(dataclasses.astuple(self), "ymdh", strict=True)
        return "".join(f"{number}{unit}" for number, unit in parts if number)

    @classmethod
    def parse(cls, text: str) -> "CalendarSpan":
        """Read a text such as ``6y5m234d37h``; empty: none.

        :raises InvalidError: when it is none.
        """
        stripped = text.strip()
        found = _PART.findall(stripped)
        numbers = {unit: int(number) for number, unit in found}
        if "".join(map("".join, found)) != stripped or len(numbers) != len(found):
            raise exception.InvalidError(
                f"{text!r:.40} is no span of time",
                hint="write years, months, days and hours, for example 1y6m or 3d12h; a week is 7d",
            )
        return cls(*(numbers.get(unit, 0) for unit in "ymdh"))

    def before(
        self, moment: datetime.datetime, zone: zoneinfo.ZoneInfo
    ) -> datetime.datetime | None:
        """Return the moment that lies this span before another, by the calendar of a zone.

        A day that a month does not have is counted on into the next: one month before 31 March is
        3 March, as restic and Go have it.

        :param moment: with a zone.
        :returns: None where it is before every date.
        """
        local = moment.astimezone(zone).replace(tzinfo=None)
        months = local.year * 12 + local.month - 1 - self.years * 12 - self.months
        year, month = divmod(months, 12)
        try:
            shifted = local.replace(year=year, month=month + 1, day=1)
            shifted += datetime.timedelta(days=local.day - 1 - self.days)
            found = local_times.first_instant(shifted, zone)
            return found - datetime.timedelta(hours=self.hours)
        except (ValueError, OverflowError):
            return None
