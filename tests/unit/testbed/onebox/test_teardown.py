"""Taking down: what is removed, in which order, after whatever happened before."""

import json
import pathlib
import subprocess

import pytest

from testbed import processes
from testbed.exception import TestbedError
from testbed.onebox import teardown
from testbed.onebox.directory import OneBoxDirectory


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> OneBoxDirectory:
    directory = OneBoxDirectory(pathlib.Path("/nowhere"))
    directory.path = tmp_path / "box"
    for name in ("venv", "hosts", "run", "shared", "logs", "cache"):
        setattr(directory, name, directory.path / name)
    directory.create()
    directory.venv.mkdir()
    return directory


def record(directory: OneBoxDirectory, host: str, pid: int, started: int | None) -> None:
    text = json.dumps({"pid": pid, "started": started})
    (directory.run / f"{host}.json").write_text(text)


def test_the_controller_is_last(directory: OneBoxDirectory) -> None:
    for host in ("compute2", "controller", "compute1"):
        record(directory, host, 1, 0)
    assert teardown.recorded_hosts(directory) == ["compute1", "compute2", "controller"]


def test_only_what_makes_the_next_one_quick_stays(directory: OneBoxDirectory) -> None:
    (directory.path / "settings.json").write_text("{}")
    (directory.shared / "origin").symlink_to("/etc")
    teardown.take_down(directory)
    assert sorted(entry.name for entry in directory.path.iterdir()) == ["cache", "venv"]
    assert pathlib.Path("/etc").is_dir()
    teardown.take_down(directory)


def test_purge_removes_everything(directory: OneBoxDirectory) -> None:
    with directory.locked():
        teardown.take_down(directory, purge=True)
    assert list(directory.path.parent.iterdir()) == []
    teardown.take_down(directory, purge=True)


def test_a_recorded_process_is_killed(directory: OneBoxDirectory) -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        record(directory, "compute1", process.pid, processes.start_time(process.pid))
        teardown.take_down(directory)
        assert process.wait(20) in (-9, 0)
    assert not directory.run.exists()


def test_another_process_of_a_recorded_id_is_left_alone(directory: OneBoxDirectory) -> None:
    """After a restart of the machine the id may belong to anyone."""
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        try:
            started = processes.start_time(process.pid)
            assert started is not None
            record(directory, "compute1", process.pid, started + 1)
            teardown.take_down(directory)
            assert process.poll() is None
        finally:
            process.kill()


def test_a_torn_record_is_of_a_process_that_ended_by_itself(directory: OneBoxDirectory) -> None:
    (directory.run / "compute1.json").write_text('{"pid": 1')
    teardown.take_down(directory)
    assert not directory.run.exists()


def test_only_one_process_changes_a_one_box(directory: OneBoxDirectory) -> None:
    with (
        directory.locked(),
        pytest.raises(TestbedError, match="another process"),
        OneBoxDirectory.locked(directory),
    ):
        raise AssertionError("locked twice")


@pytest.mark.parametrize("path", ["relative", "/" + "x" * 60])
def test_a_directory_must_leave_room_for_socket_paths(path: str) -> None:
    with pytest.raises(TestbedError, match="absolute path"):
        OneBoxDirectory(pathlib.Path(path))
