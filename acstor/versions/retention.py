"""Retention: which versions of a disk a policy keeps, each with its reasons.

Source: restic, ``internal/data/snapshot_policy.go`` and ``cmd/restic/cmd_forget.go``, whose words
and rules these are: the newest version comes first; it is kept if its hour, day, ISO week, month or
year is another one than that of the version which the same counter kept before, as long as the
count lasts; the oldest is kept, too, while a count is left; ``within`` keeps what is younger than
the newest by less than a span. A version that keeps several counters busy is counted by each.

Differs: days, weeks, months and years are those of the schedule's zone, where restic takes the
offset that each snapshot was recorded with; hours are those of UTC, so that autumn's two hours of
the same name are two. Versions with an exemption (locked, in use, taken by hand) are kept and not
counted.
"""

import dataclasses
import datetime
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from acstor import exception
from acstor.versions.durations import CalendarSpan

ALL = -1
"""Count of a counter that keeps everything."""
COUNT_MAX = 100_000
"""Largest count."""
NO_SPAN = CalendarSpan()
"""Span of a reason that is not asked for."""

Key = tuple[int, ...]
"""Hour, day, week, month or year of a version: equal where they are the same one."""
KeyOf = Callable[[datetime.datetime, int], Key]
"""Returns the key of a version by its time and its number, the newest first."""

COUNTERS = ("last", "hourly", "daily", "weekly", "monthly", "yearly")
"""Names of the counters of a policy, in the order in which restic applies them."""
SPANS = ("within", *(f"within_{name}" for name in COUNTERS[1:]))
"""Names of the spans of a policy."""


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """Policy of a disk; all zero: it removes nothing."""

    last: int = 0
    """Newest versions to keep; -1: all. So are the others."""
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0
    within: CalendarSpan = NO_SPAN
    """Span before the newest version in which every version is kept."""
    within_hourly: CalendarSpan = NO_SPAN
    """Span before the newest version in which one of each hour is kept. So are the others."""
    within_daily: CalendarSpan = NO_SPAN
    within_weekly: CalendarSpan = NO_SPAN
    within_monthly: CalendarSpan = NO_SPAN
    within_yearly: CalendarSpan = NO_SPAN

    def __post_init__(self) -> None:
        """Refuse what is no policy.

        :raises InvalidError: when a count is out of range.
        """
        for name in COUNTERS:
            count = getattr(self, name)
            if type(count) is not int or not ALL <= count <= COUNT_MAX:
                raise exception.InvalidError(
                    f"keep {name} {count!r:.20} is not from {ALL} to {COUNT_MAX}",
                    hint=f"{ALL} keeps all, 0 keeps none for this reason",
                )

    @property
    def is_empty(self) -> bool:
        """True if nothing is asked for; such a policy removes nothing."""
        return not any(getattr(self, name) for name in (*COUNTERS, *SPANS))

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form: what is asked for."""
        counts = {name: getattr(self, name) for name in COUNTERS if getattr(self, name)}
        spans = {name: str(getattr(self, name)) for name in SPANS if getattr(self, name)}
        return {**counts, **spans}

    @classmethod
    def from_fields(cls, fields: object) -> "Policy":
        """Read the JSON form, for example ``{"last": 3, "daily": 14, "within": "3d"}``.

        :raises InvalidError: when it is malformed, or names what no policy has.
        """
        if not isinstance(fields, Mapping):
            raise exception.InvalidError("a retention policy is no JSON object")
        unknown = sorted(map(str, fields.keys() - {*COUNTERS, *SPANS}))
        if unknown:
            raise exception.InvalidError(
                f"a retention policy has {unknown[0]!r:.40}",
                hint=f"it has {', '.join((*COUNTERS, *SPANS))}",
            )
        known: dict[str, Any] = dict(fields)
        for name in fields.keys() & set(SPANS):
            if not isinstance(known[name], str):
                raise exception.InvalidError(f"keep {name} is no text such as 3d")
            known[name] = CalendarSpan.parse(known[name])
        return cls(**known)


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A version that a policy is asked about."""

    id: str
    created_at: datetime.datetime
    """With a zone."""
    exemption: str = ""
    """Reason for which it stays whatever the policy says, and is not counted: ``locked``, ``in
    use``, ``taken by hand``; empty: none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Answer of a policy about one version."""

    id: str
    created_at: datetime.datetime
    reasons: tuple[str, ...]
    """Reasons for which it is kept; none: it is to be removed."""

    @property
    def is_kept(self) -> bool:
        """True if it stays."""
        return bool(self.reasons)


@dataclasses.dataclass(slots=True)
class _Bucket:
    """One counter at work."""

    reason: str
    key_of: KeyOf
    count: int = ALL
    """Versions that it may still keep."""
    begins_after: datetime.datetime | None = None
    """Moment after which a version was taken that it looks at; None: any."""
    previous: Key | None = None
    """Key of the last version that it kept."""

    def keep(self, created_at: datetime.datetime, key: Key, *, is_oldest: bool) -> str | None:
        """Return the reason for which it keeps a version, None where it does not."""
        if self.count == 0 or not _is_after(created_at, self.begins_after):
            return None
        is_new = key != self.previous
        if not is_new and not is_oldest:
            return None
        self.previous = key
        if self.count > 0:
            self.count -= 1
        return self.reason if is_new else f"oldest {self.reason}"


def apply(
    policy: Policy,
    candidates: Iterable[Candidate],
    zone: zoneinfo.ZoneInfo,
    now: datetime.datetime,
) -> list[Verdict]:
    """Return which versions of one disk stay, and why; the newest first.

    :param candidates: all versions of the disk, in any order; those that are only on a host are
        none.
    :param zone: whose days, weeks, months and years count.
    :param now: versions from later on, of a clock that was set back since, are not the newest one
        that ``within`` looks back from.
    """
    ordered = sorted(candidates, key=lambda one: (-one.created_at.timestamp(), one.id))
    if policy.is_empty:
        return [_verdict(one, one.exemption or "policy is empty") for one in ordered]
    counted = [one for one in ordered if not one.exemption]
    reasons = _reasons(policy, counted, zone, now)
    return [
        _verdict(one, one.exemption) if one.exemption else _verdict(one, *reasons[one.id])
        for one in ordered
    ]


def _verdict(candidate: Candidate, *reasons: str) -> Verdict:
    return Verdict(candidate.id, candidate.created_at, reasons)


def _reasons(
    policy: Policy,
    counted: list[Candidate],
    zone: zoneinfo.ZoneInfo,
    now: datetime.datetime,
) -> dict[str, list[str]]:
    newest = max((one.created_at for one in counted if one.created_at < now), default=None)
    within = _begin(policy.within, newest, zone)
    buckets = _buckets(policy, newest, zone)
    found: dict[str, list[str]] = {}
    for number, one in enumerate(counted):
        reasons = found[one.id] = []
        if policy.within and _is_after(one.created_at, within):
            reasons.append(f"within {policy.within}")
        is_oldest = number == len(counted) - 1
        for bucket in buckets:
            key = bucket.key_of(one.created_at, number)
            if reason := bucket.keep(one.created_at, key, is_oldest=is_oldest):
                reasons.append(reason)
    return found


def _buckets(
    policy: Policy, newest: datetime.datetime | None, zone: zoneinfo.ZoneInfo
) -> list[_Bucket]:
    keys = _keys(zone)
    counters = [
        _Bucket(name, keys[name], getattr(policy, name))
        for name in COUNTERS
        if getattr(policy, name)
    ]
    spans = [
        _Bucket(f"{name} within {span}", keys[name], begins_after=_begin(span, newest, zone))
        for name in COUNTERS[1:]
        if (span := getattr(policy, f"within_{name}"))
    ]
    return counters + spans


def _begin(
    span: CalendarSpan, newest: datetime.datetime | None, zone: zoneinfo.ZoneInfo
) -> datetime.datetime | None:
    """Return the moment after which a version is within a span of the newest; None: any is."""
    return span.before(newest, zone) if span and newest is not None else None


def _is_after(moment: datetime.datetime, begin: datetime.datetime | None) -> bool:
    return begin is None or moment > begin


def _keys(zone: zoneinfo.ZoneInfo) -> dict[str, KeyOf]:
    def local(parts: Callable[[datetime.datetime], Key]) -> KeyOf:
        return lambda moment, _number: parts(moment.astimezone(zone))

    return {
        "last": lambda _moment, number: (number,),
        "hourly": lambda moment, _number: _hour(moment.astimezone(datetime.UTC)),
        "daily": local(lambda one: (one.year, one.month, one.day)),
        "weekly": local(lambda one: tuple(one.isocalendar()[:2])),
        "monthly": local(lambda one: (one.year, one.month)),
        "yearly": local(lambda one: (one.year,)),
    }


def _hour(utc: datetime.datetime) -> Key:
    return utc.year, utc.month, utc.day, utc.hour
