"""Deleting versions, and applying retention, whatever is killed in the middle of it."""

import datetime
import pathlib
from typing import Any

import pytest

from acstor.repository.versions.locks import Lock
from acstor.repository.versions.record import DiskKind, DiskName, Trigger
from acstor.repository.versions.states import VersionState
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Task, TaskKind
from acstor.versions.database.version_index import IndexedVersion
from tests.unit.repository.versions.records import NOON, committed, version_id
from tests.unit.versions.flows.cloud import PROJECT, SERVER, Cloud
from tests.unit.versions.flows.kills import WholeRun

DAY = datetime.timedelta(days=1)


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return Cloud(tmp_path)


def publish(cloud: Cloud, number: int, **fields: Any) -> str:
    known = {
        "project": PROJECT,
        "disk": DiskName(DiskKind.INSTANCE, SERVER, "vda"),
        "trigger": Trigger.SCHEDULE,
        "schedule": "s",
        "created_at": NOON - number * DAY,
    }
    version = cloud.versions.publish(version_id(number), committed(**{**known, **fields}))
    cloud.stores.versions.put(IndexedVersion.of(version.id, version.record))
    return version.id


def ask_to_delete(cloud: Cloud, one: str) -> None:
    cloud.ask(TaskKind.DELETE, f"version/{one}", version_id=one)


def ask_to_expire(cloud: Cloud, **more: Any) -> None:
    known = {"keep": {"last": 2}, "triggers": ["schedule"], "schedule": "s"}
    cloud.ask(TaskKind.EXPIRE, f"server/{SERVER}", kind="server", owner=SERVER, **{**known, **more})


def numbers(cloud: Cloud) -> set[int]:
    return {int(one[:1], 16) for one in cloud.version_ids()}


def check_end(cloud: Cloud, task: Task) -> None:
    assert task.is_finished
    assert cloud.indexed_ids() == cloud.version_ids()


def test_version_is_deleted(cloud: Cloud) -> None:
    ask_to_delete(cloud, publish(cloud, 1))
    task = cloud.work()
    assert task.result == {"version_id": version_id(1), "is_condemned": False}
    assert cloud.version_ids() == cloud.indexed_ids() == set()
    assert cloud.books_left() == 0


def test_version_in_use_is_condemned(cloud: Cloud) -> None:
    one = publish(cloud, 1)
    cloud.versions.begin_use(one, "image/x")
    ask_to_delete(cloud, one)
    task = cloud.work()
    assert task.result == {"version_id": one, "is_condemned": True}
    found = cloud.stores.versions.find(one)
    assert found is not None
    assert found.state is VersionState.CONDEMNED


def test_locked_version_stays(cloud: Cloud) -> None:
    one = publish(cloud, 1)
    cloud.versions.lock(one, Lock("ransomware"))
    ask_to_delete(cloud, one)
    task = cloud.work()
    assert task.state is TaskState.FAILED
    assert task.error is not None
    assert "ransomware" in task.error.message
    assert cloud.version_ids() == {one}


def test_version_of_another_project_does_not_exist(cloud: Cloud) -> None:
    one = publish(cloud, 1, project="p2")
    ask_to_delete(cloud, one)
    task = cloud.work()
    assert task.error is not None
    assert task.error.code == "acstor.not_found"
    assert cloud.version_ids() == {one}


def test_policy_keeps_what_it_says(cloud: Cloud) -> None:
    for number in range(1, 6):
        publish(cloud, number)
    publish(cloud, 6, schedule="other")
    publish(cloud, 7, trigger=Trigger.MANUAL)
    publish(cloud, 8, disk=DiskName(DiskKind.INSTANCE, SERVER, "vdb"))
    cloud.versions.lock(version_id(5), Lock())
    ask_to_expire(cloud)
    task = cloud.work()
    assert task.result == {"deleted": [version_id(3), version_id(4)], "kept": []}
    assert numbers(cloud) == {1, 2, 5, 6, 7, 8}
    check_end(cloud, task)


def test_empty_policy_removes_nothing(cloud: Cloud) -> None:
    for number in range(1, 4):
        publish(cloud, number)
    ask_to_expire(cloud, keep={})
    assert cloud.work().result == {"deleted": [], "kept": []}


def test_nonsense_ends_with_the_reason(cloud: Cloud) -> None:
    ask_to_expire(cloud, keep={"often": 3})
    task = cloud.work()
    assert task.state is TaskState.FAILED
    assert task.error is not None
    assert "often" in task.error.message


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("kind", ["delete", "expire"])
def test_killed_at_every_call_it_ends_as_it_would_have(
    tmp_path: pathlib.Path, kind: str, is_after: bool
) -> None:
    def prepared() -> Cloud:
        cloud = Cloud(tmp_path)
        for number in range(1, 6):
            publish(cloud, number)
        if kind == "delete":
            ask_to_delete(cloud, version_id(1))
        else:
            ask_to_expire(cloud)
        return cloud

    end = prepared()
    for at in WholeRun(end).calls(is_after=is_after):
        cloud = prepared()
        cloud.switch.arm(at, is_after=is_after)
        task = cloud.work_on()
        assert task.state is TaskState.DONE, cloud.switch.names[at - 1]
        assert cloud.version_ids() == end.version_ids(), cloud.switch.names[at - 1]
        cloud.sweep()
        assert cloud.books_left() == 0
        check_end(cloud, task)
