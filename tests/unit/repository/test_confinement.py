"""Confinement of QEMU's tools: as few rights as reading an image takes."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

from acstor import exception
from acstor.repository.images import inspection
from acstor.repository.source import base, confinement, qemu
from acstor.repository.source.confinement import Limits
from testbed.fixtures.conditions import wait_for

LIMITS = Limits(address_space=1 << 30, cpu_seconds=20)


def run(
    program: str, limits: Limits = LIMITS, descriptor: int | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program of Python as a tool would run."""
    command = [sys.executable, "-I", "-S", "-c", textwrap.dedent(program)]
    return subprocess.run(
        confinement.confine(command, limits, descriptor),
        capture_output=True, text=True, timeout=120, check=False,
        pass_fds=() if descriptor is None else (descriptor,), env=confinement.environment(),
    )  # fmt: skip


def test_tool_has_limits_that_it_cannot_raise() -> None:
    done = run(
        """
        import json, resource
        names = ["AS", "CPU", "NOFILE", "CORE", "FSIZE"]
        kinds = [getattr(resource, f"RLIMIT_{name}") for name in names]
        print(json.dumps([resource.getrlimit(kind) for kind in kinds]))
        for kind in kinds:
            soft, hard = resource.getrlimit(kind)
            try:
                resource.setrlimit(kind, (hard + 1, hard + 1))
            except ValueError:
                continue
            print("raised", kind)
        """
    )
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    expected = [1 << 30, 20, confinement.FILES_MAX, 0, 0]
    assert json.loads(line) == [[value, value] for value in expected]


def test_tool_that_wants_more_memory_or_time_fails() -> None:
    done = run("bytes(2 << 30)")
    assert "MemoryError" in done.stderr
    done = run("while True: pass", Limits(address_space=1 << 30, cpu_seconds=1))
    assert done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)


def test_limit_of_this_process_that_is_lower_stays() -> None:
    script = (
        "import resource, subprocess;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        "from acstor.repository.source.confinement import confine, Limits;"
        "raise SystemExit(subprocess.call(confine(['sh', '-c', 'ulimit -n'],"
        " Limits(1 << 30, 20))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "64\n", done.stderr


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_VSOCK"])
def test_tool_has_no_network(family: str) -> None:
    assert "network" not in confinement.warn_of_missing()
    done = run(f"import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM)")
    assert "PermissionError" in done.stderr
    assert run("import socket; socket.socket(socket.AF_UNIX)").returncode == 0


def test_tool_opens_no_ring_past_the_filter() -> None:
    done = run(
        """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.syscall(425, 8, ctypes.create_string_buffer(120)), ctypes.get_errno())
        """
    )
    assert done.stdout == "-1 1\n"


def test_tool_writes_no_file_and_sees_nothing_of_the_environment(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_PASSWORD", "secret")
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    done = run(
        f"""
        import os, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        print(sorted(os.environ))
        with open({str(tmp_path / "file")!r}, "wb") as file:
            file.write(b"x")
        """
    )
    assert done.stdout == "['LC_ALL', 'MALLOC_ARENA_MAX', 'PATH']\n"
    assert "Error" in done.stderr
    path = tmp_path / "file"
    assert not path.exists() or path.stat().st_size == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_tool_of_root_is_nobody(tmp_path: pathlib.Path, mode: int) -> None:
    """It may read others' files only where the image is not everybody's to read."""
    path = tmp_path / "image"
    path.write_bytes(b"content")
    path.chmod(mode)
    file = base.SourceFile(str(path))
    done = run(
        f"""
        import os
        print(os.getresuid(), os.getresgid(), os.getgroups())
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        print([int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd")])
        print(open("/dev/fd/{file.descriptor}").read())
        try:
            open("/dev/fd/{file.descriptor}", "r+b")
        except PermissionError:
            print("refused")
        """,
        descriptor=file.descriptor,
    )
    file.close()
    user = confinement.tool_user()
    assert user is not None
    rights = [1 << 2] * 4 if mode == 0o600 else [0] * 4  # CAP_DAC_READ_SEARCH
    assert done.stdout.splitlines() == [
        f"{(user[0],) * 3} {(user[1],) * 3} []", str(rights), "content", "refused",
    ]  # fmt: skip


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_the_system_lacks_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    confinement.warn_of_missing.cache_clear()
    try:
        for _ in range(2):
            assert confinement.warn_of_missing() == ("user",)
        (record,) = caplog.records
        assert "they run as root: setpriv of util-linux is missing" in record.getMessage()
    finally:
        confinement.warn_of_missing.cache_clear()


def test_tool_ends_with_who_started_it(tmp_path: pathlib.Path) -> None:
    script = (
        "import subprocess, sys;"
        "from acstor.repository.source.confinement import confine, Limits;"
        "tool = subprocess.Popen(confine(['sleep', '600'], Limits(1 << 30, 20)));"
        "print(tool.pid, flush=True);"
        "sys.stdin.read()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    tool = int(starter.stdout.readline())
    status = pathlib.Path(f"/proc/{tool}/cmdline")
    wait_for("the tool runs", lambda: status.read_bytes() == b"sleep\x00600\x00")
    starter.kill()
    starter.communicate(timeout=60)

    def is_gone() -> bool:
        try:
            return status.read_bytes() == b""  # it waits for who reaps it
        except FileNotFoundError:
            return True

    wait_for("the tool is gone", is_gone)


def test_tool_that_is_missing_is_no_fault_of_the_image(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "image"
    path.write_bytes(b"plain".ljust(1 << 20, b"\0"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(exception.UnavailableError, match="qemu-img cannot be run"):
        inspection.open_source(str(path), "raw", 30.0)


@pytest.mark.skipif(not shutil.which("qemu-nbd"), reason="qemu-utils is missing")
def test_server_of_an_image_is_confined(tmp_path: pathlib.Path) -> None:
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", str(tmp_path / "image"), "1G"],
        check=True, timeout=60,
    )  # fmt: skip
    source = inspection.open_source(str(tmp_path / "image"), "qcow2", 30.0)
    try:
        server = source._server.pid  # type: ignore[attr-defined]
        seconds = qemu.NBD_CPU_SECONDS_MIN + (1 << 30) // qemu.NBD_BYTES_PER_CPU_SECOND
        lines = pathlib.Path(f"/proc/{server}/limits").read_text().splitlines()
        limits = {line[:26].strip(): line[47:68].strip() for line in lines}
        assert limits["Max address space"] == str(qemu.NBD_ADDRESS_SPACE_MAX)
        assert limits["Max cpu time"] == str(seconds)
        assert limits["Max core file size"] == "0"
        fields = pathlib.Path(f"/proc/{server}/status").read_text()
        assert "\nSeccomp:\t2\n" in fields
        assert "\nNoNewPrivs:\t1\n" in fields
        assert fields.startswith("Name:\tqemu-nbd\n")
    finally:
        source.close()


@pytest.mark.skipif(
    "folder" in confinement.missing_of_folder(), reason="this kernel has no Landlock"
)
def test_tool_that_writes_in_a_folder_writes_nowhere_else(tmp_path: pathlib.Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "present").write_text("before")
        confinement.give(str(folder))
        confinement.give(str(folder / "present"))
    program = """
        import os, sys
        for number in sys.argv[1:]:
            for name, mode in (("present", "r+"), ("new", "w")):
                try:
                    with open(f"/dev/fd/{number}/{name}", mode) as file:
                        file.write("after!")
                        print(name)
                except PermissionError as error:
                    print(error.strerror)
            try:
                os.truncate(f"/dev/fd/{number}/present", 1)
                print("truncated")
            except PermissionError as error:
                print(error.strerror)
        """
    opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY) for folder in (inside, outside)]
    command = [sys.executable, "-I", "-S", "-c", textwrap.dedent(program), *map(str, opened)]
    try:
        done = subprocess.run(
            confinement.confine(command, LIMITS, writes_in=str(inside)),
            capture_output=True, text=True, timeout=120, check=True, pass_fds=opened,
            env=confinement.environment(),
        )  # fmt: skip
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert done.stdout.split("\n") == [
        "present", "new", "truncated", *["Permission denied"] * 3, ""
    ]  # fmt: skip
    assert (outside / "present").read_text() == "before"
    assert not (outside / "new").exists()
