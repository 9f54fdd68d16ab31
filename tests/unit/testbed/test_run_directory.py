"""Runs: ownership, the journal, what is taken for the remains of a crash."""

import multiprocessing
import os
import pathlib
import signal
from multiprocessing.synchronize import Event

import pytest

from testbed.exception import TestbedError
from testbed.run_directory import ResourceKind, RunDirectory


def test_create_owns_a_new_directory(tmp_path: pathlib.Path) -> None:
    one, two = RunDirectory.create(tmp_path), RunDirectory.create(tmp_path)
    assert one.id != two.id
    assert one.is_owned
    assert not one.is_detached
    assert {run.id for run in RunDirectory.all(tmp_path)} == {one.id, two.id}
    assert RunDirectory.abandoned(tmp_path) == []


def test_resources_come_newest_first(tmp_path: pathlib.Path) -> None:
    run = RunDirectory.create(tmp_path)
    run.record(ResourceKind.NAMESPACE, "a")
    run.record(ResourceKind.PROCESS, "p", pid=7, started=9)
    run.record(ResourceKind.NAMESPACE, "b")
    again = RunDirectory(run.path)
    assert [entry["name"] for entry in again.resources(ResourceKind.NAMESPACE)] == ["b", "a"]
    assert again.resources(ResourceKind.PROCESS)[0]["pid"] == 7
    assert again.resources(ResourceKind.MOUNT) == []


def test_torn_last_line_is_ignored(tmp_path: pathlib.Path) -> None:
    run = RunDirectory.create(tmp_path)
    run.record(ResourceKind.NAMESPACE, "a")
    with (run.path / "journal.jsonl").open("a") as journal:
        journal.write('{"kind": "namesp')
    assert [entry["name"] for entry in run.resources(ResourceKind.NAMESPACE)] == ["a"]


def test_newer_journal_is_refused(tmp_path: pathlib.Path) -> None:
    run = RunDirectory.create(tmp_path)
    (run.path / "journal.jsonl").write_text('{"journal_version": 2}\n')
    with pytest.raises(TestbedError, match="journal version 2"):
        run.resources(ResourceKind.MOUNT)


def _own_until_killed(root: str, made: Event) -> None:
    RunDirectory.create(pathlib.Path(root))
    made.set()
    signal.pause()


def test_run_of_a_killed_process_is_abandoned(tmp_path: pathlib.Path) -> None:
    context = multiprocessing.get_context("spawn")
    made = context.Event()
    process = context.Process(target=_own_until_killed, args=(str(tmp_path), made))
    process.start()
    assert made.wait(30)
    (run,) = RunDirectory.all(tmp_path)
    assert run.is_owned
    with pytest.raises(TestbedError, match="living process"):
        run.adopt()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    (abandoned,) = RunDirectory.abandoned(tmp_path)
    assert abandoned.id == run.id
    abandoned.adopt()
    assert RunDirectory.abandoned(tmp_path) == []


def test_detached_run_is_not_abandoned(tmp_path: pathlib.Path) -> None:
    run = RunDirectory.create(tmp_path)
    run.detach()
    run.release()
    assert not run.is_owned
    assert RunDirectory.abandoned(tmp_path) == []


def test_delete_leaves_nothing(tmp_path: pathlib.Path) -> None:
    run = RunDirectory.create(tmp_path)
    run.directory("logs", "deep")
    run.delete()
    assert list(tmp_path.iterdir()) == []
