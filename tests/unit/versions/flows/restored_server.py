"""A server that restores put a version into, and the look at how they end."""

import pathlib
import uuid
from collections.abc import Callable
from typing import Any

from acstor.repository.images import registration
from acstor.repository.versions.record import Trigger
from acstor.repository.versions.states import VersionState
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import NewTask, Task, TaskKind
from tests.unit.repository.images import disk, image_id, register
from tests.unit.repository.versions.records import committed, version_id
from tests.unit.versions.flows.cloud import PROJECT, SERVER, TASK, Cloud

CONTENT = disk(1, 2, 0, 3, 0, 0, 4)
BASE = image_id(5)
ONE = version_id(1)
SECOND = str(uuid.UUID(int=100))


def prepared(folder: pathlib.Path, **server: Any) -> Cloud:
    """Return a cloud with a server, and a version of its root disk."""
    cloud = Cloud(folder)
    report: registration.Report = register(cloud.versions.repository, 5, CONTENT)
    record = committed(
        project=PROJECT, size_bytes=len(CONTENT), manifest=report.manifest, base_image=BASE
    )
    cloud.versions.publish(ONE, record)
    cloud.images.found[BASE] = {"os_distro": "debian"}
    cloud.compute.change(SERVER, **{"image": BASE, "disk_gib": 1, **server})
    return cloud


def ask(cloud: Cloud, task_id: str = TASK, **more: Any) -> Task:
    known = {"kind": "server", "owner": SERVER, "versions": [ONE], "version_id": ONE}
    wanted = {**known, "method": "auto", **more}
    new = NewTask(task_id, PROJECT, TaskKind.RESTORE, f"server/{SERVER}", wanted)
    return cloud.stores.tasks.create(new)


def result_of(task: Task) -> Any:
    assert task.error is None
    assert task.state is TaskState.DONE
    return task.result


def code_of(task: Task) -> str:
    assert task.state is TaskState.FAILED
    assert task.error is not None
    return task.error.code


def settle(cloud: Cloud) -> None:
    """Have Nova come to the end of what it is doing."""
    for _ in range(10):
        cloud.compute.find_server(SERVER)


def check_end(cloud: Cloud, task: Task) -> None:
    """The server is the version's, and unlocked, and its former disk is kept; or nothing is left.

    Where the task failed after Nova had begun, disk and image stay as well.
    """
    settle(cloud)
    server = cloud.compute.known.get(SERVER)
    uses = cloud.versions.get(ONE).record.uses
    kept = cloud.version_ids() - {ONE}
    assert cloud.books_left() == 0
    assert cloud.captures.held == {}
    assert not cloud.indexed_ids() - cloud.version_ids()
    assert not any(use.startswith("restore/") for use in uses)
    if server is not None:
        assert (server.is_locked, server.lock_reason) == (False, None)
    if server is None or server.image == BASE:
        assert task.state is not TaskState.DONE
        assert (kept, uses, cloud.image_store.images) == (set(), (), {})
        return
    assert server.image in cloud.image_store.contents
    assert set(cloud.image_store.images) == {server.image}
    assert uses == (f"image/{server.image}",)
    if task.parameters.get("keep_current", True):
        (one,) = kept
        record = cloud.versions.get(one).record
        assert (record.trigger, record.name) == (Trigger.RESTORE, "before restore")
        assert record.state is VersionState.COMMITTED
        assert one in cloud.indexed_ids()
    else:
        assert kept == set()


def cancel(cloud: Cloud) -> None:
    cloud.stores.tasks.cancel(TASK)
    cloud.control.is_cancelled = True


def raising(make: Callable[[], BaseException]) -> Callable[[], None]:
    def fail() -> None:
        raise make()

    return fail
