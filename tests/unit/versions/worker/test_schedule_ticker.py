"""Slots of schedules become tasks, each once."""

import datetime
import pathlib
import uuid

import pytest

from acstor.versions.database.opening import Stores, stores_of
from acstor.versions.database.schedule_store import NewSchedule, TargetKind
from acstor.versions.database.tasks import NewTask, TaskKind, TaskQuery
from acstor.versions.lifecycle.own_tasks import OwnTasks
from acstor.versions.retention import Policy
from acstor.versions.schedules import Every, Schedule
from acstor.versions.worker.schedule_ticker import ScheduleTicker
from testbed.doubles.faulty_database import SetClock
from tests.compliance.databases import DATABASES, new_clock

SCHEDULE, SERVER = (str(uuid.UUID(int=number)) for number in (1, 70))
DAY = datetime.timedelta(days=1)


@pytest.fixture
def clock() -> SetClock:
    return new_clock()


@pytest.fixture
def stores(tmp_path: pathlib.Path, clock: SetClock) -> Stores:
    found = stores_of(DATABASES["memory"](tmp_path, clock))
    found.schedules.create(
        NewSchedule(
            Schedule(SCHEDULE, Every.DAY, "02:30", window_minutes=0),
            "p1",
            "nightly",
            Policy(daily=14),
        )
    )
    found.schedules.add_target(SCHEDULE, TargetKind.SERVER, SERVER)
    return found


@pytest.fixture
def ticker(stores: Stores, clock: SetClock) -> ScheduleTicker:
    return ScheduleTicker(stores.schedules, OwnTasks(stores.tasks, 0), lambda: clock.now)


def test_slot_runs_when_it_is_due(ticker: ScheduleTicker, stores: Stores, clock: SetClock) -> None:
    assert ticker.tick() == 0
    clock.advance(hours=15)
    assert ticker.tick() == 1
    assert ticker.tick() == 0
    (task,) = stores.tasks.page(TaskQuery())
    assert (task.kind, task.resource) == (TaskKind.CREATE, f"server/{SERVER}")
    assert task.parameters["slot"] == "2026-11-27"
    assert task.parameters["keep"] == {"daily": 14}
    assert task.parameters["trigger"] == "schedule"


def test_missed_slots_are_made_up_for_once(
    ticker: ScheduleTicker, stores: Stores, clock: SetClock
) -> None:
    clock.advance(days=9)
    assert ticker.tick() == 1
    (task,) = stores.tasks.page(TaskQuery())
    assert task.parameters["slot"] == "2026-12-05"


def test_clock_set_back_runs_nothing_twice(
    ticker: ScheduleTicker, stores: Stores, clock: SetClock
) -> None:
    clock.advance(days=3)
    assert ticker.tick() == 1
    clock.advance(days=-2)
    assert ticker.tick() == 0
    clock.advance(days=2)
    assert ticker.tick() == 0
    clock.advance(days=1)
    assert ticker.tick() == 1


def test_two_tickers_start_a_slot_once(stores: Stores, clock: SetClock) -> None:
    both = [
        ScheduleTicker(stores.schedules, OwnTasks(stores.tasks, 0), lambda: clock.now)
        for _ in range(2)
    ]
    clock.advance(days=1)
    assert sorted(one.tick() for one in both) == [0, 1]


def test_tick_that_is_stopped_goes_on_later(ticker: ScheduleTicker, clock: SetClock) -> None:
    clock.advance(days=1)
    assert ticker.tick(lambda: True) == 0
    assert ticker.tick() == 1


def test_flood_of_a_project_waits_and_no_other_does(stores: Stores, clock: SetClock) -> None:
    other = str(uuid.UUID(int=2))
    fields = Schedule(other, Every.DAY, "02:30", window_minutes=0), "p2", "nightly", Policy()
    stores.schedules.create(NewSchedule(*fields))
    stores.schedules.add_target(other, TargetKind.SERVER, str(uuid.UUID(int=71)))
    for number in range(100, 104):
        stores.schedules.add_target(SCHEDULE, TargetKind.SERVER, str(uuid.UUID(int=number)))
    ticker = ScheduleTicker(stores.schedules, OwnTasks(stores.tasks, 2), lambda: clock.now)
    clock.advance(days=1)
    assert [ticker.tick(), ticker.tick()] == [3, 0]
    queued = stores.tasks.page(TaskQuery())
    assert sorted(task.project for task in queued) == ["p1", "p1", "p2"]
    stores.tasks.cancel(next(task.id for task in queued if task.project == "p1"))
    assert ticker.tick() == 1  # its slot was still due


def test_tasks_of_users_keep_no_schedule_waiting(stores: Stores, clock: SetClock) -> None:
    for number in range(9):
        stores.tasks.create(
            NewTask(str(number), "p1", TaskKind.RESTORE, f"volume/{number}", {}, user="u")
        )
    ticker = ScheduleTicker(stores.schedules, OwnTasks(stores.tasks, 1), lambda: clock.now)
    clock.advance(days=1)
    assert ticker.tick() == 1


def test_thousand_targets_are_spread_over_the_window(stores: Stores, clock: SetClock) -> None:
    stored = stores.schedules.get(SCHEDULE)
    stores.schedules.replace(
        SCHEDULE,
        stored.revision,
        NewSchedule(Schedule(SCHEDULE, Every.DAY, "02:30"), "p1", "nightly", Policy()),
    )
    for number in range(100, 200):
        stores.schedules.add_target(SCHEDULE, TargetKind.SERVER, str(uuid.UUID(int=number)))
    ticker = ScheduleTicker(stores.schedules, OwnTasks(stores.tasks, 0), lambda: clock.now)
    clock.advance(hours=14, minutes=30)
    started = []
    for _ in range(6):
        clock.advance(minutes=10)
        started.append(ticker.tick())
    assert sum(started) == 101
    assert min(started) > 0
