"""The first process of a host: it starts, signals, reaps, and survives bad requests.

It runs here without the namespaces, which need root; a subreaper stands for process 1.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import processes
from testbed.fixtures.conditions import wait_for

_SERVE = """
import ctypes, socket, sys
from testbed.onebox import host_init
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
host_init.serve(listener, host_init.Programs())
"""
#: Starts a child in the same session, tells its id, and leaves when asked.
_PARENT = """
import subprocess, sys, time
child = subprocess.Popen(["/bin/sleep", "600"])
print(child.pid, flush=True)
time.sleep(600)
"""


class Init:
    """A running first process."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.socket = directory / "s"
        self.process = subprocess.Popen([sys.executable, "-c", _SERVE, str(self.socket)])
        wait_for("it listens", self.socket.exists)

    def send(self, data: bytes) -> dict[str, Any]:
        def connected() -> socket.socket | None:
            connection = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                connection.connect(str(self.socket))
                return connection
            connection.close()
            return None

        with wait_for("it accepts", connected) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return self.send(json.dumps(request).encode() + b"\n")

    def start(self, name: str, *argv: str, **environment: str) -> dict[str, Any]:
        log = str(self.directory / f"{name}.log")
        return self.ask({"start": name, "argv": argv, "environment": environment, "log": log})

    def program(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask({"status": True})["programs"][name]
        return found

    def wait_ended(self, name: str) -> int:
        def code() -> list[int] | None:
            returncode = self.program(name)["returncode"]
            return None if returncode is None else [returncode]

        return wait_for(f"{name} ends", code)[0]


@pytest.fixture
def init(tmp_path: pathlib.Path) -> Iterator[Init]:
    running = Init(tmp_path)
    try:
        yield running
    finally:
        with contextlib.suppress(OSError):
            for program in running.ask({"status": True})["programs"].values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program["pid"], signal.SIGKILL)
        running.process.kill()
        running.process.wait()


def test_a_program_runs_with_its_environment_and_log(init: Init) -> None:
    init.start("shows", "/usr/bin/env", NAME="compute1")
    assert init.wait_ended("shows") == 0
    assert (init.directory / "shows.log").read_text() == "NAME=compute1\n"


def test_how_a_program_ended_is_told(init: Init) -> None:
    init.start("fails", "/bin/false")
    assert init.wait_ended("fails") == 1
    init.start("sleeps", "/bin/sleep", "600")
    assert init.program("sleeps")["returncode"] is None
    init.ask({"signal": "sleeps", "number": signal.SIGTERM, "session": False})
    assert init.wait_ended("sleeps") == -signal.SIGTERM


def test_a_program_that_runs_is_not_started_again(init: Init) -> None:
    init.start("sleeps", "/bin/sleep", "600")
    first = init.program("sleeps")
    init.start("sleeps", "/bin/sleep", "600")
    assert init.program("sleeps") == first


def test_a_program_that_ended_is_started_anew_and_its_log_goes_on(init: Init) -> None:
    init.start("says", "/bin/echo", "one")
    init.wait_ended("says")
    init.start("says", "/bin/echo", "second")
    init.wait_ended("says")
    text = (init.directory / "says.log").read_text()
    assert text == "one\nsecond\n"
    assert text[init.program("says")["log_offset"] :] == "second\n"


def test_a_session_ends_with_what_it_left_behind(init: Init) -> None:
    init.start("parent", sys.executable, "-c", _PARENT)
    log = init.directory / "parent.log"
    child = int(wait_for("the child is told", lambda: log.read_text().strip()))
    init.ask({"signal": "parent", "number": signal.SIGKILL, "session": False})
    init.wait_ended("parent")
    assert processes.start_time(child) is not None
    init.ask({"signal": "parent", "number": signal.SIGKILL, "session": True})
    wait_for("the child ends and is reaped", lambda: not pathlib.Path(f"/proc/{child}").exists())


def test_an_unknown_program_cannot_be_started(init: Init) -> None:
    answer = init.start("absent", "/nowhere/program")
    assert "FileNotFoundError" in answer["error"]
    assert "absent" not in init.ask({"status": True})["programs"]


def test_a_signal_to_what_never_ran_does_nothing(init: Init) -> None:
    assert init.ask({"signal": "absent", "number": 15, "session": True}) == {"programs": {}}


@pytest.mark.parametrize(
    "data", [b"", b"{\n", b"[]\n", b"7\n", b'{"what": 1}\n', b'{"start": "x"}\n', b"\xff\n"]
)
def test_a_bad_request_gets_an_error(init: Init, data: bytes) -> None:
    assert "error" in init.send(data)
    assert init.ask({"status": True}) == {"programs": {}}
