"""Restores in place of servers: the disks, the refusals, whoever dies, and the ways back."""

import pathlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.repository.versions.states import VersionState
from acstor.versions import rebuilding
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Task
from testbed.doubles.memory_restores import TORN
from tests.unit.repository.versions.records import committed, version_id
from tests.unit.versions.flows import restored_server
from tests.unit.versions.flows.cloud import PROJECT, SERVER, TASK, Cloud, lost
from tests.unit.versions.flows.restored_server import (
    BASE,
    ONE,
    SECOND,
    cancel,
    code_of,
    prepared,
    raising,
    result_of,
    settle,
)


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return prepared(tmp_path)


def ask(cloud: Cloud, task_id: str = TASK, **more: Any) -> Task:
    return restored_server.ask(cloud, task_id, **{"method": "in_place", **more})


def check_end(cloud: Cloud, task: Task, status: str = "ACTIVE") -> None:
    """The disk is the version's, or what it was; the server is unlocked, and as it was."""
    settle(cloud)
    server = cloud.compute.known.get(SERVER)
    kept = cloud.version_ids() - {ONE}
    assert cloud.books_left() == 0
    assert cloud.captures.held == {}
    assert cloud.restores.held == {}
    assert not cloud.indexed_ids() - cloud.version_ids()
    for one in cloud.version_ids():
        assert cloud.versions.get(one).record.uses == ()
    assert cloud.image_store.images == {}
    if server is not None:
        assert (server.is_locked, server.lock_reason) == (False, None)
        assert (server.status, server.image) == (status, BASE)
    disk = cloud.restores.disks.get(SERVER)
    if task.state is TaskState.DONE or disk == task.parameters["version_id"]:
        (one,) = kept
        record = cloud.versions.get(one).record
        assert (record.trigger, record.name) == (Trigger.RESTORE, "before restore")
        assert record.state is VersionState.COMMITTED
        assert disk == task.parameters["version_id"]
    else:
        # Written back, or never written: the version that it was written back from is gone.
        assert kept == set()
        assert disk in (None, cloud_kept(cloud))


def cloud_kept(cloud: Cloud) -> str:
    """Return the id that the version of the present disk has, or had."""
    return str(uuid.uuid5(uuid.UUID(TASK), "disk vda"))


@pytest.mark.parametrize("status", ["ACTIVE", "SHUTOFF"])
def test_version_is_written_into_the_disk(cloud: Cloud, status: str) -> None:
    cloud.compute.change(SERVER, status=status)
    seen: list[tuple[str, bool]] = []

    def look() -> None:
        server = cloud.compute.known[SERVER]
        seen.append((server.status, server.is_locked))

    cloud.switch.on_call["MemoryRestores.start"] = look
    ask(cloud)
    task = cloud.work()
    result = result_of(task)
    check_end(cloud, task, status)
    assert seen == [("SHUTOFF", True)]
    assert (result["method"], result["status"], result["bytes_moved"]) == ("in_place", status, 40)
    assert result["reason"].startswith("80 bytes")
    (request,) = cloud.restores.requests
    assert (request.version, request.device, request.base_image) == (ONE, "vda", BASE)
    assert cloud.compute.disks == {}


@pytest.mark.parametrize(
    "server",
    [
        {"ephemeral_gib": 1},
        {"swap_mib": 1},
        {"flavor_specs": {"hw:tpm_version": "2.0"}},
    ],
)
def test_what_a_rebuild_would_destroy_stays(tmp_path: pathlib.Path, server: dict[str, Any]) -> None:
    cloud = prepared(tmp_path, **server)
    ask(cloud)
    task = cloud.work()
    result_of(task)
    check_end(cloud, task)


@pytest.mark.parametrize(
    ("server", "code", "text"),
    [
        ({"project": "p2"}, "acstor.not_found", "does not exist"),
        ({"status": "SHELVED_OFFLOADED"}, "acstor.fenced", "SHELVED_OFFLOADED"),
        ({"status": "ERROR"}, "acstor.fenced", "ERROR"),
        ({"image": None}, "acstor.unsupported", "boots from a volume"),
        ({"root_device": "vdb"}, "acstor.unsupported", "root disk is vdb"),
        ({"is_locked": True, "lock_reason": "mine"}, "acstor.server.busy", "is locked"),
    ],
)
def test_server_that_cannot_be_restored_is_left_alone(
    tmp_path: pathlib.Path, server: dict[str, Any], code: str, text: str
) -> None:
    cloud = prepared(tmp_path, **server)
    before = cloud.compute.known[SERVER]
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == code
    assert task.error is not None
    assert text in task.error.message
    assert cloud.compute.known[SERVER] == before
    assert (cloud.captures.requests, cloud.restores.requests) == ([], [])


def test_present_disk_is_always_kept(cloud: Cloud) -> None:
    ask(cloud, keep_current=False)
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"
    check_end(cloud, task)


def test_version_of_another_server_is_refused(cloud: Cloud) -> None:
    known = cloud.versions.get(ONE).record
    other = type(known.disk)(known.disk.kind, str(uuid.UUID(int=80)), "vda")
    cloud.versions.publish(version_id(2), committed(project=PROJECT, disk=other))
    ask(cloud, version_id=version_id(2))
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"


def test_refusal_of_the_host_leaves_the_disk(cloud: Cloud) -> None:
    cloud.restores.refusals = [exception.UnsupportedError("it was resized since")]
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"
    check_end(cloud, task)
    assert SERVER not in cloud.restores.disks


def test_host_that_fails_for_a_while_is_asked_again(cloud: Cloud) -> None:
    cloud.restores.refusals = [exception.ConflictError("the disk is in use")]
    cloud.restores.breaks = [exception.UnavailableError("killed")] * 3
    ask(cloud)
    task = cloud.work()
    result_of(task)
    check_end(cloud, task)
    assert len(cloud.restores.requests) == 5


def test_disk_that_cannot_be_written_is_written_back(cloud: Cloud) -> None:
    cloud.restores.breaks = [exception.CorruptError("a chunk is damaged")]
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.corrupt"
    check_end(cloud, task)
    assert cloud.restores.disks[SERVER] == cloud_kept(cloud)


def torn(cloud: Cloud) -> Task:
    """Have a restore and its way back fail."""
    cloud.restores.breaks = [exception.CorruptError("a chunk is damaged")] * 2
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.corrupt"
    return task


def test_disk_that_stays_half_written_is_never_started(cloud: Cloud) -> None:
    torn(cloud)
    settle(cloud)
    cloud.sweep()
    server = cloud.compute.known[SERVER]
    assert (server.status, rebuilding.is_torn(server)) == ("SHUTOFF", True)
    assert cloud.restores.disks[SERVER] == TORN
    # The version of the former disk is the way back.
    (kept,) = cloud.version_ids() - {ONE}
    assert cloud.versions.get(kept).record.is_restorable
    with pytest.raises(exception.ConflictError, match="locked"):
        cloud.compute.stop_by_user(SERVER)


def test_half_written_disk_is_mended_by_another_restore(cloud: Cloud) -> None:
    torn(cloud)
    restored_server.ask(cloud, SECOND)
    task = cloud.work()
    assert code_of(task) == "acstor.server.busy"
    assert task.error is not None
    assert "half written" in task.error.message
    third = str(uuid.UUID(int=101))
    ask(cloud, third)
    result_of(cloud.work())
    server = cloud.compute.known[SERVER]
    assert (server.is_locked, server.status) == (False, "SHUTOFF")
    assert cloud.restores.disks[SERVER] == ONE


def test_half_written_disk_stays_so_where_the_next_restore_fails_too(cloud: Cloud) -> None:
    torn(cloud)
    cloud.restores.refusals = [exception.UnsupportedError("no")]
    ask(cloud, SECOND)
    assert cloud.work().state is TaskState.FAILED
    cloud.sweep()
    server = cloud.compute.known[SERVER]
    assert (server.status, rebuilding.is_torn(server)) == ("SHUTOFF", True)


def test_host_that_is_gone_in_mid_write_leaves_the_server_locked(cloud: Cloud) -> None:
    cloud.switch.on_answer["MemoryRestores.progress"] = lambda: cloud.restores.silent.add("h1")
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unavailable"
    cloud.sweep()
    assert rebuilding.is_torn(cloud.compute.known[SERVER])


def test_nova_that_is_away_while_it_is_written_back_leaves_the_server_locked(cloud: Cloud) -> None:
    """Nobody can say then that the disk is torn: it was said before."""
    cloud.restores.breaks = [exception.CorruptError("a chunk is damaged")]
    away: list[bool] = []

    def fail() -> None:
        if cloud.restores.disks.get(SERVER) == TORN and len(away) < 100:
            away.append(True)
            raise lost()

    cloud.switch.on_call["MemoryCompute.find_server"] = fail
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.corrupt"
    cloud.switch.on_call.clear()
    settle(cloud)
    cloud.sweep()
    server = cloud.compute.known[SERVER]
    if cloud.restores.disks[SERVER] == TORN:
        assert (server.status, rebuilding.is_torn(server)) == ("SHUTOFF", True)
    else:
        check_end(cloud, task)


def test_administrator_who_starts_it_in_the_middle(cloud: Cloud) -> None:
    cloud.switch.on_call["MemoryCaptures.progress"] = lambda: cloud.compute.change(
        SERVER, status="ACTIVE"
    )
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.fenced"
    assert cloud.restores.requests == []
    check_end(cloud, task)


def test_administrator_who_unlocks_in_the_middle(cloud: Cloud) -> None:
    cloud.switch.on_call["MemoryCaptures.start"] = lambda: cloud.compute.unlock(SERVER)
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.server.busy"
    settle(cloud)
    server = cloud.compute.known[SERVER]
    assert (server.status, server.is_locked) == ("ACTIVE", False)
    assert SERVER not in cloud.restores.disks
    # Nobody can tell any more whether it is needed.
    assert cloud.versions.get(cloud_kept(cloud)).record.is_restorable


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        "MemoryCompute.lock",
        "MemoryCompute.stop",
        "MemoryCaptures.start",
        "MemoryRestores.start",
        "MemoryRestores.progress",
        "MemoryCompute.start",
    ],
)
def test_cancelled_anywhere_the_disk_is_what_it_was_or_whole(
    cloud: Cloud, call: str, is_after: bool
) -> None:
    hooks = cloud.switch.on_answer if is_after else cloud.switch.on_call
    hooks[call] = lambda: cancel(cloud)
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.CANCELLED
    check_end(cloud, task)


@pytest.mark.parametrize("call", ["stop", "start", "lock", "unlock", "find_server"])
@pytest.mark.parametrize("is_after", [False, True])
def test_nova_that_fails_once_is_asked_again(cloud: Cloud, call: str, is_after: bool) -> None:
    failed: list[str] = []

    def fail() -> None:
        if not failed:
            failed.append(call)
            raise lost()

    hooks = cloud.switch.on_answer if is_after else cloud.switch.on_call
    hooks[f"MemoryCompute.{call}"] = fail
    ask(cloud)
    task = cloud.work()
    assert failed
    result_of(task)
    check_end(cloud, task)


def test_server_that_cannot_be_started_again_is_restored(cloud: Cloud) -> None:
    cloud.switch.on_call["MemoryCompute.start"] = raising(lost)
    ask(cloud)
    assert result_of(cloud.work())["status"] == "SHUTOFF"


@pytest.mark.parametrize("call", ["MemoryCaptures.start", "MemoryRestores.start"])
def test_server_that_is_deleted_in_the_middle(cloud: Cloud, call: str) -> None:
    def delete() -> None:
        cloud.compute.known.pop(SERVER, None)

    cloud.switch.on_answer[call] = delete
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.FAILED or call == "MemoryRestores.start"
    cloud.sweep()
    assert cloud.books_left() == 0


def ways(folder: pathlib.Path) -> dict[str, Callable[[], Cloud]]:
    """Return ways that a restore goes, by name."""

    def ready(status: str = "ACTIVE", damaged: str = "") -> Cloud:
        cloud = prepared(folder, status=status)
        cloud.restores.damaged = {damaged}
        ask(cloud)
        return cloud

    return {
        "running": ready,
        "shut off": lambda: ready("SHUTOFF"),
        "written back": lambda: ready(damaged=ONE),
    }


def check_kill(
    ready: Callable[[], Cloud], at: int, expected: Task, status: str, *, is_after: bool
) -> None:
    """Kill a worker at one call, and have the task end as it would have."""
    cloud = ready()
    cloud.switch.arm(at, is_after=is_after)
    task = cloud.work_on()
    # A failure that only the dead worker has heard of is none: the next one tries again.
    assert task.state in (expected.state, TaskState.DONE), cloud.switch.names[at - 1]
    cloud.sweep()
    check_end(cloud, task, status)


@pytest.mark.parametrize("way", ["running", "written back"])
def test_killed_before_every_call_and_write_it_ends_as_it_would_have(
    tmp_path: pathlib.Path, way: str
) -> None:
    ready = ways(tmp_path)[way]
    whole = ready()
    expected = whole.work()
    for at in range(1, whole.switch.calls + 1):
        check_kill(ready, at, expected, "ACTIVE", is_after=False)


def test_killed_after_every_call_it_ends_as_it_would_have(tmp_path: pathlib.Path) -> None:
    """Of the other ways those after calls are enough: writes are like those before the next."""
    for way, status in (("shut off", "SHUTOFF"), ("written back", "ACTIVE")):
        ready = ways(tmp_path)[way]
        whole = ready()
        expected = whole.work()
        for at, name in enumerate(list(whole.switch.names), 1):
            if name.startswith(("Memory", "VersionStore")):
                check_kill(ready, at, expected, status, is_after=True)
