"""Restores in place where the marker of a half written disk, or what it marks, is taken away."""

import pathlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from acstor import exception
from acstor.versions import rebuilding
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import NewTask, Task, TaskKind
from testbed.doubles.memory_restores import TORN
from tests.unit.versions.flows import restored_server
from tests.unit.versions.flows.cloud import LEASE_SECONDS, PROJECT, SERVER, Cloud, Killed
from tests.unit.versions.flows.restored_server import ONE, cancel, code_of, prepared, settle
from tests.unit.versions.flows.test_restore_in_place import check_end, cloud_kept, torn


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return prepared(tmp_path)


def ask(cloud: Cloud) -> None:
    restored_server.ask(cloud, method="in_place")


def when_torn(cloud: Cloud, act: Callable[[], object]) -> None:
    """Have something happen once, as soon as the disk is half written."""
    done: list[bool] = []

    def look() -> None:
        if not done and cloud.restores.disks.get(SERVER) == TORN:
            done.append(True)
            act()

    cloud.switch.on_answer["MemoryRestores.progress"] = look


def check_torn(cloud: Cloud) -> None:
    """Nobody starts it, and the version of the former disk is there."""
    settle(cloud)
    cloud.sweep()
    server = cloud.compute.known[SERVER]
    assert (server.status, rebuilding.is_torn(server)) == ("SHUTOFF", True)
    assert cloud.versions.get(cloud_kept(cloud)).record.is_restorable


def test_disk_of_a_server_that_is_unlocked_in_mid_write_is_written_back(cloud: Cloud) -> None:
    when_torn(cloud, lambda: cloud.compute.unlock(SERVER))
    cloud.restores.breaks = [exception.CorruptError("damaged")]
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.corrupt"
    check_end(cloud, task)
    assert cloud.restores.disks[SERVER] == cloud_kept(cloud)


def test_half_written_disk_of_a_server_that_is_unlocked_is_not_started(cloud: Cloud) -> None:
    when_torn(cloud, lambda: cloud.compute.unlock(SERVER))
    cloud.restores.breaks = [exception.CorruptError("damaged")] * 2
    ask(cloud)
    assert code_of(cloud.work()) == "acstor.corrupt"
    assert cloud.restores.disks[SERVER] == TORN
    check_torn(cloud)


def test_host_that_has_lost_its_record_in_mid_write_writes_the_disk_back(cloud: Cloud) -> None:
    when_torn(cloud, cloud.restores.held.clear)
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.FAILED
    check_end(cloud, task)
    assert cloud.restores.disks[SERVER] == cloud_kept(cloud)


def test_cancelled_once_the_host_has_forgotten_the_former_disk_is_kept(cloud: Cloud) -> None:
    cloud.switch.on_answer["MemoryRestores.discard"] = lambda: cancel(cloud)
    ask(cloud)
    task = cloud.work()
    check_end(cloud, task)
    assert cloud.restores.disks[SERVER] == ONE


def test_killed_and_cancelled_once_the_host_has_forgotten_the_former_disk_is_kept(
    tmp_path: pathlib.Path,
) -> None:
    whole = prepared(tmp_path)
    ask(whole)
    whole.work()
    cloud = prepared(tmp_path)
    ask(cloud)
    cloud.switch.arm(whole.switch.names.index("MemoryRestores.discard") + 1, is_after=True)
    with pytest.raises(Killed):
        cloud.work()
    cancel(cloud)
    cloud.switch.arm(None)
    cloud.clock.advance(seconds=LEASE_SECONDS + 1)
    task = cloud.work()
    assert task.state is TaskState.CANCELLED
    check_end(cloud, task)
    assert cloud.restores.disks[SERVER] == ONE


@pytest.mark.parametrize("call", ["start", "progress"])
def test_host_of_an_older_release_leaves_the_server_as_it_was(cloud: Cloud, call: str) -> None:
    def refuse() -> None:
        raise exception.UnsupportedError("the host knows no such message")

    cloud.switch.on_call[f"MemoryRestores.{call}"] = refuse
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unsupported"
    check_end(cloud, task)
    assert SERVER not in cloud.restores.disks


def test_server_that_is_moved_in_mid_write_stays_locked(cloud: Cloud) -> None:
    when_torn(cloud, lambda: cloud.compute.change(SERVER, host="h2"))
    ask(cloud)
    assert code_of(cloud.work()) == "acstor.fenced"
    check_torn(cloud)


def test_lock_that_does_not_take_the_reason_has_nothing_written(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nova leaves a lock as it is where it is set again in the server's own project."""
    lock = cloud.compute.lock

    def lock_once(server_id: str, reason: str) -> None:
        if not cloud.compute.known[server_id].is_locked:
            lock(server_id, reason)

    monkeypatch.setattr(cloud.compute, "lock", lock_once)
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.fenced"
    check_end(cloud, task)
    assert cloud.restores.requests == []


def test_server_of_a_host_without_agent_is_started_again(cloud: Cloud) -> None:
    """Its lock says that nothing was written, so nobody need ask the host."""

    def go_away() -> None:
        cloud.restores.silent.add("h1")
        raise exception.UnavailableError("away")

    cloud.switch.on_call["MemoryCaptures.start"] = go_away
    ask(cloud)
    assert code_of(cloud.work()) == "acstor.unavailable"
    settle(cloud)
    server = cloud.compute.known[SERVER]
    assert (server.status, server.is_locked) == ("ACTIVE", False)


def create(cloud: Cloud, **more: Any) -> Task:
    """Take a version of the server."""
    wanted = {"kind": "server", "owner": SERVER, **more}
    new = NewTask(str(uuid.UUID(int=200)), PROJECT, TaskKind.CREATE, f"server/{SERVER}", wanted)
    cloud.stores.tasks.create(new)
    return cloud.work()


@pytest.mark.parametrize("event", [{}, {"host": "h1", "trigger": "shutdown"}])
def test_no_version_is_taken_of_a_half_written_disk(cloud: Cloud, event: dict[str, str]) -> None:
    """Not by a notification either: the restore has shut the server off itself."""
    torn(cloud)
    before = cloud.version_ids()
    task = create(cloud, **event)
    assert code_of(task) == "acstor.server.busy"
    assert cloud.version_ids() == before
