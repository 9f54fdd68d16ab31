"""Images that tasks left in Glance: deleted where nobody needs them, and no others."""

import dataclasses
import datetime
import pathlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from acstor import exception
from acstor.versions.database.task_states import TaskEvent, TaskState
from acstor.versions.database.tasks import NewTask, TaskError, TaskKind
from acstor.versions.services.image_store import ORIGINAL_PROPERTY, TASK_PROPERTY, NewImage
from acstor.versions.worker import left_images
from acstor.versions.worker.left_images import LeftImages
from testbed.doubles.faulty_calls import CallFault, FaultyCalls
from tests.unit.repository.images import disk, register
from tests.unit.repository.versions.records import committed, version_id
from tests.unit.versions.flows.cloud import IMAGE_GRACE, LEASE_SECONDS, PROJECT, SERVER, TASK, Cloud

CONTENT = disk(1, 2, 0, 3)
IMAGE = str(uuid.UUID(int=40))
OTHER = str(uuid.UUID(int=41))
AFTER_GRACE = IMAGE_GRACE.total_seconds() + 1


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    """Return a cloud with a version."""
    found = Cloud(tmp_path)
    manifest = register(found.versions.repository, 5, CONTENT).manifest
    record = committed(project=PROJECT, size_bytes=len(CONTENT), manifest=manifest)
    found.versions.publish(version_id(1), record)
    return found


def end(
    cloud: Cloud,
    kind: TaskKind = TaskKind.EXPORT,
    result: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> None:
    """Have a task of a version be taken, and end: with a result, or by an error."""
    known = {"version_id": version_id(1), **parameters}
    cloud.stores.tasks.create(NewTask(TASK, PROJECT, kind, f"version/{version_id(1)}", known))
    taken = cloud.stores.tasks.take("w", LEASE_SECONDS)
    assert taken is not None
    if result is not None:
        cloud.stores.tasks.finish(taken[1], TaskEvent.FINISH, result)
    else:
        error = TaskError("acstor.internal", "20 workers died of it", "")
        cloud.stores.tasks.finish(taken[1], TaskEvent.FAIL, error=error)


def put(
    cloud: Cloud, image_id: str = IMAGE, project: str = PROJECT, **properties: str | None
) -> None:
    """Have Glance have an image, as a task has made it but for some properties."""
    known = {TASK_PROPERTY: TASK, ORIGINAL_PROPERTY: image_id, **properties}
    said = {name: value for name, value in known.items() if value is not None}
    cloud.image_store.create(NewImage(image_id, "", project, "raw", 1, said))


def sweep(cloud: Cloud, seconds: float = AFTER_GRACE) -> set[str]:
    """Return the images that are there after a sweep so much later."""
    cloud.clock.advance(seconds=seconds)
    cloud.sweep()
    return set(cloud.image_store.images)


def test_image_that_glance_did_not_let_go_is_deleted_once_it_is_back(cloud: Cloud) -> None:
    inner = cloud.image_store

    def away() -> BaseException:
        return exception.UnavailableError("away")

    inner.refusals = [exception.UnavailableError("away")] * 3
    faults = [CallFault("delete", away, number) for number in range(1, 50)]
    cloud.image_store = FaultyCalls(inner, *faults)  # type: ignore[assignment]
    cloud.ask(
        TaskKind.EXPORT,
        f"version/{version_id(1)}",
        version_id=version_id(1),
        disk_format="raw",
    )
    assert cloud.work().state is TaskState.FAILED
    assert len(inner.images) == 3
    cloud.image_store = inner
    # Undoing has let the version go, and nobody has told the list of versions that Glance is back.
    assert len(sweep(cloud, 1)) == 3
    assert sweep(cloud) == set()


@pytest.mark.parametrize("kind", sorted(left_images.KINDS))
def test_image_of_a_worker_that_died_for_good_is_deleted(cloud: Cloud, kind: TaskKind) -> None:
    of_restore = {"version_id": None, "versions": [version_id(1)]}
    end(cloud, kind, None, **(of_restore if kind is TaskKind.RESTORE else {}))
    put(cloud)
    assert sweep(cloud, AFTER_GRACE - 2) == {IMAGE}
    assert sweep(cloud, 2) == set()


def test_result_stays_and_other_attempts_go(cloud: Cloud) -> None:
    end(cloud, result={"image_id": IMAGE})
    put(cloud)
    put(cloud, OTHER)
    assert sweep(cloud) == {IMAGE}


def test_image_of_a_task_that_is_not_over_stays(cloud: Cloud) -> None:
    cloud.ask(TaskKind.EXPORT, "version/x", version_id=version_id(1))
    put(cloud)
    assert sweep(cloud) == {IMAGE}
    assert cloud.stores.tasks.take("w", LEASE_SECONDS) is not None
    assert sweep(cloud) == {IMAGE}


@pytest.mark.parametrize(
    "properties",
    [
        {ORIGINAL_PROPERTY: OTHER},
        {ORIGINAL_PROPERTY: None},
        {TASK_PROPERTY: None},
        {TASK_PROPERTY: OTHER},
        {TASK_PROPERTY: "nonsense"},
        {"project": "p2"},
    ],
    ids=["snapshot", "plain", "of no task", "of a task nobody knows", "nonsense", "of others"],
)
def test_image_that_a_user_made_stays(cloud: Cloud, properties: dict[str, Any]) -> None:
    end(cloud)
    put(cloud, **properties)
    assert sweep(cloud) == {IMAGE}


def test_image_of_a_task_that_makes_none_stays(cloud: Cloud) -> None:
    end(cloud, TaskKind.CREATE)
    put(cloud)
    assert sweep(cloud) == {IMAGE}


def test_image_that_a_server_is_of_stays_until_it_is_deleted(cloud: Cloud) -> None:
    end(cloud)
    put(cloud)
    cloud.compute.change(SERVER, image=IMAGE)
    assert sweep(cloud) == {IMAGE}
    cloud.compute.delete(SERVER)
    assert sweep(cloud) == set()


@pytest.mark.parametrize("use", [f"image/{IMAGE}", f"restore/{OTHER}", f"export/{OTHER}"])
def test_image_that_a_version_or_a_task_may_need_stays(cloud: Cloud, use: str) -> None:
    end(cloud)
    put(cloud)
    cloud.versions.begin_use(version_id(1), use)
    assert sweep(cloud) == {IMAGE}
    cloud.versions.end_use(version_id(1), use)
    assert sweep(cloud) == set()


def test_image_goes_though_its_version_is_gone(cloud: Cloud) -> None:
    end(cloud)
    put(cloud)
    cloud.versions.delete(version_id(1))
    assert sweep(cloud) == set()


def away(cloud: Cloud, service: str, *faults: CallFault) -> LeftImages:
    """Return a sweep, where a service fails."""
    wrapped: Any = FaultyCalls(getattr(cloud.services, service), *faults)
    services = dataclasses.replace(cloud.services, **{service: wrapped})
    return LeftImages(
        cloud.stores, cloud.versions, services, IMAGE_GRACE, now=lambda: cloud.clock.now
    )


@pytest.mark.parametrize(
    ("service", "method"),
    [("compute", "is_image_used"), ("image_store", "made"), ("image_store", "delete")],
)
def test_service_that_is_away_keeps_all_and_fails_nothing(
    cloud: Cloud, service: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    end(cloud)
    put(cloud)
    put(cloud, OTHER)
    cloud.clock.advance(seconds=AFTER_GRACE)
    fault = CallFault(method, lambda: exception.UnavailableError("away"))
    assert away(cloud, service, fault).remove() == 0
    assert set(cloud.image_store.images) == {IMAGE, OTHER}
    assert "images in Glance are not swept: away" in caplog.text


def test_image_that_is_protected_stays_and_others_go(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    end(cloud)
    put(cloud)
    put(cloud, OTHER)
    cloud.clock.advance(seconds=AFTER_GRACE)
    fault = CallFault("delete", lambda: exception.ConflictError("it is protected"))
    assert away(cloud, "image_store", fault).remove() == 1
    assert set(cloud.image_store.images) == {IMAGE}
    assert f"image {IMAGE}, which task {TASK} left behind, stays" in caplog.text


def test_sweep_is_bounded_and_counted(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    end(cloud)
    for number in range(5):
        put(cloud, str(uuid.UUID(int=50 + number)))
    cloud.clock.advance(seconds=AFTER_GRACE)
    counted: list[None] = []
    count: Callable[[], None] = lambda: counted.append(None)  # noqa: E731
    one = LeftImages(
        cloud.stores,
        cloud.versions,
        cloud.services,
        IMAGE_GRACE,
        count=count,
        now=lambda: cloud.clock.now,
    )
    monkeypatch.setattr(left_images, "DELETED_MAX", 2)
    assert one.remove() == 2
    monkeypatch.setattr(left_images, "LOOKED_MAX", 1)
    assert one.remove() == 1
    assert len(cloud.image_store.images) == 2
    assert len(counted) == 3


def test_moment_since_which_images_are_looked_at_is_before_all_tasks_that_are_known(
    cloud: Cloud,
) -> None:
    asked: list[datetime.datetime] = []

    def made(since: datetime.datetime) -> list[Any]:
        asked.append(since)
        return []

    cloud.image_store.made = made  # type: ignore[assignment,method-assign]
    cloud.sweep()
    assert asked == [cloud.clock.now - datetime.timedelta(days=60)]
