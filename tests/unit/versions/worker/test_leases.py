"""Leases that are renewed, lost, and over."""

import pathlib

import pytest

from acstor import exception
from acstor.versions.database.opening import stores_of
from acstor.versions.database.tasks import Lease, TaskStore
from acstor.versions.worker.leases import Leases, TaskControl
from testbed.doubles.faulty_calls import CallFault, FaultyCalls
from testbed.doubles.faulty_database import SetClock
from tests.compliance.databases import DATABASES, new_clock
from tests.compliance.test_task_store import new_task


class Seconds:
    """Monotonic clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> SetClock:
    return new_clock()


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def tasks(tmp_path: pathlib.Path, clock: SetClock) -> TaskStore:
    return stores_of(DATABASES["memory"](tmp_path, clock)).tasks


@pytest.fixture
def lease(tasks: TaskStore) -> Lease:
    tasks.create(new_task(1))
    found = tasks.take("w1", 30)
    assert found is not None
    return found[1]


def test_lease_is_over_unless_it_is_renewed(
    tasks: TaskStore, lease: Lease, seconds: Seconds
) -> None:
    leases = Leases(tasks, 30, seconds)
    control = leases.add(lease, seconds())
    seconds.now += 20
    leases.renew_all()
    seconds.now += 20
    assert not control.is_over
    seconds.now += 10
    assert control.is_over


def test_task_that_was_taken_anew_is_over(
    tasks: TaskStore, lease: Lease, seconds: Seconds, clock: SetClock
) -> None:
    control = TaskControl(lease, 30, seconds(), seconds)
    clock.advance(minutes=1)
    assert tasks.take("w2", 30) is not None
    control.renew(tasks)
    assert control.is_over


def test_database_that_is_away_ends_it_in_time_only(
    tasks: TaskStore, lease: Lease, seconds: Seconds
) -> None:
    away = FaultyCalls(tasks, CallFault("renew", lambda: exception.UnavailableError("away")))
    control = TaskControl(lease, 30, seconds(), seconds)
    seconds.now += 10
    control.renew(away)
    assert not control.is_over
    seconds.now += 20
    assert control.is_over


def test_cancelled_task_is_heard_of(tasks: TaskStore, lease: Lease, seconds: Seconds) -> None:
    leases = Leases(tasks, 30, seconds)
    control = leases.add(lease, seconds())
    tasks.cancel(lease.task_id)
    heard = [control.is_cancelled]
    leases.renew_all()
    heard.append(control.is_cancelled)
    assert heard == [False, True]
    control.pause(600)  # it does not wait


def test_stopped_work_does_not_wait(tasks: TaskStore, lease: Lease, seconds: Seconds) -> None:
    leases = Leases(tasks, 30, seconds)
    control = leases.add(lease, seconds())
    leases.stop_work()
    control.pause(600)
    assert control.is_over


def test_removed_lease_is_not_renewed(tasks: TaskStore, lease: Lease, seconds: Seconds) -> None:
    leases = Leases(tasks, 30, seconds)
    control = leases.add(lease, seconds())
    leases.remove(control)
    seconds.now += 20
    leases.renew_all()
    seconds.now += 10
    assert control.is_over
