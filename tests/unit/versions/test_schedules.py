"""Slots of schedules: each distance, clocks that are changed, missed runs, two schedulers."""

import datetime
import itertools
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.versions import local_times, preview, schedules
from acstor.versions.retention import Candidate, Policy
from acstor.versions.schedules import Every, Schedule, Slot

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
LORD_HOWE = "Australia/Lord_Howe"
LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def at(text: str, zone: datetime.tzinfo = datetime.UTC) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zone)


def nightly(**fields: object) -> Schedule:
    return Schedule(
        "nightly",
        Every.DAY,
        **{"at": "02:30", "timezone": "Europe/Berlin", "window_minutes": 0, **fields},  # type: ignore[arg-type]
    )


def first(schedule: Schedule, moment: datetime.datetime, count: int) -> list[Slot]:
    return list(itertools.islice(schedules.slots_after(schedule, moment), count))


def test_daily_slots_are_at_the_local_time() -> None:
    found = first(nightly(), at("2026-01-01T12:00"), 2)
    assert found == [
        Slot(at("2026-01-02T01:30"), "2026-01-02"),
        Slot(at("2026-01-03T01:30"), "2026-01-03"),
    ]


def test_weekly_slots_are_on_their_day() -> None:
    found = first(_weekly(7), at("2026-01-01T12:00"), 2)
    assert [slot.key for slot in found] == ["2026-01-04", "2026-01-11"]


def _weekly(day: int) -> Schedule:
    return Schedule("weekly", Every.WEEK, "02:30", day, "Europe/Berlin", 0)


def test_monthly_slots_are_on_the_last_day_of_shorter_months() -> None:
    schedule = Schedule("monthly", Every.MONTH, "00:00", 31, "UTC", 0)
    found = first(schedule, at("2024-01-01T00:00"), 4)
    assert [slot.key for slot in found] == ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"]


def test_hourly_slots_are_at_the_local_minute() -> None:
    schedule = Schedule("hourly", Every.HOUR, "00:15", timezone="Asia/Kolkata", window_minutes=0)
    found = first(schedule, at("2026-01-01T00:00"), 2)
    assert [slot.key for slot in found] == ["2026-01-01T00:45Z", "2026-01-01T01:45Z"]


# Clocks set forward and back by law


def test_a_time_that_does_not_come_is_at_the_end_of_the_gap() -> None:
    slot = first(nightly(), at("2026-03-28T12:00"), 1)[0]
    assert slot == Slot(at("2026-03-29T01:00"), "2026-03-29")
    assert slot.at.astimezone(BERLIN).hour == 3


def test_a_time_that_comes_twice_is_one_slot() -> None:
    found = first(nightly(), at("2026-10-24T12:00"), 2)
    assert found == [
        Slot(at("2026-10-25T00:30"), "2026-10-25"),
        Slot(at("2026-10-26T01:30"), "2026-10-26"),
    ]


def test_hourly_slots_follow_the_hours_that_pass() -> None:
    schedule = Schedule("hourly", Every.HOUR, "00:30", None, "Europe/Berlin", 0)
    autumn = first(schedule, at("2026-10-25T00:00"), 3)
    assert [slot.at.astimezone(BERLIN).hour for slot in autumn] == [2, 2, 3]
    assert len({slot.key for slot in autumn}) == 3
    spring = first(schedule, at("2026-03-29T00:00"), 2)
    assert [slot.at.astimezone(BERLIN).hour for slot in spring] == [1, 3]


def test_a_gap_of_a_whole_day_has_its_slot_at_its_end() -> None:
    """Samoa had no 30 December 2011."""
    zone = local_times.open_zone("Pacific/Apia")
    found = local_times.first_instant(datetime.datetime(2011, 12, 30, 2, 30), zone)
    assert found == at("2011-12-31T00:00", zone)


@given(
    st.datetimes(datetime.datetime(2020, 1, 1), datetime.datetime(2029, 1, 1)),
    st.sampled_from(["Europe/Berlin", LORD_HOWE, "America/St_Johns", "UTC", "Africa/Casablanca"]),
)
def test_first_instant_shows_the_time_or_ends_a_gap(local: datetime.datetime, name: str) -> None:
    zone = local_times.open_zone(name)
    found = local_times.first_instant(local, zone)
    shown = found.astimezone(zone)
    if shown.replace(tzinfo=None, fold=0) == local:
        assert shown.fold == 0
    else:
        before = (found - datetime.timedelta(seconds=1)).astimezone(zone)
        assert before.utcoffset() != shown.utcoffset()
        assert before.replace(tzinfo=None) < local < shown.replace(tzinfo=None)


# Due runs


def test_latest_missed_slot_alone_is_made_up_for() -> None:
    run = schedules.due_run(nightly(), "server", at("2026-01-10T12:00"), LONG_AGO)
    assert run is not None
    assert run.key == ("nightly", "server", "2026-01-10")
    after = schedules.due_run(nightly(), "server", at("2026-01-10T12:00"), LONG_AGO, run.slot.at)
    assert after is None


def test_nothing_is_made_up_for_from_before_the_schedule() -> None:
    since = at("2026-01-10T11:00")
    assert schedules.due_run(nightly(), "server", at("2026-01-10T12:00"), since) is None
    assert schedules.due_run(nightly(), "server", at("2026-01-11T01:30"), since) is not None


def test_a_clock_that_was_set_back_runs_no_slot_twice() -> None:
    last = at("2026-01-10T01:30")
    for now in ("2026-01-10T12:00", "2026-01-09T12:00", "2025-01-01T00:00"):
        assert schedules.due_run(nightly(), "server", at(now), LONG_AGO, last) is None
    assert schedules.due_run(nightly(), "server", at("2026-01-11T02:00"), LONG_AGO, last)


def test_two_schedulers_find_the_same_run() -> None:
    schedule = nightly(window_minutes=60)
    found = {
        schedules.due_run(schedule, "server", at("2026-01-10T02:30") + wait, LONG_AGO)
        for wait in (datetime.timedelta(), datetime.timedelta(seconds=7))
    }
    assert len(found) == 1


def test_targets_are_spread_over_the_window() -> None:
    schedule = nightly(window_minutes=60)
    runs = [
        schedules.next_runs(schedule, str(one), at("2026-01-01T12:00"), 1)[0] for one in range(200)
    ]
    waits = [(run.starts_at - run.slot.at).total_seconds() for run in runs]
    assert all(0 <= wait < 3600 for wait in waits)
    assert sum(wait < 1800 for wait in waits) in range(70, 131)


def test_a_run_is_due_at_its_place_in_the_window() -> None:
    schedule = nightly(window_minutes=60)
    since = at("2026-01-01T12:00")
    run = schedules.next_runs(schedule, "server", since, 1)[0]
    second = datetime.timedelta(seconds=1)
    assert run.starts_at > run.slot.at
    assert schedules.due_run(schedule, "server", run.starts_at - second, since) is None
    assert schedules.due_run(schedule, "server", run.starts_at, since) == run
    assert schedules.next_runs(schedule, "server", run.slot.at, 1) == [run]


MALFORMED: dict[str, tuple[object, ...]] = {
    "at": ("24:00", "2:30", None),
    "timezone": ("Mars/Olympus", "../etc/passwd", "", None),
    "window_minutes": (-1, 1441, "60"),
    "every": ("year", None, [], "week", "month"),
    "on": (1, "monday"),
}
"""By field of a daily schedule what it cannot be."""


@pytest.mark.parametrize(
    "fields",
    [
        *({name: value} for name, values in MALFORMED.items() for value in values),
        {"every": "week", "on": 8},
        {"every": "week", "on": True},
        {"every": "month", "on": 0},
        {"every": "hour", "window_minutes": 60},
    ],
)
def test_malformed_schedules_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(exception.InvalidError):
        Schedule.from_fields("id", {**nightly().to_fields(), **fields})
    with pytest.raises(exception.InvalidError):
        Schedule.from_fields("id", [])


def test_schedules_are_written_as_they_are_read() -> None:
    for schedule in (nightly(), _weekly(3)):
        assert Schedule.from_fields(schedule.id, schedule.to_fields()) == schedule


every: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(
        Schedule,
        st.just("s"),
        st.just(Every.HOUR),
        st.just("00:45"),
        st.none(),
        st.just(LORD_HOWE),
        st.just(30),
    ),
    st.builds(
        Schedule,
        st.just("s"),
        st.just(Every.DAY),
        st.just("02:15"),
        st.none(),
        st.just("Europe/Berlin"),
        st.just(90),
    ),
    st.builds(
        Schedule,
        st.just("s"),
        st.just(Every.WEEK),
        st.just("23:59"),
        st.integers(1, 7),
        st.just("America/St_Johns"),
        st.just(5),
    ),
    st.builds(
        Schedule,
        st.just("s"),
        st.just(Every.MONTH),
        st.just("00:00"),
        st.integers(1, 31),
        st.just("UTC"),
        st.just(0),
    ),
)
instants = st.datetimes(
    datetime.datetime(2025, 1, 1), datetime.datetime(2027, 1, 1), timezones=st.just(datetime.UTC)
)


@given(every, instants)
def test_slots_ascend_and_meet_where_they_are_asked_for(
    schedule: Schedule, moment: datetime.datetime
) -> None:
    later = first(schedule, moment, 30)
    assert all(one.at < following.at for one, following in itertools.pairwise(later))
    assert len({slot.key for slot in later}) == 30
    earlier = list(itertools.islice(schedules.slots_until(schedule, later[-1].at), 30))
    assert earlier[::-1] == later


@given(every, st.lists(instants, min_size=1, max_size=8))
def test_no_slot_runs_twice_whatever_the_clock_says(
    schedule: Schedule, clock: list[datetime.datetime]
) -> None:
    last, seen = None, set()
    for now in clock:
        run = schedules.due_run(schedule, "target", now, LONG_AGO, last)
        if run is not None:
            assert run.key not in seen
            assert run.starts_at <= now
            seen.add(run.key)
            last = run.slot.at


# Preview


def test_preview_says_why_each_version_stays_and_when_it_goes() -> None:
    taken = [Candidate(f"v{day}", at(f"2026-01-0{day}T02:00")) for day in (1, 2, 3)]
    found = preview.preview(nightly(), "server", Policy(daily=3), taken, at("2026-01-03T12:00"), 4)
    assert [run.slot.key for run in found.runs] == [f"2026-01-0{day}" for day in (4, 5, 6, 7)]
    fates = {fate.verdict.id: fate for fate in found.fates}
    assert fates["v3"].verdict.reasons == ("daily",)
    gone = {
        name: fate.removed_after and fate.removed_after.slot.key for name, fate in fates.items()
    }
    assert gone == {"v1": "2026-01-04", "v2": "2026-01-05", "v3": "2026-01-06"}


def test_preview_shows_what_goes_now() -> None:
    taken = [Candidate(f"v{day}", at(f"2026-01-0{day}T02:00")) for day in (1, 2)]
    found = preview.preview(nightly(), "server", Policy(last=1), taken, at("2026-01-03T12:00"), 0)
    assert [(fate.verdict.is_kept, fate.removed_after) for fate in found.fates] == [
        (True, None),
        (False, None),
    ]
