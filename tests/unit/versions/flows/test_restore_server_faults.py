"""Restores of servers, whoever dies, whatever Nova does, and whoever else is at work."""

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from acstor import exception
from acstor.versions import rebuilding
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Task
from acstor.versions.flows.work import CancelledError
from tests.unit.repository.images import image_id
from tests.unit.versions.flows.cloud import SERVER, TASK, Cloud, lost
from tests.unit.versions.flows.restored_server import (
    ONE,
    ask,
    cancel,
    check_end,
    code_of,
    prepared,
    raising,
    result_of,
)

CALLS = ("find_server", "last_rebuild", "lock", "unlock", "rebuild")


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Cloud:
    return prepared(tmp_path)


def test_work_that_nova_is_at_is_waited_for(cloud: Cloud) -> None:
    cloud.compute.change(SERVER, task_state="powering-off")
    ask(cloud)
    assert result_of(cloud.work())["status"] == "SHUTOFF"


def test_server_that_stays_busy_is_given_up(cloud: Cloud) -> None:
    cloud.compute.change(SERVER, task_state="migrating")
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.server.busy"
    check_end(cloud, task)


def test_administrator_who_begins_something_in_the_middle(cloud: Cloud) -> None:
    """An operation that ends is waited for; afterwards the server is rebuilt."""
    switch, compute = cloud.switch, cloud.compute

    def begin() -> None:
        del switch.on_call["MemoryCompute.rebuild"]
        compute.change(SERVER, task_state="powering-off")

    switch.on_call["MemoryCompute.rebuild"] = begin
    ask(cloud)
    task = cloud.work()
    check_end(cloud, task)
    assert result_of(task)["status"] == "ACTIVE"


def test_administrator_who_rebuilds_in_the_middle(cloud: Cloud) -> None:
    other = image_id(8)

    def rebuild() -> None:
        del cloud.switch.on_call["MemoryCompute.rebuild"]
        cloud.compute.rebuild(SERVER, other)

    cloud.switch.on_call["MemoryCompute.rebuild"] = rebuild
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.fenced"
    assert not cloud.compute.known[SERVER].is_locked
    # What was on the disk is nowhere else.
    assert len(cloud.version_ids()) == 2


def test_administrator_who_unlocks_in_the_middle(cloud: Cloud) -> None:
    cloud.switch.on_call["MemoryCaptures.start"] = lambda: cloud.compute.unlock(SERVER)
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.server.busy"
    check_end(cloud, task)


@pytest.mark.parametrize(
    "call", ["MemoryImageStore.upload", "MemoryCaptures.start", "MemoryCompute.rebuild"]
)
@pytest.mark.parametrize("is_after", [False, True])
def test_server_that_is_deleted_in_the_middle(cloud: Cloud, call: str, is_after: bool) -> None:
    hooks = cloud.switch.on_answer if is_after else cloud.switch.on_call
    hooks[call] = lambda: cloud.compute.delete(SERVER)
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.not_found"
    assert cloud.image_store.images == {}
    assert cloud.versions.get(ONE).record.uses == ()
    # A version that is whole is all that there is of the disk.
    assert len(cloud.version_ids()) == 1 + (call != "MemoryImageStore.upload")
    assert cloud.captures.held == {}


def test_rebuild_that_nova_fails_at_keeps_what_there_was(cloud: Cloud) -> None:
    cloud.compute.rebuild_fault = "No valid host was found."
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.server.rebuild_failed"
    assert task.error is not None
    assert "No valid host was found." in task.error.message
    (kept,) = cloud.version_ids() - {ONE}
    assert kept in task.error.hint
    check_end(cloud, task)


def test_rebuild_that_hangs_is_given_up(cloud: Cloud) -> None:
    cloud.switch.on_call["MemoryCompute.rebuild"] = lambda: setattr(cloud.compute, "hangs", True)
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unavailable"
    cloud.compute.hangs = False
    check_end(cloud, task)


def test_rebuild_that_nova_refuses_changes_nothing(cloud: Cloud) -> None:
    cloud.compute.images = set()
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.invalid"
    check_end(cloud, task)


def test_rebuild_that_nova_refuses_in_every_state_is_given_up_soon(cloud: Cloud) -> None:
    """Nova does so to servers with shares."""
    refused = raising(lambda: exception.ConflictError("it has shares"))
    cloud.switch.on_call["MemoryCompute.rebuild"] = refused
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.fenced"
    assert cloud.switch.names.count("MemoryCompute.rebuild") == 3
    check_end(cloud, task)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(
    "call",
    ["MemoryImageStore.upload", "MemoryCompute.lock", "MemoryCaptures.start"],
)
def test_cancelled_before_the_rebuild_nothing_is_left(
    cloud: Cloud, call: str, is_after: bool
) -> None:
    hooks = cloud.switch.on_answer if is_after else cloud.switch.on_call
    hooks[call] = lambda: cancel(cloud)
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.CANCELLED
    check_end(cloud, task)
    assert cloud.compute.disks == {}


def test_cancelled_after_it_the_disk_is_kept(cloud: Cloud) -> None:
    cloud.switch.on_answer["MemoryCompute.rebuild"] = lambda: cancel(cloud)
    ask(cloud)
    task = cloud.work()
    assert task.state is TaskState.CANCELLED
    check_end(cloud, task)
    assert len(cloud.version_ids()) == 2


class Once:
    """Fails at the n-th call of those that Nova gets."""

    def __init__(self, at: int) -> None:
        self.calls, self._at = 0, at

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self._at:
            raise lost()


@pytest.mark.parametrize("is_after", [False, True])
def test_nova_that_fails_once_at_any_call_is_asked_again(
    tmp_path: pathlib.Path, is_after: bool
) -> None:
    status = "SHUTOFF"
    for call in CALLS:
        at = 0
        while True:
            at += 1
            cloud, once = prepared(tmp_path, status=status), Once(at)
            hooks = cloud.switch.on_answer if is_after else cloud.switch.on_call
            hooks[f"MemoryCompute.{call}"] = once
            ask(cloud)
            task = cloud.work()
            if once.calls < at:
                break
            assert result_of(task)["status"] == status, f"{call} {at}"
            check_end(cloud, task)
            assert len(cloud.compute.disks[SERVER]) == 1, f"{call} {at}"


@pytest.mark.parametrize("call", ["find_server", "last_rebuild", "lock", "rebuild"])
def test_nova_that_stays_away_is_given_up(cloud: Cloud, call: str) -> None:
    cloud.switch.on_call[f"MemoryCompute.{call}"] = raising(lost)
    ask(cloud)
    task = cloud.work()
    assert code_of(task) == "acstor.unavailable"
    cloud.switch.on_call.clear()
    cloud.sweep()
    check_end(cloud, task)


def test_lock_that_cannot_be_taken_off_is_swept(cloud: Cloud) -> None:
    cloud.switch.on_call["MemoryCompute.unlock"] = raising(lost)
    ask(cloud)
    task = cloud.work()
    result_of(task)
    assert cloud.compute.known[SERVER].lock_reason == rebuilding.lock_reason(TASK)
    cloud.sweep()
    check_end(cloud, task)


def ways(folder: pathlib.Path) -> dict[str, Callable[[], Cloud]]:
    """Return ways that a restore goes, by name."""

    def ready(*, state: str = "ACTIVE", fault: str | None = None, **parameters: Any) -> Cloud:
        cloud = prepared(folder, status=state)
        cloud.compute.rebuild_fault = fault
        ask(cloud, **parameters)
        return cloud

    def refused() -> Cloud:
        cloud = ready()
        cloud.compute.images = set()
        return cloud

    return {
        "running": ready,
        "shut off": lambda: ready(state="SHUTOFF"),
        "not kept": lambda: ready(keep_current=False),
        "refused": refused,
        "broken": lambda: ready(fault="no host"),
    }


def check_kill(ready: Callable[[], Cloud], at: int, expected: Task, *, is_after: bool) -> None:
    """Kill a worker at one call, and have the task end as it would have."""
    cloud = ready()
    cloud.switch.arm(at, is_after=is_after)
    task = cloud.work_on()
    assert task.state is expected.state
    cloud.sweep()
    check_end(cloud, task)
    assert len(cloud.compute.disks.get(SERVER, ())) <= 1
    if expected.state is TaskState.DONE:
        assert result_of(task)["status"] == result_of(expected)["status"]


def test_killed_before_every_call_and_write_it_ends_as_it_would_have(
    tmp_path: pathlib.Path,
) -> None:
    ready = ways(tmp_path)["running"]
    whole = ready()
    expected = whole.work()
    for at in range(1, whole.switch.calls + 1):
        check_kill(ready, at, expected, is_after=False)


@pytest.mark.parametrize("way", ["shut off", "not kept", "refused", "broken"])
def test_killed_after_every_call_it_ends_as_it_would_have(tmp_path: pathlib.Path, way: str) -> None:
    """A kill after a call or write leaves what one before the next leaves: of the other ways those
    after calls are enough, from the lock on."""
    ready = ways(tmp_path)[way]
    whole = ready()
    expected = whole.work()
    names = list(whole.switch.names)
    begin = names.index("MemoryCompute.lock")
    for at, name in enumerate(names, 1):
        if at > begin and name.startswith(("Memory", "VersionStore")):
            check_kill(ready, at, expected, is_after=True)


def test_cancelled_is_no_reason_to_ask_for_less(cloud: Cloud) -> None:
    """A cancel is no failure of keeping the disk."""
    cloud.switch.on_call["MemoryCaptures.progress"] = raising(lambda: CancelledError("cancelled"))
    ask(cloud)
    task = cloud.work()
    assert task.error is None
