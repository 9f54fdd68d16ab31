"""The holder keeps descriptors over every way in which a process can end."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.mounting import mount_point
from testbed.fixtures.checked_reader import CheckedReader
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import MIB, Cloud, Host

PROGRAM = str(pathlib.Path(__file__).parent / "programs" / "counting_server.py")
ROOT = str(pathlib.Path(__file__).parents[2])
HOLDER = [
    sys.executable,
    "-c",
    "import sys; from acstor.cmd import holder; sys.exit(holder.main())",
]


class RunningHolder:
    """A holder and what its process reported."""

    def __init__(self, directory: pathlib.Path, *arguments: str, behaviour: str) -> None:
        self.report = directory / "report"
        self.socket = directory / "holder.sock"
        self.log = directory / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *HOLDER, "--socket", str(self.socket), *arguments, "--",
                    sys.executable, PROGRAM, behaviour, str(self.report),
                ],
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": ROOT},
            )  # fmt: skip

    def lines(self) -> list[list[str]]:
        if not self.report.exists():
            return []
        return [line.split() for line in self.report.read_text().splitlines()]

    def starts(self) -> list[list[str]]:
        return [line for line in self.lines() if line[1].isdigit()]

    def wait_for_starts(self, count: int) -> list[list[str]]:
        return wait_for(
            f"{count} starts; {self.log.read_text()}",
            lambda: self.starts() if len(self.starts()) >= count else None,
        )

    def kill_child(self) -> None:
        os.kill(int(self.starts()[-1][0]), signal.SIGKILL)


@contextlib.contextmanager
def running_holder(
    directory: pathlib.Path, *arguments: str, behaviour: str = "count"
) -> Iterator[RunningHolder]:
    holder = RunningHolder(directory, *arguments, behaviour=behaviour)
    try:
        yield holder
    finally:
        if holder.process.poll() is None:
            holder.process.send_signal(signal.SIGTERM)
            try:
                holder.process.wait(60)
            except subprocess.TimeoutExpired:
                holder.process.kill()
                holder.process.wait()
        for start in holder.starts():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(start[0]), signal.SIGKILL)


def test_kept_descriptors_reach_each_successor(tmp_path: pathlib.Path) -> None:
    with running_holder(tmp_path) as holder:
        for killed in range(1, 6):
            holder.wait_for_starts(killed)
            holder.kill_child()
        starts = holder.wait_for_starts(6)
    assert [start[1] for start in starts] == ["1", "2", "3", "4", "5", "6"]
    assert starts[0][2] == "-"
    assert all(start[2] == "pipe-read,pipe-write" for start in starts[1:])


def test_hangup_replaces_the_process_by_sigterm(tmp_path: pathlib.Path) -> None:
    with running_holder(tmp_path) as holder:
        (first,) = holder.wait_for_starts(1)
        holder.process.send_signal(signal.SIGHUP)
        holder.wait_for_starts(2)
        assert [first[0], "SIGTERM", "-"] in holder.lines()


def test_terminating_the_holder_stops_the_process_for_good(tmp_path: pathlib.Path) -> None:
    with running_holder(tmp_path) as holder:
        (first,) = holder.wait_for_starts(1)
        holder.process.send_signal(signal.SIGTERM)
        assert holder.process.wait(60) == 0
        assert holder.lines() == [first, [first[0], "SIGINT", "-"]]
        assert not holder.socket.exists()


def test_process_that_was_asked_to_stop_for_good_gets_no_successor(tmp_path: pathlib.Path) -> None:
    with running_holder(tmp_path, behaviour="stopped") as holder:
        holder.wait_for_starts(1)
        assert holder.process.wait(60) == 0
        assert len(holder.starts()) == 1


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.timeout(200)
def test_data_plane_in_use_is_stopped_only_by_force(cloud: Cloud) -> None:
    host = cloud.add_host()
    image = cloud.register(MIB)
    cloud.wait_ready(image)
    with host.file(image).open("rb") as opened:
        wait_for("it is open", lambda: host.ask("image.list")[0]["open_handles"] == 1)
        refused = host.command("host", "stop-dataplane")
        assert refused.returncode == exception.ConflictError("").exit_status
        assert "1 images are open" in refused.stderr
        assert "migrate or stop the instances" in refused.stderr
        assert opened.read(16) == image.content[:16]
    wait_for("it is closed", lambda: host.ask("image.list")[0]["open_handles"] == 0)
    done = host.command("host", "stop-dataplane")
    assert done.returncode == 0, f"{done.stderr}\n{host.log()}"
    wait_for("the holder ends, too", lambda: host.has_ended("holder"))
    assert not mount_point.is_mounted(str(host.file(image).parent))


def test_process_that_ignores_signals_is_killed(tmp_path: pathlib.Path) -> None:
    with running_holder(tmp_path, "--stop-timeout", "0.2", behaviour="stubborn") as holder:
        holder.wait_for_starts(1)
        holder.process.send_signal(signal.SIGHUP)
        holder.wait_for_starts(2)
        holder.process.send_signal(signal.SIGTERM)
        assert holder.process.wait(60) == 1


def test_process_without_signs_of_life_is_replaced(tmp_path: pathlib.Path) -> None:
    with running_holder(tmp_path, "--watchdog", "0.2", behaviour="mute") as holder:
        starts = holder.wait_for_starts(2)
        assert starts[1][1] == "2"
        assert "watchdog" in holder.log.read_text()


def test_killed_holder_leaves_the_process_whose_descriptors_the_next_holder_gets(
    tmp_path: pathlib.Path,
) -> None:
    with running_holder(tmp_path) as first:
        first.wait_for_starts(1)
        first.process.kill()
        first.process.wait()
        survivor = int(first.starts()[0][0])
        os.kill(survivor, 0)
        with running_holder(tmp_path) as second:
            second.wait_for_starts(2)  # a process of its own: nothing had been passed yet

            def next_start_has_the_survivors_pipe() -> bool:
                count = len(second.starts())
                second.kill_child()
                starts = second.wait_for_starts(count + 1)
                return "pipe-read" in starts[-1][2]

            wait_for("descriptors of the survivor", next_start_has_the_survivors_pipe)
            os.kill(survivor, signal.SIGKILL)


def test_second_holder_on_one_socket_is_refused(tmp_path: pathlib.Path) -> None:
    with running_holder(tmp_path) as first:
        first.wait_for_starts(1)
        second = RunningHolder(tmp_path, behaviour="count")
        assert second.process.wait(60) == 2
        assert "another holder is running" in second.log.read_text()


def test_program_that_cannot_be_executed_is_named(tmp_path: pathlib.Path) -> None:
    result = subprocess.run(
        [*HOLDER, "--socket", str(tmp_path / "s"), "--", "/nonexistent/program"],
        capture_output=True, text=True, timeout=60, cwd=ROOT,
    )  # fmt: skip
    assert result.returncode == 127
    assert result.stderr.splitlines()[-1] == (
        "acstor-holder: error: /nonexistent/program: No such file or directory"
    )


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.slow
def test_holder_killed_and_then_its_data_plane_guests_do_not_notice(cloud: Cloud) -> None:
    """The data plane outlives its holder, and the next holder gets the descriptors from it."""
    host = cloud.add_host()
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    orphan = wait_for("a data plane", host.dataplane_pid)
    with CheckedReader(host.file(image), image.content, seed=30) as reader:
        reader.wait_reads(20)
        host.kill("holder")
        reader.wait_reads(20)
        host.start_dataplane()  # answered by the orphan; the new process finds the store locked
        # A process that was started before the holder had the descriptors may win the store when
        # the orphan dies; it leaves the mount to the process after it.
        wait_for("the descriptors are with the new holder", lambda: holds_descriptors(host))
        os.kill(orphan, signal.SIGKILL)
        host.wait_restarted(orphan)
        reader.wait_reads(20)
    assert reader.errors == []
    status = host.status()
    assert status is not None
    assert status["fuse"]["taken_over"]


def holds_descriptors(host: Host) -> bool:
    opened = pathlib.Path(f"/proc/{host.holder_pid}/fd")
    targets = []
    for entry in opened.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            targets.append(os.readlink(entry))
    return any(target == "/dev/fuse" for target in targets)


@pytest.mark.parametrize("arguments", [[], ["--watchdog", "-1", "--", "true"]])
def test_wrong_command_line_is_a_usage_error(arguments: list[str]) -> None:
    result = subprocess.run(
        [*HOLDER, *arguments],
        capture_output=True, text=True, timeout=60, cwd=ROOT,
    )  # fmt: skip
    assert result.returncode == 2
    assert "usage: acstor-holder" in result.stderr
