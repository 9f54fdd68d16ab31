"""Taking versions: what comes of it, and that every death and every fault leads to an end."""

import pathlib
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import DiskKind, DiskName
from acstor.repository.versions.states import VersionState
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Task, TaskKind, TaskQuery
from acstor.versions.host_capture.states import CaptureState
from tests.unit.repository.versions.records import committed, version_id
from tests.unit.versions.flows.cloud import (
    PROJECT,
    SERVER,
    TASK,
    Cloud,
    Killed,
    database_backend,
)
from tests.unit.versions.flows.kills import WholeRun


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    found = Cloud(tmp_path)
    found.captures.devices[SERVER] = ("vda", "vdb")
    return found


def ask(cloud: Cloud, **more: Any) -> Task:
    return cloud.ask(TaskKind.CREATE, f"server/{SERVER}", kind="server", owner=SERVER, **more)


def check_nothing_is_left(cloud: Cloud) -> None:
    assert cloud.captures.held == {}
    assert cloud.books_left() == 0
    assert cloud.indexed_ids() == cloud.version_ids()


def check_end(cloud: Cloud, task: Task) -> None:
    """All of it is there, or nothing."""
    assert task.is_finished
    check_nothing_is_left(cloud)
    if task.state is TaskState.DONE:
        assert task.result is not None
        assert set(task.result["versions"]) == cloud.version_ids()
        for one in cloud.version_ids():
            assert cloud.versions.get(one).record.state is VersionState.COMMITTED
    else:
        assert cloud.version_ids() == set()


def test_version_of_each_disk_is_taken(cloud: Cloud) -> None:
    ask(cloud, name="before-upgrade", labels={"a": "b"})
    task = cloud.work()
    assert (task.state, task.progress) == (TaskState.DONE, 1.0)
    assert task.result is not None
    assert task.result["group_id"] == TASK
    check_end(cloud, task)
    rows = [cloud.stores.versions.find(one, PROJECT) for one in task.result["versions"]]
    assert {row.disk.device for row in rows if row} == {"vda", "vdb"}
    assert {(row.name, row.group_size) for row in rows if row} == {("before-upgrade", 2)}


def test_newest_restore_point_is_the_parent(cloud: Cloud) -> None:
    disk = DiskName(DiskKind.INSTANCE, SERVER, "vda")
    cloud.versions.publish(version_id(1), committed(disk=disk, project=PROJECT))
    ask(cloud)
    cloud.stores.versions.put(_row(cloud, version_id(1)))
    cloud.work()
    assert cloud.captures.requests[0].parents == {"vda": version_id(1)}


def _row(cloud: Cloud, one: str) -> Any:
    from acstor.versions.database.version_index import IndexedVersion

    return IndexedVersion.of(one, cloud.versions.get(one).record)


def test_server_of_another_project_does_not_exist(cloud: Cloud) -> None:
    cloud.compute.change(SERVER, project="p2")
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.FAILED
    assert task.error is not None
    assert task.error.code == "acstor.not_found"
    check_end(cloud, task)


def test_shelved_server_is_refused_with_the_reason(cloud: Cloud) -> None:
    cloud.compute.change(SERVER, host=None, status="SHELVED_OFFLOADED")
    ask(cloud)
    task = cloud.work()
    assert task.error is not None
    assert task.error.code == "acstor.server.without_host"
    assert "SHELVED_OFFLOADED" in task.error.message


@pytest.mark.parametrize("state", [CaptureState.HELD, CaptureState.COMMITTED])
def test_failure_on_the_host_is_the_tasks(cloud: Cloud, state: CaptureState) -> None:
    cloud.captures.fails_in = state
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.FAILED
    assert task.error is not None
    assert task.error.message == "the origin is full"
    check_end(cloud, task)


@pytest.mark.parametrize("state", [CaptureState.READING, CaptureState.HELD])
def test_failure_that_passes_is_tried_again(cloud: Cloud, state: CaptureState) -> None:
    cloud.captures.fails_in = state
    cloud.captures.failures = [
        exception.DeadlineError("the backup does not begin"),
        exception.UnavailableError("the disk's server is silent"),
    ]
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.DONE
    assert len(cloud.captures.requests) == 3
    check_end(cloud, task)


def test_failure_that_does_not_pass_is_the_tasks_in_the_end(cloud: Cloud) -> None:
    cloud.captures.fails_in = CaptureState.HELD
    cloud.captures.failures = [exception.DeadlineError(f"attempt {number}") for number in range(9)]
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.FAILED
    assert task.error is not None
    assert task.error.message == "attempt 2"
    check_end(cloud, task)


@pytest.mark.parametrize("pauses", [1, 2, 3])
def test_cancelled_task_leaves_nothing(cloud: Cloud, pauses: int) -> None:
    ask(cloud)
    seen = []

    def cancel() -> None:
        seen.append(1)
        if len(seen) == pauses:
            cloud.control.is_cancelled = cloud.stores.tasks.cancel(TASK).is_cancelled

    cloud.control.on_pause = cancel
    task = cloud.work()
    assert task.state is TaskState.CANCELLED
    check_end(cloud, task)


@pytest.mark.parametrize("pauses", [1, 2, 3])
def test_lost_host_is_given_up(cloud: Cloud, pauses: int) -> None:
    ask(cloud)
    seen = []

    def lose() -> None:
        seen.append(1)
        if len(seen) == pauses:
            cloud.captures.silent.add("h1")

    cloud.control.on_pause = lose
    task = cloud.work()
    assert task.state is TaskState.FAILED
    assert cloud.version_ids() == cloud.indexed_ids() == set()
    assert cloud.books_left() == 0


def test_host_that_is_back_in_time_goes_on(cloud: Cloud) -> None:
    ask(cloud)
    cloud.captures.silent.add("h1")
    seen = []

    def back() -> None:
        seen.append(1)
        if len(seen) == 5:
            cloud.captures.silent.clear()

    cloud.control.on_pause = back
    assert cloud.work().state is TaskState.DONE


def test_scheduled_version_has_retention_look(cloud: Cloud) -> None:
    ask(cloud, trigger="schedule", schedule="s", slot="2026-11-26", keep={"last": 3})
    cloud.work()
    (expiry,) = cloud.stores.tasks.page(TaskQuery(kinds=frozenset({TaskKind.EXPIRE})))
    assert expiry.parameters["triggers"] == ["schedule"]
    assert expiry.state is TaskState.QUEUED


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("fails_in", [None, CaptureState.HELD, CaptureState.COMMITTED])
def test_killed_at_every_call_it_ends_as_it_would_have(
    tmp_path: pathlib.Path, fails_in: CaptureState | None, is_after: bool
) -> None:
    def ready() -> Cloud:
        # One of them with the rows of its flow in a database, as workers have them.
        cloud = Cloud(tmp_path, database_backend() if fails_in is None else None)
        cloud.captures.devices[SERVER] = ("vda", "vdb")
        cloud.captures.fails_in = fails_in
        ask(cloud)
        return cloud

    whole = WholeRun(ready())
    assert len(whole.names) > 20
    for at in whole.calls(is_after=is_after):
        cloud = ready()
        cloud.switch.arm(at, is_after=is_after)
        task = cloud.work_on()
        expected = TaskState.DONE if fails_in is None else TaskState.FAILED
        where = f"killed at call {at}: {cloud.switch.names[at - 1]}"
        assert task.state is expected, where
        cloud.sweep()
        check_end(cloud, task)


def test_stalled_worker_writes_where_nobody_reads(cloud: Cloud) -> None:
    """It goes on after another has taken the task, and ends without a change."""
    ask(cloud)
    states = []

    def overtake() -> None:
        cloud.control.on_pause = lambda: None
        cloud.clock.advance(seconds=60)
        states.append(cloud.work().state)

    cloud.control.on_pause = overtake
    with pytest.raises((Killed, BaseException)):
        cloud.work()
    assert states == [TaskState.DONE]
    assert cloud.task().state is TaskState.DONE
    assert len(cloud.version_ids()) == 2
