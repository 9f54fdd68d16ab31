"""Restores in place of several disks, and of UEFI variables: all of it, or what it was."""

import pathlib
import uuid
from typing import Any, cast

import pytest

from acstor import exception
from acstor.repository.versions.record import DiskKind, DiskName
from acstor.versions import rebuilding
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Task
from acstor.versions.flows import restore_in_place
from acstor.versions.flows.work import Work
from testbed.doubles.memory_restores import TORN
from tests.unit.repository.images import disk, register
from tests.unit.repository.versions.records import committed, version_id
from tests.unit.versions.flows import restored_server
from tests.unit.versions.flows.cloud import PROJECT, SERVER, TASK, Cloud
from tests.unit.versions.flows.restored_server import (
    BASE,
    ONE,
    SECOND,
    code_of,
    prepared,
    result_of,
    settle,
)

GROUP = str(uuid.UUID(int=90))
TWO = version_id(2)
THIRD, FOURTH = (str(uuid.UUID(int=number)) for number in (101, 102))
"""Ids of further tasks."""


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return ready(tmp_path)


def ready(folder: pathlib.Path) -> Cloud:
    """Return a cloud with a server of two disks and UEFI variables, and versions of all."""
    cloud = prepared(folder, ephemeral_gib=1, root_device="vda")
    cloud.versions.delete(ONE)
    versions, present = (
        register(cloud.versions.repository, number, disk(number)).manifest for number in (6, 7)
    )
    known: dict[str, Any] = {"project": PROJECT, "group": GROUP, "group_size": 2}
    for one, device, nvram in ((ONE, "vda", versions), (TWO, "vdb", None)):
        name = DiskName(DiskKind.INSTANCE, SERVER, device)
        record = committed(disk=name, nvram=nvram, base_image=BASE, **known)
        cloud.versions.publish(one, record)
    cloud.captures.devices[SERVER] = ("vda", "vdb")
    cloud.captures.variables[SERVER] = present
    return cloud


def ask(cloud: Cloud, task_id: str = TASK, **more: Any) -> Task:
    wanted = {
        "versions": [ONE, TWO],
        "version_id": None,
        "group_id": GROUP,
        "restore_nvram": True,
        "method": "in_place",
    }
    return restored_server.ask(cloud, task_id, **{**wanted, **more})


def kept(device: str, task: str = TASK) -> str:
    """Return the id that the version of a present disk has, or had."""
    return str(uuid.uuid5(uuid.UUID(task), f"disk {device}"))


def disks(cloud: Cloud) -> tuple[str | None, ...]:
    """Return what each disk has, and the variables; None: what it had before anything was done."""
    found = cloud.restores
    return (
        found.disks.get(SERVER),
        found.further.get((SERVER, "vdb")),
        found.variables.get(SERVER),
    )


def check_end(cloud: Cloud, task: Task) -> None:
    """All is the versions', or all is what it was; the server is unlocked, and runs."""
    settle(cloud)
    server = cloud.compute.known[SERVER]
    assert (server.status, server.is_locked, server.lock_reason) == ("ACTIVE", False, None)
    assert (cloud.books_left(), cloud.captures.held, cloud.restores.held) == (0, {}, {})
    assert not cloud.indexed_ids() - cloud.version_ids()
    for one in cloud.version_ids():
        assert cloud.versions.get(one).record.uses == ()
    left = cloud.version_ids() - {ONE, TWO}
    if task.state is TaskState.DONE:
        assert disks(cloud) == (ONE, TWO, ONE)
        assert left == {kept("vda"), kept("vdb")}
    else:
        former = (kept("vda"), kept("vdb"), kept("vda"))
        assert disks(cloud) in ((None, None, None), former)
        assert left == set()


def test_all_disks_of_a_group_are_written_with_the_variables(cloud: Cloud) -> None:
    ask(cloud)
    task = cloud.work()
    result = result_of(task)
    check_end(cloud, task)
    (request,) = cloud.restores.requests
    assert [disk.device for disk in request.disks] == ["vda", "vdb"]
    (capture,) = cloud.captures.requests
    assert capture.devices == ("vda", "vdb")
    assert (result["version_id"], result["kept_version_id"]) == (ONE, kept("vda"))
    assert result["nvram_version_id"] == ONE
    assert result["disks"] == [
        {"disk": "vda", "version_id": ONE, "kept_version_id": kept("vda")},
        {"disk": "vdb", "version_id": TWO, "kept_version_id": kept("vdb")},
    ]


@pytest.mark.parametrize("method", ["auto", "in_place"])
def test_disks_that_are_named_are_restored_in_place(cloud: Cloud, method: str) -> None:
    ask(cloud, method=method, versions=[ONE], version_id=ONE, group_id=None, disks=["vda"])
    task = cloud.work()
    result = result_of(task)
    assert result["method"] == "in_place"
    assert ("disks were named" in result["reason"]) == (method == "auto")


def test_disk_that_is_named_is_written_alone(cloud: Cloud) -> None:
    ask(cloud, versions=[TWO], version_id=TWO, group_id=None, disks=["vdb"])
    task = cloud.work()
    assert result_of(task)["nvram_version_id"] is None
    assert disks(cloud) == (TWO, None, None)  # the first one of the request
    assert cloud.restores.requests[0].devices == {"vdb"}
    assert cloud.version_ids() - {ONE, TWO} == {kept("vdb")}


def test_version_of_another_disk_that_nobody_has_named_is_a_mistake(cloud: Cloud) -> None:
    ask(cloud, versions=[TWO], version_id=TWO, group_id=None)
    assert code_of(cloud.work()) == "acstor.unsupported"
    assert cloud.restores.requests == []


@pytest.mark.parametrize("is_wanted", [True, False])
def test_variables_go_with_the_root_disk_unless_they_are_to_stay(
    cloud: Cloud, is_wanted: bool
) -> None:
    ask(cloud, versions=[ONE], version_id=ONE, group_id=None, restore_nvram=is_wanted)
    result_of(cloud.work())
    assert disks(cloud) == (ONE, None, ONE if is_wanted else None)


def test_present_variables_that_are_not_kept_have_nothing_written(cloud: Cloud) -> None:
    cloud.captures.variables.clear()
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.fenced"
    assert cloud.restores.requests == []
    check_end(cloud, task)


def test_host_of_an_older_release_refuses_before_anything_is_written(cloud: Cloud) -> None:
    cloud.restores.older.add("h1")
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"
    assert (cloud.captures.requests, cloud.restores.requests) == ([], [])
    check_end(cloud, task)


def test_set_that_fails_is_written_back_with_the_variables(cloud: Cloud) -> None:
    cloud.restores.damaged = {TWO}
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.corrupt"
    check_end(cloud, task)
    assert disks(cloud) == (kept("vda"), kept("vdb"), kept("vda"))


def test_half_written_set_is_mended_as_a_whole(cloud: Cloud) -> None:
    cloud.restores.breaks = [exception.CorruptError("a chunk is damaged")] * 2
    ask(cloud)
    assert code_of(cloud.work()) == "acstor.corrupt"
    settle(cloud)
    cloud.sweep()
    server = cloud.compute.known[SERVER]
    assert (server.status, rebuilding.is_torn(server)) == ("SHUTOFF", True)
    assert server.lock_reason == rebuilding.torn_lock_reason(TASK, ["vda", "vdb"])
    assert disks(cloud) == (TORN, TORN, None)
    for device in ("vda", "vdb"):
        assert cloud.versions.get(kept(device)).record.is_restorable
    ask(cloud, SECOND, versions=[ONE], version_id=ONE, group_id=None)
    task = cloud.work()
    assert code_of(task) == "acstor.server.busy"
    assert task.error is not None
    assert "vdb" in task.error.message
    ask(cloud, THIRD)
    result_of(cloud.work())
    assert disks(cloud) == (ONE, TWO, ONE)
    assert not cloud.compute.known[SERVER].is_locked


def test_half_written_root_disk_is_mended_first_where_the_host_has_lost_its_record(
    cloud: Cloud,
) -> None:
    """The lock of a root disk names none: that is what every release has it say."""
    cloud.restores.breaks = [exception.CorruptError("a chunk is damaged")] * 2
    ask(cloud, versions=[ONE], version_id=ONE, group_id=None)
    assert code_of(cloud.work()) == "acstor.corrupt"
    settle(cloud)
    reason = rebuilding.torn_lock_reason(TASK)
    assert cloud.compute.known[SERVER].lock_reason == reason
    cloud.restores.held.clear()
    ask(cloud, SECOND, versions=[TWO], version_id=TWO, group_id=None, disks=["vdb"])
    task = cloud.work()
    assert code_of(task) == "acstor.server.busy"
    assert task.error is not None
    assert "vda" in task.error.message
    server = cloud.compute.known[SERVER]
    assert (server.status, server.lock_reason) == ("SHUTOFF", reason)


def test_disk_that_a_mending_set_tears_is_named_beside_the_one_torn_before(cloud: Cloud) -> None:
    """Else a restore of the first alone, with the host's record lost, would start the server."""
    cloud.restores.breaks = [exception.CorruptError("a chunk is damaged")] * 4
    ask(cloud, versions=[ONE], version_id=ONE, group_id=None)
    assert code_of(cloud.work()) == "acstor.corrupt"
    settle(cloud)
    assert cloud.compute.known[SERVER].lock_reason == rebuilding.torn_lock_reason(TASK)
    ask(cloud, SECOND)
    assert code_of(cloud.work()) == "acstor.corrupt"
    settle(cloud)
    reason = rebuilding.torn_lock_reason(TASK, ["vda", "vdb"])
    assert cloud.compute.known[SERVER].lock_reason == reason
    cloud.restores.held.clear()
    ask(cloud, THIRD, versions=[ONE], version_id=ONE, group_id=None)
    task = cloud.work()
    assert code_of(task) == "acstor.server.busy"
    assert task.error is not None
    assert "vdb" in task.error.message
    ask(cloud, FOURTH)
    result_of(cloud.work())
    assert disks(cloud) == (ONE, TWO, ONE)
    assert not cloud.compute.known[SERVER].is_locked


@pytest.mark.parametrize("damaged", [None, TWO])
def test_killed_where_a_set_differs_it_ends_as_it_would_have(
    tmp_path: pathlib.Path, damaged: str | None
) -> None:
    """Of one disk every call is tried; here the last of each kind that is of several disks."""

    def begun() -> Cloud:
        cloud = ready(tmp_path)
        cloud.restores.damaged = {damaged or ""}
        ask(cloud)
        return cloud

    whole = begun()
    expected = whole.work()
    last = {name: at for at, name in enumerate(whole.switch.names, 1)}
    calls = ("MemoryRestores", "VersionStore")
    for at in (at for name, at in last.items() if name.startswith(calls)):
        cloud = begun()
        cloud.switch.arm(at, is_after=damaged is not None)
        task = cloud.work_on()
        assert task.state in (expected.state, TaskState.DONE), whole.switch.names[at - 1]
        cloud.sweep()
        check_end(cloud, task)


class Results:
    """Results of steps of a task that the release before has begun."""

    def __init__(self) -> None:
        self.parameters = {"version_id": ONE}

    def result_of(self, step: str) -> Any:
        return {"check": {"device": "vda"}, "index": {"version_id": TWO}}[step]


def test_flow_that_the_release_before_has_begun_goes_on() -> None:
    work = cast(Work, Results())
    wanted, present = restore_in_place.disks_of(work), restore_in_place.kept_of(work)
    assert present is not None
    assert (wanted.devices, wanted.versions, wanted.nvram) == (["vda"], [ONE], None)
    assert (present.devices, present.versions, present.nvram) == (["vda"], [TWO], None)
