"""Programs that a run starts, in the namespaces of its hosts.

Long-lived programs run in a session of their own (a ^C at the terminal reaches the testbed only,
which then stops them in order), with their output in a log file. Each is in the journal as process
id and start time, which together name one process for ever.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from testbed import exception, run_directory
from testbed.network import Namespace

LOG = logging.getLogger(__name__)

STOP_TIMEOUT_S = 8.0
KILL_TIMEOUT_S = 5.0

#: What is waited for.
Condition = Callable[[], bool]
POLL_INTERVAL_S = 0.02


def require(program: str) -> str:
    """Return the path of a program.

    :raises ToolMissingError: when it is not installed.
    """
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise exception.ToolMissingError(program)
    return path


def module(name: str) -> list[str]:
    """Return the command that runs a module of this checkout, from whatever directory."""
    checkout = pathlib.Path(__file__).resolve().parents[1]
    return [require("env"), f"PYTHONPATH={checkout}", sys.executable, "-m", name]


def in_namespace(namespace: Namespace | None, argv: Sequence[str]) -> list[str]:
    """Return the command that runs a program in a namespace.

    Only the network is entered: mounts that the program makes are seen by the whole machine.
    """
    command = [require(argv[0]), *argv[1:]]
    if namespace is None:
        return command
    return [require("nsenter"), f"--net={namespace.path}", "--", *command]


def run(
    argv: Sequence[str],
    *,
    namespace: Namespace | None = None,
    timeout_s: float = 60.0,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a program to its end and return what it printed on standard output.

    :raises ToolMissingError: when it is not installed.
    :raises ToolFailedError: when it fails or takes longer than ``timeout_s``.
    """
    try:
        result = subprocess.run(
            in_namespace(namespace, argv),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise exception.ToolFailedError(argv, f"took over {timeout_s:g} s", "") from error
    if result.returncode != 0:
        raise exception.ToolFailedError(
            argv, f"failed with {result.returncode}", result.stderr or result.stdout
        )
    return result.stdout


@dataclasses.dataclass
class RunningProcess:
    """A program that the run started and that is still to be stopped."""

    name: str
    popen: subprocess.Popen[bytes]
    log_path: pathlib.Path

    @property
    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self.popen.poll() is None

    def log_tail(self, lines: int = 8) -> str:
        """Return the end of what it printed."""
        with contextlib.suppress(OSError):
            text = self.log_path.read_text(errors="replace")
            return "\n".join(text.strip().splitlines()[-lines:])
        return ""

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        if self.is_alive:
            self.popen.terminate()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask it to end; kill its session when it does not in time."""
        self.terminate()
        try:
            self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            LOG.warning("%s did not end within %g s: killed", self.name, timeout_s)
            self.kill()

    def kill(self) -> None:
        """Kill it and what is left of its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(KILL_TIMEOUT_S)


class ProcessTable:
    """Processes that the run started, in the order of the starts."""

    def __init__(self, owner: run_directory.RunDirectory) -> None:
        self._run = owner
        self._processes: list[RunningProcess] = []

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        *,
        namespace: Namespace | None = None,
        env: Mapping[str, str] | None = None,
    ) -> RunningProcess:
        """Start a program; its output goes to ``logs/<name>.log``."""
        log_path = self._run.directory("logs") / f"{name}.log"
        with log_path.open("ab") as log:
            popen = subprocess.Popen(
                in_namespace(namespace, argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        process = RunningProcess(name, popen, log_path)
        self._processes.append(process)
        started = start_time(popen.pid)
        if started is not None:
            self._run.record(
                run_directory.ResourceKind.PROCESS, name, pid=popen.pid, started=started
            )
        return process

    def stop(self, *processes: RunningProcess) -> None:
        """Stop several at once."""
        for process in processes:
            process.terminate()
        for process in processes:
            process.stop()
            if process in self._processes:
                self._processes.remove(process)

    def stop_all(self) -> None:
        """Stop everything, the newest first."""
        for process in reversed(self._processes.copy()):
            self.stop(process)


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot.

    None when there is no such process, or when it has ended and only waits for its parent to
    take notice, which nothing else waits for.
    """
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, the name in parentheses, may hold spaces: count from its end.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def wait_until(
    condition: Condition,
    what: str,
    *,
    timeout_s: float,
    processes: Sequence[RunningProcess] = (),
) -> None:
    """Wait for a condition.

    :raises NotReadyError: when it does not come true in time, or one of ``processes`` ends.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        for process in processes:
            if not process.is_alive:
                raise exception.NotReadyError(
                    f"{process.name} ended with {process.popen.returncode} before {what}; "
                    f"{process.log_path} ends with:\n{process.log_tail()}"
                )
        if time.monotonic() > deadline:
            tails = "\n".join(f"{process.log_path}:\n{process.log_tail()}" for process in processes)
            raise exception.NotReadyError(f"not within {timeout_s:g} s: {what}\n{tails}".rstrip())
        time.sleep(POLL_INTERVAL_S)


def is_listening(namespace: Namespace, port: int) -> bool:
    """Return whether a process listens at a TCP port inside of a namespace.

    Looks at the kernel's table instead of connecting: a probe connection would count as a client.
    """
    table = run(["cat", "/proc/net/tcp"], namespace=namespace)
    return any(
        fields[3] == "0A" and int(fields[1].partition(":")[2], 16) == port
        for fields in (line.split() for line in table.splitlines()[1:])
    )
