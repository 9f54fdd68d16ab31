"""One host of the one-box: namespaces of its own, held by its first process."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from acstor import sockets
from testbed import exception, processes
from testbed.onebox.directory import OneBoxDirectory

START_TIMEOUT_S = 20.0
REQUEST_TIMEOUT_S = 10.0
_LISTENING = "0A"
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class Host:
    """A host that is up, or may be.

    :param name: the host's name, also in its UTS namespace.
    :param address: of its ``eth0``.
    """

    def __init__(self, directory: OneBoxDirectory, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self._directory = directory
        self._socket = directory.run / f"{name}.sock"
        self._record = directory.run / f"{name}.json"

    def start(
        self, binds: Sequence[tuple[pathlib.Path, str]], directories: Sequence[str] = ()
    ) -> None:
        """Create the host, unless it is up.

        :param binds: folders and files, and where the host sees them.
        :param directories: made in the host, below ``/run`` for instance.
        :raises NotReadyError: when its first process does not answer.
        """
        if self.is_up:
            return
        self.stop()
        log_path = self._directory.log(self.name, "init")
        log_path.parent.mkdir(parents=True, exist_ok=True)
        command = [
            processes.require("unshare"), "--mount", "--net", "--uts", "--pid", "--fork",
            "--kill-child", *processes.module("testbed.onebox.host_init"),
        ]  # fmt: skip
        specification = {
            "name": self.name,
            "directory": str(self._directory.path),
            "socket": str(self._socket),
            "overlaid": ["/etc", "/usr/sbin", "/var/cache", "/var/lib", "/var/log"],
            "binds": [(str(source), target) for source, target in binds],
            "directories": list(directories),
        }
        with log_path.open("ab") as log:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        # It does nothing before it has read the specification: what is not recorded ends by itself.
        self._write_record(popen.pid)
        assert popen.stdin is not None
        with popen.stdin:
            popen.stdin.write(json.dumps(specification).encode() + b"\n")
        process = processes.RunningProcess(self.name, popen, log_path)
        processes.wait_until(
            lambda: self.is_up, f"host {self.name} is up",
            timeout_s=START_TIMEOUT_S, processes=[process],
        )  # fmt: skip
        self._write_record(popen.pid, self.pid)

    def _write_record(self, pid: int, first: int | None = None) -> None:
        """Write down which processes are the host's: unshare, and its first one once it is known.

        The first one outlives a killed unshare for as long as the kernel takes to end the others.
        """
        record: dict[str, int | None] = {"pid": pid, "started": processes.start_time(pid)}
        if first is not None:
            record |= {"first": first, "first_started": processes.start_time(first)}
        fresh = self._record.with_suffix(".fresh")
        fresh.write_text(json.dumps(record))
        fresh.replace(self._record)

    def stop(self) -> None:
        """Kill the host: every process, mount and interface of it ends with its first process.

        :raises NotReadyError: when the kernel does not end it in time.
        """
        try:
            record = json.loads(self._record.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return
        pid = int(record["pid"])
        # The recorded one is unshare, whose death kills the first process. It ends after it.
        members = [
            member
            for member, started in (
                (pid, record["started"]),
                (record.get("first"), record.get("first_started")),
            )
            if started is not None and processes.start_time(member) == started
        ]
        if pid in members:
            members += [child for child in _children(pid) if child not in members]
        for member in reversed(members):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while any(processes.start_time(member) is not None for member in members):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > deadline:
                raise exception.NotReadyError(
                    f"host {self.name}: a process of it (below {members}) does not end",
                    hint="look for processes in state D with ps, then run down again",
                )
            time.sleep(processes.POLL_INTERVAL_S)
        self._socket.unlink(missing_ok=True)
        self._record.unlink(missing_ok=True)

    @property
    def is_up(self) -> bool:
        """Return whether the first process answers."""
        try:
            self._request({"status": True})
        except (OSError, exception.TestbedError):
            return False
        return True

    @property
    def pid(self) -> int:
        """Return the id of the first process, as this process sees it.

        :raises OSError: when the host is not up.
        """
        with self._connect() as connection:
            size = struct.calcsize("3i")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        pid: int = struct.unpack("3i", credentials)[0]
        return pid

    def programs(self) -> dict[str, dict[str, Any]]:
        """Return what was started on the host, by name; empty when it is down."""
        try:
            found: dict[str, dict[str, Any]] = self._request({"status": True})["programs"]
        except OSError:
            return {}
        return found

    def is_running(self, name: str) -> bool:
        """Return whether a program runs."""
        program = self.programs().get(name)
        return program is not None and program["returncode"] is None

    def log_since_start(self, name: str) -> str:
        """Return what a program has logged since it was started."""
        program = self.programs().get(name)
        if program is None:
            return ""
        with self._directory.log(self.name, name).open("rb") as log:
            log.seek(program["log_offset"])
            return log.read().decode(errors="replace")

    def spawn(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a program, unless it runs.

        :raises ToolFailedError: when it cannot be executed.
        """
        log = self._directory.log(self.name, name)
        log.parent.mkdir(parents=True, exist_ok=True)
        self._request(
            {"start": name, "argv": list(argv), "environment": dict(environment), "log": str(log)}
        )

    def signal(self, name: str, number: signal.Signals, *, session: bool = False) -> None:
        """Send a signal to a program, or to its whole session."""
        self._request({"signal": name, "number": int(number), "session": session})

    def enter(self, argv: Sequence[str], directory: str | None = None) -> list[str]:
        """Return the command that runs a program on the host.

        :raises NotReadyError: when the host is not up.
        """
        try:
            pid = self.pid
        except OSError as error:
            raise exception.NotReadyError(
                f"host {self.name} is not up", hint="bring the one-box up: tools/onebox up"
            ) from error
        command = [
            processes.require("nsenter"), f"--target={pid}",
            "--mount", "--net", "--uts", "--pid", "--",
        ]  # fmt: skip
        if directory is not None:
            command += [processes.require("env"), "-C", directory]
        return [*command, *argv]

    def run(
        self, argv: Sequence[str], *, environment: Mapping[str, str], timeout_s: float = 60.0
    ) -> str:
        """Run a program on the host to its end and return what it printed.

        :raises ToolFailedError: when it fails or takes longer.
        """
        return processes.run(self.enter(argv), timeout_s=timeout_s, env=environment)

    def is_listening(self, port: int) -> bool:
        """Return whether a process of the host listens at a TCP port."""
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                text = pathlib.Path(f"/proc/{self.pid}/net/{table}").read_text()
                for fields in (line.split() for line in text.splitlines()[1:]):
                    if fields[3] == _LISTENING and int(fields[1].partition(":")[2], 16) == port:
                        return True
        return False

    def path(self, path: str) -> pathlib.Path:
        """Return where this process finds a file of the host.

        :raises OSError: when the host is not up.
        """
        return pathlib.Path(f"/proc/{self.pid}/root") / path.lstrip("/")

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Within the block the calling thread, and what it starts, is in the host's network.

        :raises OSError: when the host is not up.
        """
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            inside = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _set_network(inside)
            finally:
                os.close(inside)
            try:
                yield
            finally:
                _set_network(before)
        finally:
            os.close(before)

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sockets.connect_within(connection, str(self._socket), REQUEST_TIMEOUT_S)
        except BaseException:
            connection.close()
            raise
        return connection

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._connect() as connection:
            connection.sendall(json.dumps(request).encode() + b"\n")
            line = connection.makefile("rb").readline()
        if not line:
            raise ConnectionResetError(f"host {self.name} did not answer")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise exception.ToolFailedError(
                request.get("argv", [self.name]), "cannot be started", answer["error"]
            )
        return answer


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child)
            for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []


def _set_network(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
