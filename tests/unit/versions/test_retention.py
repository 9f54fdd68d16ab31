"""Retention by restic's rules: each counter alone, sums, spans, the oldest, zones and clocks."""

import datetime
import zoneinfo
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.versions import retention
from acstor.versions.durations import CalendarSpan
from acstor.versions.retention import ALL, COUNTERS, Candidate, Policy, Verdict

UTC = zoneinfo.ZoneInfo("UTC")
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
FUTURE = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)


def at(text: str, zone: datetime.tzinfo = datetime.UTC) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zone)


def verdicts(
    policy: Policy,
    times: Iterable[str | datetime.datetime],
    zone: zoneinfo.ZoneInfo = UTC,
    now: datetime.datetime = FUTURE,
) -> list[Verdict]:
    moments = (at(time) if isinstance(time, str) else time for time in times)
    candidates = [Candidate(moment.isoformat(), moment) for moment in moments]
    return retention.apply(policy, candidates, zone, now)


def kept(
    policy: Policy,
    times: Iterable[str | datetime.datetime],
    zone: zoneinfo.ZoneInfo = UTC,
    now: datetime.datetime = FUTURE,
) -> dict[str, tuple[str, ...]]:
    found = verdicts(policy, times, zone, now)
    return {one.id.removesuffix("+00:00"): one.reasons for one in found if one.is_kept}


DAYS = [f"2026-01-{day:02}T{hour}:00" for day in range(1, 11) for hour in ("06", "18")]
"""Two versions on each of ten days."""


def test_last_keeps_the_newest() -> None:
    assert list(kept(Policy(last=3), DAYS)) == [
        "2026-01-10T18:00:00",
        "2026-01-10T06:00:00",
        "2026-01-09T18:00:00",
    ]


def test_daily_keeps_the_newest_of_each_day() -> None:
    found = kept(Policy(daily=2), DAYS)
    assert list(found) == ["2026-01-10T18:00:00", "2026-01-09T18:00:00"]
    assert set(found.values()) == {("daily",)}


def test_hourly_weekly_monthly_and_yearly_keep_one_each() -> None:
    minutes = [f"2026-01-01T{hour}:{minute}" for hour in ("01", "02") for minute in ("10", "50")]
    assert list(kept(Policy(hourly=2), minutes)) == ["2026-01-01T02:50:00", "2026-01-01T01:50:00"]
    assert list(kept(Policy(weekly=2), DAYS)) == ["2026-01-10T18:00:00", "2026-01-04T18:00:00"]
    months = [f"2025-{month:02}-{day}T00:00" for month in (10, 11, 12) for day in (10, 20)]
    assert list(kept(Policy(monthly=2), months)) == ["2025-12-20T00:00:00", "2025-11-20T00:00:00"]
    years = [f"{year}-{month:02}-01T00:00" for year in (2024, 2025) for month in (1, 7)]
    assert list(kept(Policy(yearly=1), years)) == ["2025-07-01T00:00:00"]


def test_one_version_keeps_several_counters_busy() -> None:
    found = kept(Policy(last=1, daily=1, monthly=1), DAYS)
    assert found == {"2026-01-10T18:00:00": ("last", "daily", "monthly")}


def test_counters_add_up() -> None:
    found = kept(Policy(last=1, daily=2, weekly=2), DAYS)
    assert list(found) == ["2026-01-10T18:00:00", "2026-01-09T18:00:00", "2026-01-04T18:00:00"]


@pytest.mark.parametrize("counter", COUNTERS)
def test_minus_one_keeps_all_of_them(counter: str) -> None:
    every = {"last": 20, "hourly": 20, "daily": 10, "weekly": 2, "monthly": 1, "yearly": 1}
    found = kept(Policy.from_fields({counter: ALL}), DAYS)
    oldest = 0 if counter in ("last", "hourly") else 1
    assert len(found) == every[counter] + oldest


def test_oldest_is_kept_while_a_count_is_left() -> None:
    found = kept(Policy(daily=11), DAYS)
    assert len(found) == 11
    assert found["2026-01-01T06:00:00"] == ("oldest daily",)
    assert "2026-01-01T06:00:00" not in kept(Policy(daily=10), DAYS)


def test_fewer_versions_than_counts_all_stay() -> None:
    assert len(kept(Policy(last=50), DAYS)) == len(DAYS)


def test_two_in_one_second_are_two_versions() -> None:
    same = at("2026-01-01T00:00")
    candidates = [Candidate("b", same), Candidate("a", same)]
    found = retention.apply(Policy(last=1), candidates, UTC, FUTURE)
    assert [(one.id, one.is_kept) for one in found] == [("a", True), ("b", False)]


def test_empty_policy_removes_nothing() -> None:
    assert set(kept(Policy(), DAYS).values()) == {("policy is empty",)}
    assert Policy().is_empty
    assert retention.apply(Policy(last=1), [], UTC, FUTURE) == []


# Spans


def test_within_is_strictly_after_the_beginning() -> None:
    times = ["2026-01-04T00:00:01", "2026-01-04T00:00", "2026-01-07T00:00"]
    found = kept(Policy(within=CalendarSpan(days=3)), times)
    assert found == {
        "2026-01-07T00:00:00": ("within 3d",),
        "2026-01-04T00:00:01": ("within 3d",),
    }


def test_within_counts_calendar_months() -> None:
    """One month before 31 March is 31 February, which is 3 March."""
    times = ["2026-03-31T12:00", "2026-03-03T13:00", "2026-03-03T12:00", "2026-03-01T12:00"]
    found = kept(Policy(within=CalendarSpan(months=1)), times)
    assert list(found) == ["2026-03-31T12:00:00", "2026-03-03T13:00:00"]


@pytest.mark.parametrize(
    ("moment", "span", "begin"),
    [
        ("2026-03-31T12:00", "1m", "2026-03-03T12:00"),
        ("2026-01-31T12:00", "2m", "2025-12-01T12:00"),
        ("2024-02-29T12:00", "1y", "2023-03-01T12:00"),
        ("2024-02-29T12:00", "4y", "2020-02-29T12:00"),
        ("2024-03-01T00:00", "1d", "2024-02-29T00:00"),
        ("2026-01-01T01:00", "1y2m3d4h", "2024-10-28T21:00"),
    ],
)
def test_spans_go_by_the_calendar(moment: str, span: str, begin: str) -> None:
    assert CalendarSpan.parse(span).before(at(moment), UTC) == at(begin)


def test_a_day_of_the_calendar_may_have_25_hours() -> None:
    noon = at("2026-10-25T12:00", BERLIN)
    assert CalendarSpan(days=1).before(noon, BERLIN) == at("2026-10-24T12:00", BERLIN)
    assert CalendarSpan(hours=24).before(noon, BERLIN) == at("2026-10-24T13:00", BERLIN)


def test_spans_before_every_date_have_no_beginning() -> None:
    found = kept(Policy(within=CalendarSpan(years=100_000)), DAYS)
    assert len(found) == len(DAYS)


def test_within_daily_combines_span_and_day() -> None:
    found = kept(Policy(within_daily=CalendarSpan(days=2)), DAYS)
    assert found == {
        "2026-01-10T18:00:00": ("daily within 2d",),
        "2026-01-09T18:00:00": ("daily within 2d",),
    }


def test_oldest_within_a_span_is_kept() -> None:
    found = kept(Policy(within_daily=CalendarSpan(days=30)), DAYS)
    assert found["2026-01-01T06:00:00"] == ("oldest daily within 30d",)


@pytest.mark.parametrize("text", ["1y5m7d2h", "2h", "", "37h", "1y", "100000d"])
def test_spans_are_written_as_they_are_read(text: str) -> None:
    assert str(CalendarSpan.parse(text)) == text


@pytest.mark.parametrize("text", ["1w", "-1d", "3", "d", "1d1d", "1.5d", "1d x", "9999999d"])
def test_malformed_spans_are_refused(text: str) -> None:
    with pytest.raises(exception.InvalidError):
        CalendarSpan.parse(text)


# Zones and clocks


def test_days_are_those_of_the_zone() -> None:
    times = ["2026-06-01T21:30", "2026-06-01T22:30"]
    assert len(kept(Policy(daily=2), times, BERLIN)) == 2
    assert list(kept(Policy(daily=1), times, UTC)) == ["2026-06-01T22:30:00"]
    assert len(kept(Policy(daily=2), [*times, "2026-05-31T12:00"], UTC)) == 2


def test_autumn_has_two_hours_of_one_name() -> None:
    times = ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"]
    assert len(kept(Policy(hourly=3), times, BERLIN)) == 3
    assert len({at(time).astimezone(BERLIN).hour for time in times}) == 2


def test_spring_has_an_hour_less() -> None:
    times = ["2026-03-29T00:30", "2026-03-29T01:30", "2026-03-29T02:30"]
    assert len(kept(Policy(hourly=2), times, BERLIN)) == 2


@pytest.mark.parametrize(
    ("older", "newer", "count"),
    [
        ("2020-12-28T00:00", "2021-01-03T00:00", 1),
        ("2021-01-03T00:00", "2021-01-04T00:00", 2),
        ("2018-12-30T00:00", "2018-12-31T00:00", 2),
        ("2018-12-31T00:00", "2019-01-06T00:00", 1),
    ],
)
def test_weeks_are_those_of_iso_8601(older: str, newer: str, count: int) -> None:
    """Week 53 of 2020 goes on in 2021, and week 1 of 2019 begins in 2018."""
    found = verdicts(Policy(weekly=3), [older, newer, "2000-01-01T00:00"])
    assert sum("weekly" in one.reasons for one in found[:2]) == count


def test_stamps_of_the_future_are_not_the_newest() -> None:
    now = at("2026-01-10T19:00")
    times = [*DAYS, "2030-01-01T00:00"]
    found = kept(Policy(within=CalendarSpan(days=1)), times, now=now)
    assert list(found) == [
        "2030-01-01T00:00:00",
        "2026-01-10T18:00:00",
        "2026-01-10T06:00:00",
    ]


def test_a_clock_that_was_set_back_loses_nothing() -> None:
    found = kept(Policy(within=CalendarSpan(days=1)), DAYS, now=at("2020-01-01T00:00"))
    assert len(found) == len(DAYS)


# Exemptions and fields


def test_exempt_versions_stay_and_are_not_counted() -> None:
    candidates = [
        Candidate("locked", at("2026-01-03T00:00"), "locked"),
        Candidate("new", at("2026-01-02T00:00")),
        Candidate("old", at("2026-01-01T00:00")),
    ]
    found = retention.apply(Policy(last=1), candidates, UTC, FUTURE)
    assert [(one.id, one.reasons) for one in found] == [
        ("locked", ("locked",)),
        ("new", ("last",)),
        ("old", ()),
    ]


def test_policies_are_written_as_they_are_read() -> None:
    fields = {"last": 3, "daily": 14, "within": "3d", "within_weekly": "1m"}
    assert Policy.from_fields(fields).to_fields() == fields
    assert Policy.from_fields({}).is_empty


@pytest.mark.parametrize(
    "fields",
    [
        [],
        {"dayly": 1},
        {"daily": -2},
        {"daily": True},
        {"daily": "3"},
        {"within": 3},
        {"within": "1w"},
        {"last": 1 << 40},
    ],
)
def test_malformed_policies_are_refused(fields: object) -> None:
    with pytest.raises(exception.InvalidError):
        Policy.from_fields(fields)


# Properties

moments = st.datetimes(
    datetime.datetime(2024, 1, 1), datetime.datetime(2027, 12, 31), timezones=st.just(datetime.UTC)
)
counts = st.integers(-1, 4)
spans = st.builds(CalendarSpan, st.just(0), st.integers(0, 2), st.integers(0, 9))
policies = st.builds(Policy, counts, counts, counts, counts, counts, counts, spans, spans, spans)
zones = st.sampled_from([UTC, BERLIN, zoneinfo.ZoneInfo("Australia/Lord_Howe")])


@given(policies, st.lists(moments, max_size=25, unique=True), zones)
def test_order_does_not_matter_and_again_changes_nothing(
    policy: Policy, times: list[datetime.datetime], zone: zoneinfo.ZoneInfo
) -> None:
    found = verdicts(policy, times, zone)
    assert found == verdicts(policy, sorted(times), zone)
    left = [one.created_at for one in found if one.is_kept]
    assert all(one.is_kept for one in verdicts(policy, left, zone))


@given(policies, st.lists(moments, min_size=1, max_size=25, unique=True), zones)
def test_the_newest_always_stays(
    policy: Policy, times: list[datetime.datetime], zone: zoneinfo.ZoneInfo
) -> None:
    assert verdicts(policy, times, zone)[0].is_kept


@given(policies, st.lists(moments, min_size=2, max_size=20, unique=True))
def test_counters_never_keep_more_than_they_say(
    policy: Policy, times: list[datetime.datetime]
) -> None:
    found = verdicts(policy, times)
    for counter in COUNTERS:
        count = getattr(policy, counter)
        users = [one for one in found if {counter, f"oldest {counter}"} & set(one.reasons)]
        assert count == ALL or len(users) <= count


@given(st.integers(1, 5), st.lists(moments, min_size=3, max_size=20, unique=True))
def test_no_new_version_removes_a_younger_one(count: int, times: list[datetime.datetime]) -> None:
    """A version that goes because one more came is older than all that the counter keeps."""
    policy = Policy(daily=count)
    before = {one.id for one in verdicts(policy, sorted(times)[:-1]) if one.is_kept}
    after = verdicts(policy, times)
    gone = [one.created_at for one in after if one.id in before and not one.is_kept]
    same_day = {max(times).date()}
    staying = [one.created_at for one in after if one.is_kept]
    for moment in gone:
        assert moment.date() in same_day or all(moment < one for one in staying[: count - 1])
