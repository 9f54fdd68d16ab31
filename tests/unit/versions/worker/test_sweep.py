"""Sweeping what is not needed any more."""

import concurrent.futures
import pathlib
import uuid

import pytest

from acstor import exception
from acstor.versions.database.tasks import TaskKind
from acstor.versions.worker.sweep import BackgroundSweep, Sweep
from testbed.doubles.faulty_calls import CallFault, FaultyCalls
from tests.unit.repository.versions.records import committed, version_id
from tests.unit.versions.flows.cloud import TASK, Cloud, database_backend

WAIT = 60.0


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return Cloud(tmp_path, database_backend())


def sweep_of(cloud: Cloud) -> Sweep:
    return Sweep(cloud.stores, cloud.versions, cloud.books, cloud.services)


def test_rows_of_tasks_that_go_on_stay(cloud: Cloud) -> None:
    cloud.ask(TaskKind.DELETE, "version/x", version_id=version_id(1))
    cloud.books.open(TASK, 1, "delete")
    cloud.books.open(str(uuid.UUID(int=5)), 1, "of no task")
    sweep_of(cloud).purge()
    assert cloud.books_left() == 2
    cloud.stores.tasks.cancel(TASK)
    sweep_of(cloud).purge()
    assert cloud.books_left() == 0


def test_index_that_is_behind_is_put_right(cloud: Cloud) -> None:
    cloud.versions.publish(version_id(1), committed())
    sweep_of(cloud).compare_index()
    assert cloud.indexed_ids() == {version_id(1)}


def until_idle(background: BackgroundSweep) -> None:
    assert background._running is not None
    concurrent.futures.wait([background._running], WAIT)


def test_background_sweep_tells_of_its_failure_until_it_is_over(cloud: Cloud) -> None:
    fault = CallFault("purge", lambda: exception.UnavailableError("the database is away"))
    sweep = FaultyCalls(sweep_of(cloud), fault)
    background = BackgroundSweep(10.0, 1000.0, 100_000.0)
    for now in (0.0, 1.0):  # the purge, then the index
        background.begin_if_due(sweep, now)  # type: ignore[arg-type]
        until_idle(background)
        if now == 0.0:
            continue
        assert background.problem == "the database is away"
    background.begin_if_due(sweep, 20.0)  # type: ignore[arg-type]
    until_idle(background)
    assert background.problem is None
    background.stop()
