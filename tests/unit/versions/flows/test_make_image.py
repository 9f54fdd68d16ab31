"""Images of versions: one for all who boot, and a version that stays as long as its image does."""

import pathlib

import pytest

from acstor.repository.versions.states import VersionState
from acstor.versions.database import index_refresh
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import NewTask, Task, TaskKind
from tests.unit.repository.versions.records import version_id
from tests.unit.versions.flows.cloud import PROJECT, SERVER, TASK, Cloud
from tests.unit.versions.flows.kills import WholeRun
from tests.unit.versions.flows.test_export_version import prepared

SECOND = TASK.replace("63", "64")


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return prepared(tmp_path)


def ask(cloud: Cloud, kind: TaskKind = TaskKind.IMAGE, task_id: str = TASK) -> Task:
    wanted = {"version_id": version_id(1)}
    resource = f"version/{version_id(1)}"
    return cloud.stores.tasks.create(NewTask(task_id, PROJECT, kind, resource, wanted))


def image_of(task: Task) -> str:
    assert task.state is TaskState.DONE
    assert task.result is not None
    return str(task.result["image_id"])


def uses(cloud: Cloud) -> tuple[str, ...]:
    return cloud.versions.get(version_id(1)).record.uses


def test_image_holds_the_version(cloud: Cloud) -> None:
    ask(cloud)
    image = image_of(cloud.work())
    assert uses(cloud) == (f"image/{image}",)
    assert cloud.image_store.contents[image].startswith(b"QFI\xfb")
    cloud.versions.delete(version_id(1))
    assert cloud.versions.get(version_id(1)).record.state is VersionState.CONDEMNED


def test_second_boot_finds_it(cloud: Cloud) -> None:
    ask(cloud)
    image = image_of(cloud.work())
    ask(cloud, task_id=SECOND)
    assert image_of(cloud.work()) == image
    assert set(cloud.image_store.images) == {image}
    assert uses(cloud) == (f"image/{image}",)


def test_image_that_was_deleted_is_made_again(cloud: Cloud) -> None:
    ask(cloud)
    first = image_of(cloud.work())
    cloud.image_store.delete(first)
    ask(cloud, task_id=SECOND)
    second = image_of(cloud.work())
    assert second != first
    index_refresh.rebuild(cloud.stores.versions, cloud.versions.repository.origin)
    cloud.sweep()
    assert uses(cloud) == (f"image/{second}",)


def test_version_goes_with_its_image(cloud: Cloud) -> None:
    ask(cloud)
    cloud.image_store.delete(image_of(cloud.work()))
    cloud.versions.delete(version_id(1))
    index_refresh.rebuild(cloud.stores.versions, cloud.versions.repository.origin)
    cloud.sweep()
    assert cloud.version_ids() == set()


def test_image_is_removed(cloud: Cloud) -> None:
    ask(cloud)
    image = image_of(cloud.work())
    ask(cloud, TaskKind.IMAGE_REMOVE, SECOND)
    task = cloud.work()
    assert task.result == {"version_id": version_id(1), "images": [image]}
    assert (cloud.image_store.images, uses(cloud)) == ({}, ())


def test_image_that_a_server_is_of_stays(cloud: Cloud) -> None:
    ask(cloud)
    image = image_of(cloud.work())
    cloud.compute.change(SERVER, image=image)
    ask(cloud, TaskKind.IMAGE_REMOVE, SECOND)
    task = cloud.work()
    assert task.error is not None
    assert task.error.code == "acstor.version.image_in_use"
    assert image in task.error.hint
    assert set(cloud.image_store.images) == {image}
    assert uses(cloud) == (f"image/{image}",)


def test_image_of_a_version_that_is_being_restored_stays(cloud: Cloud) -> None:
    ask(cloud)
    image = image_of(cloud.work())
    cloud.versions.begin_use(version_id(1), f"restore/{TASK}")
    ask(cloud, TaskKind.IMAGE_REMOVE, SECOND)
    task = cloud.work()
    assert task.error is not None
    assert task.error.code == "acstor.version.image_in_use"
    assert set(cloud.image_store.images) == {image}


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_killed_at_every_call_there_is_one_image(
    tmp_path: pathlib.Path, is_there: bool, is_after: bool
) -> None:
    def ready() -> Cloud:
        cloud = prepared(tmp_path)
        if is_there:
            ask(cloud, task_id=SECOND)
            cloud.work()
        ask(cloud)
        return cloud

    whole = WholeRun(ready())
    for at in whole.calls(is_after=is_after):
        cloud = ready()
        cloud.switch.arm(at, is_after=is_after)
        image = image_of(cloud.work_on())
        cloud.sweep()
        assert set(cloud.image_store.images) == {image}, whole.names[at - 1]
        assert uses(cloud) == (f"image/{image}",)


@pytest.mark.parametrize("is_after", [False, True])
def test_killed_while_it_is_removed_nothing_is_left(tmp_path: pathlib.Path, is_after: bool) -> None:
    def ready() -> Cloud:
        cloud = prepared(tmp_path)
        ask(cloud, task_id=SECOND)
        cloud.work()
        ask(cloud, TaskKind.IMAGE_REMOVE)
        return cloud

    for at in WholeRun(ready()).calls(is_after=is_after):
        cloud = ready()
        cloud.switch.arm(at, is_after=is_after)
        assert cloud.work_on().state is TaskState.DONE
        assert (cloud.image_store.images, uses(cloud)) == ({}, ())
