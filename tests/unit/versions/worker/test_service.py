"""The worker's life: it takes tasks, leads, stops, and goes on after what is away."""

import datetime
import pathlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg
from taskflow.persistence.backends.impl_memory import MemoryBackend

from acstor import exception
from acstor.conf import default, worker
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository
from acstor.versions.database.opening import Stores, stores_of
from acstor.versions.database.schedule_store import NewSchedule, TargetKind
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Task, TaskKind, TaskQuery
from acstor.versions.flows.work import Interrupted, Work
from acstor.versions.lifecycle.own_tasks import OwnTasks
from acstor.versions.retention import Policy
from acstor.versions.schedules import Every, Schedule
from acstor.versions.services.image_store import MadeImage
from acstor.versions.services.services import Services
from acstor.versions.worker.flow_books import FlowBooks
from acstor.versions.worker.metrics import WorkerMetrics
from acstor.versions.worker.schedule_ticker import ScheduleTicker
from acstor.versions.worker.service import WorkerService
from testbed.doubles.faulty_database import SetClock
from testbed.doubles.memory_captures import MemoryCaptures
from testbed.doubles.memory_compute import MemoryCompute
from testbed.doubles.memory_host_preloads import MemoryHostPreloads
from testbed.doubles.memory_image_store import MemoryImages, MemoryImageStore
from testbed.doubles.memory_restores import MemoryRestores
from tests.compliance.databases import DATABASES, new_clock
from tests.compliance.test_task_store import new_task
from tests.unit.repository.images import CHUNK_SIZE
from tests.unit.repository.versions.captures import store_of

WAIT = 60.0
"""Seconds after which a test gives up; nothing waits for them."""


class Leader:
    def __init__(self) -> None:
        self.is_leader = False
        self.problem: str | None = None
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self, timeout: float) -> None:
        self.calls.append("stop")


class Runner:
    """Runner that does what a test says."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.act: Callable[[Work], Task] = self.finish
        self.tasks: list[str] = []

    def run(self, work: Work) -> Task:
        self.tasks.append(work.task.id)
        self.begun.set()
        try:
            return self.act(work)
        finally:
            self.ended.set()

    @staticmethod
    def finish(work: Work) -> Task:
        from acstor.versions.database.task_states import TaskEvent

        return work.stores.tasks.finish(work.lease, TaskEvent.FINISH, {})


class House:
    """A worker with all that is around it."""

    def __init__(self, folder: pathlib.Path, clock: SetClock) -> None:
        conf = cfg.ConfigOpts()
        default.register_opts(conf)
        worker.register_opts(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        conf.set_override("jobs", 2, group="worker")
        self.stores: Stores = stores_of(DATABASES["memory"](folder, clock))
        self.runner, self.leader, self.metrics = Runner(), Leader(), WorkerMetrics()
        self.versions = store_of(Repository.init(MemoryOrigin(), CHUNK_SIZE))
        self.is_origin_away = False
        self.service = WorkerService(
            conf,
            stores=self.stores,
            runner=self.runner,  # type: ignore[arg-type]
            books=FlowBooks(MemoryBackend({})),
            services=Services(
                MemoryCaptures(self.versions),
                MemoryCompute(),
                MemoryImages(),
                MemoryImageStore(),
                MemoryHostPreloads(),
                MemoryRestores(),
            ),
            leader=self.leader,
            listener=None,
            open_versions=self._open,
            metrics=self.metrics,
        )

    def _open(self) -> Any:
        if self.is_origin_away:
            raise exception.UnavailableError("the origin is away")
        return self.versions


@pytest.fixture
def clock() -> SetClock:
    return new_clock()


@pytest.fixture
def house(tmp_path: pathlib.Path, clock: SetClock) -> Iterator[House]:
    found = House(tmp_path, clock)
    yield found
    found.service.stop()


def run(house: House) -> threading.Thread:
    thread = threading.Thread(target=house.service.run)
    thread.start()
    return thread


def stop(house: House, thread: threading.Thread) -> None:
    house.service.stop()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_task_is_taken_and_brought_to_its_end(house: House) -> None:
    house.stores.tasks.create(new_task(1))
    thread = run(house)
    assert house.runner.ended.wait(WAIT)
    stop(house, thread)
    (task,) = house.stores.tasks.page(TaskQuery())
    assert task.state is TaskState.DONE
    assert 'acstor_worker_tasks_total{kind="create",state="done"} 1' in house.metrics.text()
    assert house.leader.calls == ["start", "stop"]


def test_stopped_worker_gives_its_tasks_back(house: House) -> None:
    def until_stopped(work: Work) -> Task:
        work.control.pause(WAIT)
        work.check()
        raise AssertionError("nobody stopped it")

    house.runner.act = until_stopped
    house.stores.tasks.create(new_task(1))
    thread = run(house)
    assert house.runner.begun.wait(WAIT)
    stop(house, thread)
    taken = house.stores.tasks.take("another", 30)
    assert taken is not None
    assert taken[1].epoch == 2


def test_no_more_tasks_than_jobs_are_taken(house: House) -> None:
    go_on = threading.Event()

    def wait(work: Work) -> Task:
        go_on.wait(WAIT)
        return Runner.finish(work)

    house.runner.act = wait
    for number in range(5):
        house.stores.tasks.create(new_task(number))
    house.service.reconcile()
    queued = TaskQuery(states=frozenset({TaskState.QUEUED}))
    assert len(house.stores.tasks.page(queued)) == 3
    go_on.set()


def test_fault_of_one_task_ends_no_worker(house: House) -> None:
    def fail(work: Work) -> Task:
        raise KeyError("odd")

    house.runner.act = fail
    house.stores.tasks.create(new_task(1))
    thread = run(house)
    assert house.runner.ended.wait(WAIT)
    stop(house, thread)
    assert house.stores.tasks.get(str(uuid.UUID(int=1))).state is TaskState.RUNNING


def test_nothing_is_taken_while_the_origin_is_away(house: House) -> None:
    house.is_origin_away = True
    house.stores.tasks.create(new_task(1))
    house.service.reconcile()
    assert house.runner.tasks == []
    assert not house.service.is_healthy()
    house.is_origin_away = False
    house.service.reconcile()
    assert house.runner.begun.wait(WAIT)
    assert house.service.is_healthy()


def test_leader_ticks_and_others_do_not(house: House, clock: SetClock) -> None:
    house.runner.act = lambda work: (_ for _ in ()).throw(Interrupted())
    schedule = Schedule(str(uuid.UUID(int=1)), Every.DAY, "02:30", window_minutes=0)
    house.stores.schedules.create(NewSchedule(schedule, "p1", "nightly", Policy()))
    house.stores.schedules.add_target(schedule.id, TargetKind.SERVER, str(uuid.UUID(int=70)))
    clock.advance(days=1)
    house.service._ticker = ScheduleTicker(
        house.stores.schedules, OwnTasks(house.stores.tasks, 0), lambda: clock.now
    )
    house.service.reconcile()
    assert house.stores.tasks.page(TaskQuery()) == []
    house.leader.is_leader = True
    house.service.reconcile()
    (task,) = house.stores.tasks.page(TaskQuery())
    assert task.kind is TaskKind.CREATE
    assert "acstor_worker_schedule_runs_total 1" in house.metrics.text()


def test_leader_sweeps_images_that_are_left(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def made(store: MemoryImageStore, since: datetime.datetime) -> Iterator[MadeImage]:
        asked.set()
        return iter(())

    monkeypatch.setattr(MemoryImageStore, "made", made)
    house.service._books.upgrade()
    house.service.reconcile()
    assert house.service._sweep._running is None
    house.leader.is_leader = True
    house.service.reconcile()
    assert asked.wait(WAIT)
    assert "acstor_worker_left_images_deleted_total 0" in house.metrics.text()
