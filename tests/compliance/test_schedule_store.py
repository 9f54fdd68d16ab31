"""One suite for schedules, and for the small tables of projects."""

import concurrent.futures
import datetime
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.versions import schedules
from acstor.versions.database.engine import to_ms
from acstor.versions.database.opening import Stores, stores_of
from acstor.versions.database.project_settings import ProjectDefaults
from acstor.versions.database.schedule_store import (
    NewSchedule,
    ScheduleQuery,
    TargetKind,
    WantedConsistency,
)
from acstor.versions.database.tasks import NewTask, Position, TaskKind, TaskQuery
from acstor.versions.retention import Policy
from acstor.versions.schedules import Every, Run, Schedule
from testbed.doubles.faulty_database import FaultyDatabase, SetClock
from tests.compliance.databases import DATABASES, new_clock


def an_id(number: int) -> str:
    return str(uuid.UUID(int=number))


def new_schedule(number: int, **fields: Any) -> NewSchedule:
    known = {
        "schedule": Schedule(an_id(number), Every.DAY, "02:30", timezone="Europe/Berlin"),
        "project": "p1",
        "name": f"nightly {number}",
        "keep": Policy(last=3, daily=14),
    }
    return NewSchedule(**{**known, **fields})


def run_of(stores: Stores, number: int, target: str, clock: SetClock) -> Run:
    schedule = stores.schedules.get(an_id(number)).schedule
    run = schedules.due_run(schedule, target, clock.now, clock.now - datetime.timedelta(days=9))
    assert run is not None
    return run


def task(number: int) -> NewTask:
    return NewTask(an_id(number), "p1", TaskKind.CREATE, f"server/{number}", {})


@pytest.fixture
def clock() -> SetClock:
    return new_clock()


@pytest.fixture(params=sorted(DATABASES))
def database(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, clock: SetClock
) -> Iterator[FaultyDatabase]:
    opened = DATABASES[request.param](tmp_path, clock)
    yield opened
    opened.close()


@pytest.fixture
def stores(database: FaultyDatabase) -> Stores:
    return stores_of(database)


def test_schedule_is_as_it_was_made(stores: Stores, clock: SetClock) -> None:
    new = new_schedule(1, consistency=WantedConsistency.FS)
    made = stores.schedules.create(new)
    assert (made.schedule, made.keep, made.name) == (new.schedule, new.keep, new.name)
    assert made.consistency is WantedConsistency.FS
    assert (made.enabled_at, made.revision, made.is_enabled) == (clock.now, 0, True)
    assert stores.schedules.create(new) == stores.schedules.get(made.id, "p1") == made
    assert stores.schedules.find_name("p1", new.name) == made
    assert stores.schedules.find_name("p2", new.name) is None
    with pytest.raises(exception.NotFoundError):
        stores.schedules.get(made.id, "p2")


def test_names_are_unique_in_a_project(stores: Stores) -> None:
    stores.schedules.create(new_schedule(1, name="a"))
    stores.schedules.create(new_schedule(2, name="a", project="p2"))
    stores.schedules.create(new_schedule(4, name="A"))
    with pytest.raises(exception.ConflictError, match="another schedule 'a'"):
        stores.schedules.create(new_schedule(3, name="a"))
    third = stores.schedules.create(new_schedule(3, name="b"))
    with pytest.raises(exception.ConflictError, match="another schedule 'a'"):
        stores.schedules.replace(third.id, third.revision, new_schedule(3, name="a"))
    assert stores.schedules.count("p1") == 3
    with pytest.raises(exception.InvalidError, match="name"):
        stores.schedules.create(new_schedule(5, name=""))


def test_changed_times_count_from_the_change(stores: Stores, clock: SetClock) -> None:
    made = stores.schedules.create(new_schedule(1))
    clock.advance(hours=1)
    renamed = stores.schedules.replace(made.id, 0, new_schedule(1, name="other"))
    assert (renamed.name, renamed.revision) == ("other", 1)
    assert renamed.enabled_at == made.enabled_at
    times = Schedule(an_id(1), Every.HOUR, window_minutes=5)
    changed = stores.schedules.replace(made.id, 1, new_schedule(1, schedule=times))
    assert changed.enabled_at == clock.now
    clock.advance(hours=1)
    off = stores.schedules.replace(made.id, 2, new_schedule(1, schedule=times, is_enabled=False))
    assert not off.is_enabled
    clock.advance(hours=1)
    on = stores.schedules.replace(made.id, 3, new_schedule(1, schedule=times))
    assert on.enabled_at == clock.now


def test_change_of_what_somebody_changed_is_refused(stores: Stores) -> None:
    made = stores.schedules.create(new_schedule(1))
    stores.schedules.replace(made.id, 0, new_schedule(1, name="a"))
    with pytest.raises(exception.ConflictError, match="meanwhile"):
        stores.schedules.replace(made.id, 0, new_schedule(1, name="b"))
    with pytest.raises(exception.NotFoundError):
        stores.schedules.replace(an_id(9), 0, new_schedule(9))


def test_pages_of_schedules(stores: Stores, clock: SetClock) -> None:
    for number in range(1, 5):
        stores.schedules.create(new_schedule(number, project=f"p{number % 2}"))
        clock.advance(seconds=1)
    page = stores.schedules.page(ScheduleQuery(limit=2))
    assert [one.id for one in page] == [an_id(1), an_id(2)]
    after = Position(to_ms(page[-1].created_at), page[-1].id)
    assert [one.id for one in stores.schedules.page(ScheduleQuery(after=after))] == [
        an_id(3),
        an_id(4),
    ]
    assert [one.id for one in stores.schedules.page(ScheduleQuery("p0"))] == [an_id(2), an_id(4)]
    stores.schedules.add_target(an_id(3), TargetKind.SERVER, an_id(7))
    of_target = stores.schedules.page(ScheduleQuery(target=an_id(7)))
    assert [one.id for one in of_target] == [an_id(3)]


def test_targets_are_added_once_and_removed(stores: Stores, clock: SetClock) -> None:
    stores.schedules.create(new_schedule(1))
    added = stores.schedules.add_target(an_id(1), TargetKind.SERVER, an_id(7))
    assert (added.added_at, added.last_slot) == (clock.now, None)
    clock.advance(hours=1)
    assert stores.schedules.add_target(an_id(1), TargetKind.SERVER, an_id(7)) == added
    stores.schedules.add_target(an_id(1), TargetKind.VOLUME, an_id(8))
    assert stores.schedules.targets(an_id(1), None, 1) == [added]
    rest = stores.schedules.targets(an_id(1), added.id, 10)
    assert [one.kind for one in rest] == [TargetKind.VOLUME]
    stores.schedules.remove_target(an_id(1), an_id(7))
    stores.schedules.remove_target(an_id(1), an_id(7))
    assert len(stores.schedules.targets(an_id(1), None, 10)) == 1
    with pytest.raises(exception.NotFoundError):
        stores.schedules.add_target(an_id(9), TargetKind.SERVER, an_id(7))


def test_deleted_schedule_has_no_targets(stores: Stores) -> None:
    stores.schedules.create(new_schedule(1))
    stores.schedules.add_target(an_id(1), TargetKind.SERVER, an_id(7))
    stores.schedules.delete(an_id(1))
    stores.schedules.delete(an_id(1))
    assert stores.schedules.enabled_targets(None, 10) == []
    stores.schedules.create(new_schedule(1))
    assert stores.schedules.targets(an_id(1), None, 10) == []


def test_targets_of_all_that_is_switched_on(stores: Stores, clock: SetClock) -> None:
    for number, is_enabled in ((1, True), (2, False), (3, True)):
        stores.schedules.create(new_schedule(number, is_enabled=is_enabled))
        clock.advance(seconds=1)
        for target in (7, 8):
            stores.schedules.add_target(an_id(number), TargetKind.SERVER, an_id(target))
    found = []
    after = None
    while page := stores.schedules.enabled_targets(after, 3):
        found += [(one.stored.id, one.target.id) for one in page]
        after = found[-1]
    assert found == [(an_id(one), an_id(two)) for one in (1, 3) for two in (7, 8)]
    first = stores.schedules.enabled_targets(None, 1)[0]
    assert first.since == first.target.added_at > first.stored.enabled_at


def test_run_starts_one_task(stores: Stores, clock: SetClock) -> None:
    stores.schedules.create(new_schedule(1))
    stores.schedules.add_target(an_id(1), TargetKind.SERVER, an_id(7))
    run = run_of(stores, 1, an_id(7), clock)
    assert stores.schedules.start_run(run, task(20))
    assert not stores.schedules.start_run(run, task(21))
    assert [one.id for one in stores.tasks.page(TaskQuery())] == [an_id(20)]
    (target,) = stores.schedules.targets(an_id(1), None, 10)
    assert target.last_slot == run.slot.at


def test_clock_that_is_set_back_runs_no_slot_twice(stores: Stores, clock: SetClock) -> None:
    stores.schedules.create(new_schedule(1))
    stores.schedules.add_target(an_id(1), TargetKind.SERVER, an_id(7))
    later = run_of(stores, 1, an_id(7), clock)
    clock.advance(days=-1)
    earlier = run_of(stores, 1, an_id(7), clock)
    assert stores.schedules.start_run(later, task(20))
    assert stores.schedules.start_run(earlier, task(21))
    (target,) = stores.schedules.targets(an_id(1), None, 10)
    assert target.last_slot == later.slot.at
    clock.advance(days=40)
    stores.schedules.purge_runs()
    (target,) = stores.schedules.targets(an_id(1), None, 10)
    assert target.last_slot == later.slot.at


def test_two_schedulers_start_a_slot_once(tmp_path: pathlib.Path) -> None:
    clock = new_clock()
    both = [stores_of(DATABASES["file"](tmp_path, clock)) for _ in range(2)]
    both[0].schedules.create(new_schedule(1))
    both[0].schedules.add_target(an_id(1), TargetKind.SERVER, an_id(7))
    run = run_of(both[0], 1, an_id(7), clock)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        started = list(
            pool.map(lambda one: both[one].schedules.start_run(run, task(20 + one)), range(2))
        )
    assert sorted(started) == [False, True]
    assert len(both[0].tasks.page(TaskQuery())) == 1


# Small tables


def test_repeated_request_gets_the_first_id(stores: Stores, clock: SetClock) -> None:
    first = stores.keys.reserve("p1", "k", b"POST /v1/versions {}", an_id(1))
    assert first == stores.keys.reserve("p1", "k", b"POST /v1/versions {}", an_id(2)) == an_id(1)
    assert stores.keys.reserve("p2", "k", b"POST /v1/versions {}", an_id(3)) == an_id(3)
    assert stores.keys.find("p1", "k", b"POST /v1/versions {}") == an_id(1)
    assert stores.keys.find("p1", "other", b"POST /v1/versions {}") is None
    with pytest.raises(exception.ConflictError, match="another request"):
        stores.keys.find("p1", "k", b"POST /v1/schedules {}")
    with pytest.raises(exception.ConflictError, match="another request"):
        stores.keys.reserve("p1", "k", b"POST /v1/schedules {}", an_id(4))
    with pytest.raises(exception.InvalidError):
        stores.keys.reserve("p1", "", b"", an_id(4))
    clock.advance(hours=25)
    assert stores.keys.reserve("p1", "k", b"POST /v1/schedules {}", an_id(4)) == an_id(4)
    stores.keys.purge()
    assert stores.keys.reserve("p2", "k", b"other", an_id(5)) == an_id(5)


def test_defaults_are_nothing_unless_asked_for(stores: Stores) -> None:
    assert stores.defaults.get("p1") == ProjectDefaults()
    wanted = ProjectDefaults(frozenset({Trigger.SHUTDOWN, Trigger.RESIZE}), Policy(daily=14))
    for defaults in (wanted, ProjectDefaults(frozenset({Trigger.DELETE})), wanted):
        stores.defaults.put("p1", defaults)
        assert stores.defaults.get("p1") == defaults
    with pytest.raises(exception.InvalidError, match="manual"):
        stores.defaults.put("p1", ProjectDefaults(frozenset({Trigger.MANUAL})))


def test_version_has_one_image_a_project(stores: Stores) -> None:
    images = stores.boot_images
    assert images.find(an_id(1), "p1") is None
    assert images.reserve(an_id(1), "p1", an_id(10)) == an_id(10)
    assert images.reserve(an_id(1), "p1", an_id(11)) == images.find(an_id(1), "p1") == an_id(10)
    assert images.reserve(an_id(1), "p2", an_id(12)) == an_id(12)
    assert images.find_version(an_id(10)) == (an_id(1), "p1")
    images.remove(an_id(1), "p1", an_id(11))
    assert images.find(an_id(1), "p1") == an_id(10)
    images.remove(an_id(1), "p1", an_id(10))
    assert images.find_version(an_id(10)) is None
