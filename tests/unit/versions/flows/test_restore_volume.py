"""Putting versions back into volumes, and taking them of volumes that nobody has open."""

import pathlib
import random
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import DiskKind, DiskName, Trigger
from acstor.repository.versions.states import VersionState
from acstor.repository.volumes.restoring import RestorableVolumes
from acstor.repository.volumes.store import NewVolume
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Task, TaskKind
from tests.unit.repository.versions.records import committed, version_id
from tests.unit.repository.volumes.hosts import Owner, content_of
from tests.unit.versions.flows.cloud import PROJECT, TASK, VOLUME, Cloud
from tests.unit.versions.flows.kills import WholeRun

GIB = 1 << 30


def write(cloud: Cloud, text: str) -> None:
    """Attach the volume, write, and detach it."""
    volumes = RestorableVolumes(cloud.versions.repository)
    volumes.allow_host(VOLUME, "a")
    owner = Owner(volumes, cloud.versions.repository.origin, VOLUME, "a", random.Random(5))
    owner.acquire()
    owner.write(text)
    owner.release()
    volumes.disallow_host(VOLUME, "a")


def text_of(cloud: Cloud) -> str:
    volume = RestorableVolumes(cloud.versions.repository).get(VOLUME)
    return content_of(cloud.versions.repository.origin, volume.record.disk)


def prepared(folder: pathlib.Path) -> Cloud:
    """Return a cloud with a volume, a version of it, and something written since."""
    cloud = Cloud(folder)
    RestorableVolumes(cloud.versions.repository).create(NewVolume(VOLUME, GIB))
    write(cloud, "one ")
    disk = RestorableVolumes(cloud.versions.repository).get(VOLUME).record.disk
    record = committed(
        project=PROJECT,
        disk=DiskName(DiskKind.VOLUME, VOLUME),
        size_bytes=GIB,
        manifest=disk.manifest,
        logs=disk.logs,
    )
    cloud.versions.publish(version_id(1), record)
    write(cloud, "two ")
    return cloud


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return prepared(tmp_path)


def ask(cloud: Cloud, **more: Any) -> Task:
    known = {"kind": "volume", "owner": VOLUME, "versions": [version_id(1)]}
    return cloud.ask(TaskKind.RESTORE, f"volume/{VOLUME}", **{**known, **more})


def check_end(cloud: Cloud, task: Task) -> None:
    """The content is the version's and the former one is kept, or all is as it was."""
    assert cloud.versions.get(version_id(1)).record.uses == ()
    assert cloud.books_left() == 0
    volume = RestorableVolumes(cloud.versions.repository).get(VOLUME).record
    assert volume.pending is None
    if task.state is TaskState.DONE:
        assert text_of(cloud) == "one "
    else:
        assert text_of(cloud) == "one two "
        assert cloud.version_ids() == {version_id(1)}


def test_volume_gets_the_content_of_the_version(cloud: Cloud) -> None:
    ask(cloud)
    task = cloud.work()
    check_end(cloud, task)
    assert task.result is not None
    kept = cloud.versions.get(task.result["kept_version_id"]).record
    assert kept.trigger is Trigger.RESTORE
    assert content_of(cloud.versions.repository.origin, kept.content) == "one two "
    assert cloud.stores.versions.find(task.result["kept_version_id"], PROJECT) is not None


def test_nothing_is_kept_where_nobody_wants_it(cloud: Cloud) -> None:
    ask(cloud, keep_current=False)
    task = cloud.work()
    check_end(cloud, task)
    assert cloud.version_ids() == {version_id(1)}


def test_version_that_is_deleted_meanwhile_goes_afterwards(cloud: Cloud) -> None:
    ask(cloud, keep_current=False)
    cloud.versions.begin_use(version_id(1), f"restore/{TASK}")
    cloud.versions.delete(version_id(1))
    assert cloud.versions.get(version_id(1)).record.state is VersionState.CONDEMNED
    task = cloud.work()
    assert task.state is TaskState.FAILED
    assert cloud.version_ids() == set()


def test_attached_volume_is_refused(cloud: Cloud) -> None:
    RestorableVolumes(cloud.versions.repository).allow_host(VOLUME, "a")
    ask(cloud)
    task = cloud.work()
    assert task.error is not None
    assert task.error.hint == "detach it, then ask again"
    check_end(cloud, task)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"versions": [version_id(9)]}, "acstor.not_found"),
        ({"owner": version_id(9)}, "acstor.not_found"),
        ({"versions": [version_id(1), version_id(2)]}, "acstor.unsupported"),
    ],
)
def test_nonsense_changes_nothing(cloud: Cloud, fields: dict[str, Any], expected: str) -> None:
    ask(cloud, **fields)
    task = cloud.work()
    assert task.error is not None
    assert task.error.code == expected
    check_end(cloud, task)


def test_version_of_a_server_is_refused(cloud: Cloud) -> None:
    cloud.versions.publish(version_id(2), committed(project=PROJECT))
    ask(cloud, versions=[version_id(2)])
    task = cloud.work()
    assert task.error is not None
    assert task.error.code == "acstor.unsupported"


def test_late_restore_does_not_overwrite(cloud: Cloud) -> None:
    """Somebody attached the volume and wrote since it was restored, or given up."""
    volumes = RestorableVolumes(cloud.versions.repository)
    content = cloud.versions.get(version_id(1)).record.content
    epoch = volumes.get(VOLUME).record.epoch
    volumes.restore(VOLUME, content, by="t1", epoch=epoch)
    write(cloud, "three ")
    volumes.restore(VOLUME, content, by="t1", epoch=epoch)
    assert text_of(cloud) == "one three "
    with pytest.raises(exception.ConflictError, match="in use meanwhile"):
        volumes.restore(VOLUME, content, by="t2", epoch=epoch)
    epoch = volumes.get(VOLUME).record.epoch
    assert not volumes.give_up_restore(VOLUME, content, by="t1")
    for _ in range(2):
        assert volumes.give_up_restore(VOLUME, content, by="t3")
    with pytest.raises(exception.FencedError, match="given up"):
        volumes.restore(VOLUME, content, by="t3", epoch=epoch)
    assert text_of(cloud) == "one three "


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("is_attached", [False, True])
def test_killed_at_every_call_it_ends_as_it_would_have(
    tmp_path: pathlib.Path, is_attached: bool, is_after: bool
) -> None:
    def ready() -> Cloud:
        cloud = prepared(tmp_path)
        if is_attached:
            cloud.switch.on_call["VersionStore.publish"] = lambda: write(cloud, "")
        ask(cloud)
        return cloud

    for at in WholeRun(ready()).calls(is_after=is_after):
        cloud = ready()
        cloud.switch.arm(at, is_after=is_after)
        task = cloud.work_on()
        assert task.is_finished, cloud.switch.names[at - 1]
        if not is_attached:
            assert task.state is TaskState.DONE, cloud.switch.names[at - 1]
        cloud.sweep()
        check_end(cloud, task)


def test_version_of_a_volume_that_nobody_has_open(cloud: Cloud) -> None:
    cloud.ask(TaskKind.CREATE, f"volume/{VOLUME}", kind="volume", owner=VOLUME, name="now")
    task = cloud.work()
    assert task.state is TaskState.DONE
    assert task.result is not None
    (made,) = task.result["versions"]
    record = cloud.versions.get(made).record
    assert (record.name, record.group, record.state) == ("now", TASK, VersionState.COMMITTED)
    assert content_of(cloud.versions.repository.origin, record.content) == "one two "
    assert cloud.captures.requests == []
