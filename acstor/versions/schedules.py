"""Schedules: at which moments versions are taken of which targets.

A schedule names times of a zone. Each time is a *slot*, whose key tells it from all others: a run
is unique by schedule, target and slot, so that neither two schedulers nor a clock that is set back
run one twice. Targets of one slot are spread over its window.

A local time that comes twice, in autumn, is one slot, at its first coming; one that does not come,
in spring, is a slot at the moment at which clocks are set forward. Hourly schedules follow the
hours as they pass: in autumn the hour that comes twice has two slots, in spring the one that does
not come has none.
"""

import dataclasses
import datetime
import enum
import hashlib
import itertools
import re
import zoneinfo
from collections.abc import Iterator, Mapping
from typing import Any

from acstor import exception
from acstor.versions import local_times

WINDOW_MINUTES_MAX = 24 * 60
"""Longest window of a schedule, minutes."""
HOUR_WINDOW_MINUTES_MAX = 59
"""Longest window of an hourly schedule, minutes: it ends before the next slot."""
SLOTS_SHOWN_MAX = 366
"""Most slots that are computed ahead."""

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])\Z")
_HOUR = datetime.timedelta(hours=1)
_DAY = datetime.timedelta(days=1)


class Every(enum.StrEnum):
    """Distance of the slots of a schedule."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


DAYS_MAX = {Every.HOUR: 0, Every.DAY: 0, Every.WEEK: 7, Every.MONTH: 31}
"""Largest number of the day on which a schedule runs; 0: it has none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """Times at which versions are taken."""

    id: str
    every: Every
    at: str = "00:00"
    """Local time, ``HH:MM``; of an hourly one only the minutes count."""
    on: int | None = None
    """Of a weekly one the ISO day of the week, 1 (Monday) to 7; of a monthly one the day, 1 to 31,
    which is the last one where the month has fewer; None of all others."""
    timezone: str = "UTC"
    """Name in the IANA database."""
    window_minutes: int = 60
    """Minutes over which the targets of a slot are spread."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        :raises InvalidError: saying what.
        """
        if not isinstance(self.at, str) or not _TIME.match(self.at):
            raise exception.InvalidError(f"at {self.at!r:.20} is no time such as 02:30")
        days = DAYS_MAX[self.every]
        is_day = type(self.on) is int and 1 <= self.on <= days
        if (self.on is not None) != bool(days) or (days and not is_day):
            raise exception.InvalidError(
                f"a schedule of every {self.every} has on {self.on!r:.20}",
                hint="a weekly one has 1 (Monday) to 7, a monthly one 1 to 31, others none",
            )
        window_max = HOUR_WINDOW_MINUTES_MAX if self.every is Every.HOUR else WINDOW_MINUTES_MAX
        if type(self.window_minutes) is not int or not 0 <= self.window_minutes <= window_max:
            raise exception.InvalidError(
                f"window_minutes {self.window_minutes!r:.20} is not from 0 to {window_max}"
            )
        local_times.open_zone(self.timezone)

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        """The zone."""
        return local_times.open_zone(self.timezone)

    @property
    def time(self) -> datetime.time:
        """The local time."""
        return datetime.time.fromisoformat(self.at)

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form, without the id."""
        fields = dataclasses.asdict(self)
        del fields["id"]
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_fields(cls, schedule_id: str, fields: object) -> "Schedule":
        """Read the JSON form; unknown fields are ignored.

        :raises InvalidError: when it is malformed.
        """
        if not isinstance(fields, Mapping):
            raise exception.InvalidError("a schedule is no JSON object")
        try:
            every = Every(fields.get("every"))  # type: ignore[arg-type]
        except ValueError as error:
            raise exception.InvalidError(
                f"every {fields.get('every')!r:.20} is no distance of a schedule",
                hint=f"it is one of {', '.join(Every)}",
            ) from error
        names = [field.name for field in dataclasses.fields(cls)[2:]]
        return cls(schedule_id, every, **{name: fields[name] for name in names if name in fields})


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One time of a schedule."""

    at: datetime.datetime
    """Moment, in UTC."""
    key: str
    """Tells it from all other slots of the schedule, for ever: the date, or date and hour in UTC of
    an hourly schedule."""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """A slot's turn of one target."""

    schedule_id: str
    target_id: str
    slot: Slot
    starts_at: datetime.datetime
    """Moment in the slot's window, in UTC."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Schedule, target and slot: unique, whoever runs it."""
        return self.schedule_id, self.target_id, self.slot.key


def slots_after(schedule: Schedule, moment: datetime.datetime) -> Iterator[Slot]:
    """Yield the slots that come after a moment, at most :data:`SLOTS_SHOWN_MAX` of them."""
    first = moment.astimezone(datetime.UTC) - 2 * _DAY
    if schedule.every is Every.HOUR:
        slots = _hours(schedule, moment, 1)
    else:
        slots = _dates(schedule, first.date(), 1)
    later = (slot for slot in slots if slot.at > moment)
    yield from itertools.islice(later, SLOTS_SHOWN_MAX)


def slots_until(schedule: Schedule, moment: datetime.datetime) -> Iterator[Slot]:
    """Yield the slots up to a moment, the latest first, at most :data:`SLOTS_SHOWN_MAX` of them."""
    last = moment.astimezone(datetime.UTC) + 2 * _DAY
    if schedule.every is Every.HOUR:
        slots = _hours(schedule, moment + _HOUR, -1)
    else:
        slots = _dates(schedule, last.date(), -1)
    earlier = (slot for slot in slots if slot.at <= moment)
    yield from itertools.islice(earlier, SLOTS_SHOWN_MAX)


def due_run(
    schedule: Schedule,
    target_id: str,
    now: datetime.datetime,
    since: datetime.datetime,
    last_slot: datetime.datetime | None = None,
) -> Run | None:
    """Return the run that is due of a target, None where none is.

    Of slots that were missed, while no scheduler ran, only the latest is due.

    :param since: moment from which on the schedule counts for the target: it was made, switched on
        or given the target then; nothing is made up for from before.
    :param last_slot: moment of the latest slot that was run for the target; None: none was. A slot
        up to that is never due, whatever the clock says now.
    """
    for slot in slots_until(schedule, now):
        if slot.at < since or (last_slot is not None and slot.at <= last_slot):
            return None
        run = _run(schedule, target_id, slot)
        if run.starts_at <= now:
            return run
    return None


def next_runs(schedule: Schedule, target_id: str, now: datetime.datetime, count: int) -> list[Run]:
    """Return the next runs of a target, the first one first; at most :data:`SLOTS_SHOWN_MAX`."""
    # The slot before may have a turn of this target that is still to come.
    begun = next(slots_until(schedule, now), None)
    slots = itertools.chain([begun] if begun else [], slots_after(schedule, now))
    runs = (_run(schedule, target_id, slot) for slot in slots)
    return list(itertools.islice((run for run in runs if run.starts_at > now), count))


def _run(schedule: Schedule, target_id: str, slot: Slot) -> Run:
    """Return the turn of a target, which has the same place in the window of each slot."""
    name = f"{schedule.id} {target_id}".encode()
    share = int.from_bytes(hashlib.sha256(name).digest()[:8]) / (1 << 64)
    delay = datetime.timedelta(seconds=int(share * schedule.window_minutes * 60))
    return Run(schedule.id, target_id, slot, slot.at + delay)


def _hours(schedule: Schedule, moment: datetime.datetime, step: int) -> Iterator[Slot]:
    """Yield the slots of an hourly schedule from the hour of a moment on."""
    zone = schedule.zone
    hour = moment.astimezone(datetime.UTC).replace(minute=0, second=0, microsecond=0)
    for number in itertools.count(0, step):
        try:
            start = hour + number * _HOUR
            at = _in_hour(start, schedule.time.minute, zone)
        except OverflowError:
            return
        if at is not None:
            yield Slot(at, at.strftime("%Y-%m-%dT%H:%MZ"))


def _in_hour(
    start: datetime.datetime, minute: int, zone: zoneinfo.ZoneInfo
) -> datetime.datetime | None:
    """Return the moment in an hour of UTC at which clocks of a zone show a minute, if any.

    There is none in some hour where clocks are set forward by a part of one.
    """
    offsets = {
        (start + datetime.timedelta(minutes=passed)).astimezone(zone).utcoffset()
        for passed in (0, 30, 59)
    }
    found = []
    for offset in offsets:
        shown = start + (offset or datetime.timedelta())
        wait = (minute - shown.minute) % 60
        at = start + datetime.timedelta(minutes=wait, seconds=-shown.second)
        if at.astimezone(zone).utcoffset() == offset:
            found.append(at)
    return min(found, default=None)


def _dates(schedule: Schedule, first: datetime.date, step: int) -> Iterator[Slot]:
    """Yield the slots of all other schedules from a date on."""
    zone, time = schedule.zone, schedule.time
    for number in itertools.count(0, step):
        try:
            date = first + number * _DAY
            if not _is_day(schedule, date):
                continue
            at = local_times.first_instant(datetime.datetime.combine(date, time), zone)
        except OverflowError:
            return
        yield Slot(at, date.isoformat())


def _is_day(schedule: Schedule, date: datetime.date) -> bool:
    if schedule.every is Every.WEEK:
        return date.isoweekday() == schedule.on
    if schedule.every is Every.MONTH:
        is_last = (date + _DAY).day == 1
        return date.day == schedule.on or (is_last and date.day < (schedule.on or 0))
    return True
