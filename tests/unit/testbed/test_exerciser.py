"""The exerciser: what it is made of, its console, its monitor, files that must not be lost."""

import base64
import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from testbed.exception import TestbedError
from testbed.guest.exerciser import EXERCISER_FILES, ExerciserRecipe
from testbed.guest.exerciser_console import ExerciserConsole, GuestCommandError
from testbed.guest.exerciser_machine import file_disk, nbd_disk
from testbed.guest.monitor import Monitor
from testbed.guest.recipe import GuestRecipe

Answer = Callable[[bytes], bytes]
SEED = "7"


def test_key_tells_the_contents_not_where_fsx_was_built() -> None:
    recipe = ExerciserRecipe()
    assert recipe.key() != GuestRecipe().key()
    assert dataclasses.replace(recipe, fsx=pathlib.Path("/elsewhere/fsx")).key() == recipe.key()
    assert dataclasses.replace(recipe, fsx_version="0.3.1").key() != recipe.key()


def test_disks_are_opened_as_libvirt_does() -> None:
    disk = nbd_disk("volume", "/run/x.sock", "export")
    assert disk.node["reconnect-delay"] > 0
    assert disk.node["cache"] == {"direct": True, "no-flush": False}
    assert disk.node["discard"] == "unmap"
    layered = file_disk("local", pathlib.Path("/x"), "qcow2").node
    assert (layered["driver"], layered["file"]["aio"]) == ("qcow2", "native")


@contextlib.contextmanager
def answering(path: pathlib.Path, greeting: bytes, answer: Answer) -> Iterator[None]:
    """Listen as QEMU does, and answer every line."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:
            connection.sendall(greeting)
            for line in lines:
                connection.sendall(answer(line))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(10)
        listener.close()


def in_guest(line: bytes) -> bytes:
    """Answer as the exerciser's init does: a command prints itself and ``fail`` fails."""
    number, _, command = line.strip().partition(b" ")
    status = b"3" if command == b"fail" else b"0"
    own = b"durable 5\n" if command == b"tell" else b""
    answer = b" ".join((b"acstor-exerciser-answer", number, status, base64.b64encode(command)))
    return own + answer + b"\n"


def test_console_returns_what_commands_print(tmp_path: pathlib.Path) -> None:
    with answering(tmp_path / "port", b"acstor-exerciser-ready\n", in_guest):
        console = ExerciserConsole(tmp_path / "port")
        console.wait_ready(10)
        assert console.run("uname -a") == "uname -a"
        with pytest.raises(GuestCommandError, match="ended with 3: fail"):
            console.run("fail")
        console.run("tell")
        assert "durable 5" in console.lines
        with pytest.raises(GuestCommandError, match="said nothing"):
            console.wait_line(lambda line: False, 0.05)
        console.close()


def test_monitor_keeps_events_and_raises_errors(tmp_path: pathlib.Path) -> None:
    event = {"event": "DEVICE_DELETED", "data": {"device": "disk-x"}}

    def qemu(line: bytes) -> bytes:
        request = json.loads(line)
        failed = {"error": {"desc": "no such device"}}
        answer = failed if request["execute"] == "device_del" else {"return": {}}
        return json.dumps(event).encode() + b"\n" + json.dumps(answer).encode() + b"\n"

    with answering(tmp_path / "qmp", b'{"QMP": {}}\n', qemu):
        monitor = Monitor(tmp_path / "qmp")
        assert monitor.execute("cont") == {}
        monitor.wait_event("DEVICE_DELETED", device="disk-x")
        with pytest.raises(TestbedError, match="no such device"):
            monitor.execute("device_del", id="disk-x")
        monitor.close()


def durable(action: str, directory: pathlib.Path, *arguments: str) -> list[str]:
    script = str(EXERCISER_FILES / "acstor-durable-files")
    return [sys.executable, script, action, str(directory), SEED, *arguments]


def write_until(directory: pathlib.Path, version: int) -> None:
    """Write files until a version is durable, then cut."""
    reading, writing = os.pipe()
    # The script writes to its descriptor 3.
    command = ["bash", "-c", f'exec "$@" 3>&{writing}', "bash", *durable("write", directory)]
    process = subprocess.Popen(command, pass_fds=[writing])
    os.close(writing)
    try:
        with os.fdopen(reading) as lines:
            for line in lines:
                if line == f"durable {version}\n":
                    break
    finally:
        process.kill()
        process.wait(10)


def test_durable_files_that_are_lost_or_damaged_are_told(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "files"
    write_until(directory, 60)
    verify = durable("verify", directory, "60")

    def verified() -> subprocess.CompletedProcess[str]:
        return subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60)

    assert verified().returncode == 0, verified().stdout
    victim = directory / "file-10"  # of version 10 or 50
    content = victim.read_bytes()
    victim.write_bytes(content[:-1])
    assert "file-10: is none of versions [50" in verified().stdout
    victim.unlink()
    assert "file-10: version 50 is lost" in verified().stdout
    victim.write_bytes(content)
    log = directory / "log"
    log.write_bytes(log.read_bytes()[64:])
    assert verified().returncode == 1
    assert "log: the first 20 lines" in verified().stdout
