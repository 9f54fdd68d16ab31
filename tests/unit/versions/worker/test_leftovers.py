"""Leftovers of tasks that have ended, and of no others."""

import dataclasses
import pathlib
import uuid
from typing import Any, cast

import pytest

from acstor import exception
from acstor.repository.versions.record import VersionRecord
from acstor.versions.database.tasks import TaskKind
from acstor.versions.database.version_index import IndexedVersion
from acstor.versions.services.compute import Compute
from acstor.versions.services.image_store import NewImage
from acstor.versions.worker.leftovers import Leftovers
from testbed.doubles.faulty_calls import CallFault, FaultyCalls
from tests.unit.repository.versions.records import captured, committed, version_id
from tests.unit.versions.flows.cloud import TASK, Cloud

OTHER = str(uuid.UUID(int=98))


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    found = Cloud(tmp_path)
    found.ask(TaskKind.RESTORE, "volume/x")
    return found


def put(cloud: Cloud, number: int, record: VersionRecord, *uses: str) -> Any:
    one = version_id(number)
    if record.is_restorable:
        cloud.versions.publish(one, record)
    else:
        cloud.versions.begin(one, record)
    for use in uses:
        cloud.versions.begin_use(one, use)
    cloud.stores.versions.put(IndexedVersion.of(one, cloud.versions.get(one).record))
    return one


def remove(cloud: Cloud) -> int:
    return Leftovers(cloud.stores, cloud.versions, cloud.services).remove()


def test_use_of_a_task_ends_with_it(cloud: Cloud) -> None:
    uses = (f"restore/{TASK}", f"restore/{OTHER}", "image/x")
    cloud.image_store.create(NewImage("x", "", "p1", "raw", 1, {}))
    one = put(cloud, 1, committed(), *uses)
    assert remove(cloud) == 0
    assert cloud.versions.get(one).record.uses == tuple(sorted(uses))
    cloud.stores.tasks.cancel(TASK)
    assert remove(cloud) == 1
    assert cloud.versions.get(one).record.uses == ("image/x", f"restore/{OTHER}")
    assert remove(cloud) == 0


def test_lock_of_a_task_ends_with_it(cloud: Cloud) -> None:
    compute = cloud.compute
    locks = {"a": f"acstor restore {TASK}", "b": f"acstor restore {OTHER}", "c": "mine", "d": None}
    for server, reason in locks.items():
        compute.add(server, "p1", is_locked=True, lock_reason=reason)
    assert remove(cloud) == 0
    cloud.stores.tasks.cancel(TASK)
    assert remove(cloud) == 1
    assert [server for server in locks if not compute.known[server].is_locked] == ["a"]


def test_locks_are_left_while_nova_is_away(cloud: Cloud) -> None:
    fault = CallFault("locked_servers", lambda: exception.UnavailableError("away"))
    away = cast("Compute", FaultyCalls(cloud.compute, fault))
    services = dataclasses.replace(cloud.services, compute=away)
    one = put(cloud, 1, committed(), f"restore/{TASK}")
    cloud.stores.tasks.cancel(TASK)
    assert Leftovers(cloud.stores, cloud.versions, services).remove() == 1
    assert cloud.versions.get(one).record.uses == ()


def test_deleted_version_goes_with_its_last_use(cloud: Cloud) -> None:
    one = put(cloud, 1, committed(), f"restore/{TASK}")
    cloud.versions.delete(one)
    cloud.stores.tasks.cancel(TASK)
    assert remove(cloud) == 1
    assert cloud.version_ids() == cloud.indexed_ids() == set()


def test_capture_of_a_task_that_failed_is_abandoned(cloud: Cloud) -> None:
    mine = put(cloud, 1, captured(group=TASK))
    others = put(cloud, 2, captured(group=OTHER))
    alone = put(cloud, 3, captured())
    assert remove(cloud) == 0
    cloud.stores.tasks.cancel(TASK)
    assert remove(cloud) == 1
    assert cloud.version_ids() == cloud.indexed_ids() == {others, alone}
    assert mine not in cloud.version_ids()
