"""Exporting versions as images, whoever dies and whatever Glance does meanwhile."""

import dataclasses
import pathlib
from typing import Any

import pytest

from acstor import exception
from acstor.repository.images import registration
from acstor.versions.database import index_refresh
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Task, TaskKind
from acstor.versions.flows import export_version
from acstor.versions.services.image_store import (
    ORIGINAL_PROPERTY,
    TASK_PROPERTY,
    VERSION_PROPERTY,
)
from testbed.doubles.faulty_calls import CallFault, FaultyCalls
from tests.unit.repository.images import disk, image_id, register
from tests.unit.repository.versions.records import committed, version_id
from tests.unit.repository.volumes import log_objects
from tests.unit.versions.flows.cloud import PROJECT, TASK, Cloud
from tests.unit.versions.flows.kills import WholeRun

CONTENT = disk(1, 2, 0, 3, 0, 0, 4)
BASE = image_id(5)


def prepared(folder: pathlib.Path) -> Cloud:
    """Return a cloud with a version of a server's disk."""
    cloud = Cloud(folder)
    repository = cloud.versions.repository
    report: registration.Report = register(repository, 5, CONTENT)
    record = committed(
        project=PROJECT,
        size_bytes=len(CONTENT),
        manifest=report.manifest,
        base_image=BASE,
        name="before upgrade",
    )
    cloud.versions.publish(version_id(1), record)
    cloud.images.found[BASE] = {
        "hw_firmware_type": "uefi",
        "os_distro": "debian",
        "kernel_id": "0d0e6b5a-1c38-4b7e-9b62-2f6d1a0c9e55",
        "os_hidden": "false",
        "os_hash_algo": "sha512",
        "os_glance_failed_import": "",
        "os_glance_importing_to_stores": "",
        "acstor_cache": "false",
        "img_signature": "x",
    }
    return cloud


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return prepared(tmp_path)


def ask(cloud: Cloud, **more: Any) -> Task:
    known = {"version_id": version_id(1), "disk_format": "raw"}
    return cloud.ask(TaskKind.EXPORT, f"version/{version_id(1)}", **{**known, **more})


def check_end(cloud: Cloud, task: Task) -> None:
    """There is one whole image, or none; and the version is let go."""
    assert cloud.versions.get(version_id(1)).record.uses == ()
    assert cloud.books_left() == 0
    if task.state is TaskState.DONE:
        assert task.result is not None
        assert cloud.image_store.contents == {task.result["image_id"]: CONTENT}
        assert set(cloud.image_store.images) == {task.result["image_id"]}
    else:
        assert cloud.image_store.images == {}


def test_image_has_the_disk_and_what_its_base_asks_for(cloud: Cloud) -> None:
    ask(cloud)
    task = cloud.work()
    check_end(cloud, task)
    assert task.result is not None
    made = cloud.image_store.images[task.result["image_id"]]
    assert (made.name, made.project, made.disk_format) == ("before upgrade", PROJECT, "raw")
    assert made.min_disk_gib == 1
    assert made.properties == {
        "hw_firmware_type": "uefi",
        "os_distro": "debian",
        "kernel_id": "0d0e6b5a-1c38-4b7e-9b62-2f6d1a0c9e55",
        VERSION_PROPERTY: version_id(1),
        TASK_PROPERTY: TASK,
        ORIGINAL_PROPERTY: made.id,
    }
    assert task.result["size_bytes"] == len(CONTENT)


def test_name_is_the_one_that_is_asked_for(cloud: Cloud) -> None:
    ask(cloud, name="golden", disk_format="qcow2")
    task = cloud.work()
    assert task.result is not None
    made = cloud.image_store.images[task.result["image_id"]]
    assert (made.name, made.disk_format) == ("golden", "qcow2")
    assert cloud.image_store.contents[made.id].startswith(b"QFI\xfb")


def test_broken_upload_is_begun_again_as_another_image(cloud: Cloud) -> None:
    away = exception.UnavailableError("away")
    cloud.image_store.refusals = [away, away]
    ask(cloud)
    task = cloud.work()
    check_end(cloud, task)
    assert task.state is TaskState.DONE
    assert len(cloud.image_store.deleted) == 2
    assert cloud.seconds > 0


def test_glance_that_stays_away_fails_the_task(cloud: Cloud) -> None:
    cloud.image_store.refusals = [exception.UnavailableError("away")] * export_version.ATTEMPTS_MAX
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.FAILED
    check_end(cloud, task)


def test_image_that_is_not_what_was_sent_is_no_export(cloud: Cloud) -> None:
    cloud.image_store.is_rotting = True
    ask(cloud)
    task = cloud.work()
    assert task.error is not None
    assert "another content" in task.error.message
    check_end(cloud, task)


def test_image_of_another_project_is_never_filled(cloud: Cloud) -> None:
    """Ids cannot be guessed; should one be met all the same, Glance's answer is not believed."""

    def take_over() -> None:
        for image in list(cloud.image_store.images.values()):
            cloud.image_store.images[image.id] = dataclasses.replace(image, project="p2")

    cloud.switch.on_call["MemoryImageStore.upload"] = take_over
    ask(cloud)
    task = cloud.work()
    assert task.error is not None
    assert "another project's" in task.error.message
    check_end(cloud, task)


def test_ids_of_images_follow_from_nothing_that_others_see(tmp_path: pathlib.Path) -> None:
    made = []
    for _ in range(2):
        cloud = prepared(tmp_path)
        ask(cloud)
        made.append((cloud.work().result or {})["image_id"])
    assert made[0] != made[1]


CALLS = ("create", "upload", "find", "delete")


@pytest.mark.parametrize("is_answer_lost", [False, True])
@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("call", [1, 2])
def test_glance_that_fails_once_leaves_nothing(
    cloud: Cloud, method: str, call: int, is_answer_lost: bool
) -> None:
    away = lambda: exception.UnavailableError("away")  # noqa: E731
    inner = cloud.image_store
    inner.refusals = [exception.UnavailableError("away")]
    faulty: Any = FaultyCalls(inner, CallFault(method, away, call, is_answer_lost))
    cloud.image_store = faulty
    ask(cloud)
    task = cloud.work()
    cloud.image_store = inner
    check_end(cloud, task)
    assert task.state is TaskState.DONE


def test_image_that_cannot_be_removed_is_named(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    inner = cloud.image_store
    inner.refusals = [exception.UnavailableError("away")] * export_version.ATTEMPTS_MAX
    away = lambda: exception.UnavailableError("away")  # noqa: E731
    faulty: Any = FaultyCalls(inner, CallFault("delete", away, 2))
    cloud.image_store = faulty
    ask(cloud)
    assert cloud.work().state is TaskState.FAILED
    (left,) = inner.images
    assert left in caplog.text


def test_full_temporary_directory_of_the_worker_is_named(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = log_objects.pushed(cloud.versions.repository.origin)
    cloud.versions.publish(
        version_id(2), committed(project=PROJECT, size_bytes=len(CONTENT), manifest=None, logs=logs)
    )
    log_objects.fill_temporary_directory(monkeypatch)
    ask(cloud, version_id=version_id(2))
    task = cloud.work()
    assert task.state is TaskState.FAILED
    assert task.error is not None
    assert (task.error.code, "temporary directory" in task.error.hint) == ("acstor.exhausted", True)
    assert cloud.versions.get(version_id(2)).record.uses == ()
    check_end(cloud, task)


def test_quota_is_named(cloud: Cloud) -> None:
    cloud.image_store.quota_bytes = 1
    ask(cloud)
    task = cloud.work()
    assert task.error is not None
    assert "quota" in task.error.hint
    check_end(cloud, task)


@pytest.mark.parametrize("wanted", [version_id(9), version_id(2)])
def test_version_of_nobody_or_another_project_is_not_found(cloud: Cloud, wanted: str) -> None:
    cloud.versions.publish(version_id(2), committed(project="p2"))
    ask(cloud, version_id=wanted)
    task = cloud.work()
    assert task.error is not None
    assert task.error.code == "acstor.not_found"
    check_end(cloud, task)


def test_version_that_is_deleted_meanwhile_goes_afterwards(cloud: Cloud) -> None:
    def delete() -> None:
        cloud.versions.delete(version_id(1))

    cloud.switch.on_call["MemoryImageStore.upload"] = delete
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.DONE
    assert cloud.version_ids() == set()


def test_cancelled_it_leaves_nothing(cloud: Cloud) -> None:
    def cancel() -> None:
        cloud.control.is_cancelled = cloud.stores.tasks.cancel(TASK).is_cancelled

    cloud.switch.on_call["MemoryImageStore.upload"] = cancel
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.CANCELLED
    check_end(cloud, task)


@pytest.mark.parametrize("is_after", [False, True])
def test_killed_at_every_call_it_ends_as_it_would_have(
    tmp_path: pathlib.Path, is_after: bool
) -> None:
    def ready() -> Cloud:
        cloud = prepared(tmp_path)
        ask(cloud)
        return cloud

    whole = WholeRun(ready())
    for at in whole.calls(is_after=is_after):
        cloud = ready()
        cloud.switch.arm(at, is_after=is_after)
        task = cloud.work_on()
        assert task.state is TaskState.DONE, whole.names[at - 1]
        cloud.sweep()
        check_end(cloud, task)


def test_uses_of_exports_that_have_ended_are_swept(cloud: Cloud) -> None:
    cloud.versions.begin_use(version_id(1), f"export/{TASK}")
    ask(cloud, disk_format="nonsense")
    assert cloud.work().is_finished
    cloud.versions.begin_use(version_id(1), f"export/{TASK}")
    index_refresh.rebuild(cloud.stores.versions, cloud.versions.repository.origin)
    cloud.sweep()
    assert cloud.versions.get(version_id(1)).record.uses == ()
