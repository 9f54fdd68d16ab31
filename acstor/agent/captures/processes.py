"""Processes of captures as the agent sees them: started, followed to their ends, ended."""

import contextlib
import dataclasses
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor import child_process, exception, untrusted_json
from acstor.agent.captures import orders
from acstor.agent.captures.orders import Order
from acstor.versions.host_capture.progress import Failure

CHECK_INTERVAL = 0.5
"""Seconds after which it is looked again whether a process is still wanted."""
END_GRACE = 90.0
"""Seconds that a process has to end by itself: to end a backup, and to have a guest thawed."""
_MODULE = "acstor.agent.captures.child"
_PART_SIZE = 64 << 10


@dataclasses.dataclass(frozen=True)
class Hearing:
    """Calls with what a process says, from the thread that follows it."""

    progress: Callable[[int, int], None] = lambda done, total: None
    frozen: Callable[[str], None] = lambda server: None
    committed: Callable[[str], None] = lambda version: None


class Processes(Protocol):
    """Does orders, each in a process of its own."""

    def do(
        self, order: Order, hearing: Hearing, is_wanted: Callable[[], bool], seconds: float
    ) -> Mapping[str, Any]:
        """Do an order; return the report. Nothing of the process is left then.

        :param is_wanted: asked now and then; once it says no the process is ended.
        :param seconds: that it may take.
        :raises DeadlineError: when it took longer.
        :raises UnavailableError: when it was not wanted any more, or died.
        :raises AcstorError: of the kind with which it failed.
        """


class ChildProcesses:
    """Children of the agent.

    :param command: what a child runs, the number of its socket appended.
    :param purpose: what children are for, with an article, for people.
    """

    def __init__(
        self,
        command: tuple[str, ...] = ("-m", _MODULE),
        end_grace: float = END_GRACE,
        purpose: str = "a capture",
    ) -> None:
        self._command = command
        self._end_grace = end_grace
        self._purpose = purpose

    def do(
        self, order: Order, hearing: Hearing, is_wanted: Callable[[], bool], seconds: float
    ) -> Mapping[str, Any]:
        """See :class:`Processes`."""
        return self.do_line(orders.encode_order(order), hearing, is_wanted, seconds)

    def do_line(
        self, line: bytes, hearing: Hearing, is_wanted: Callable[[], bool], seconds: float
    ) -> Mapping[str, Any]:
        """Do an order of another kind, whose line the child knows; else as :meth:`do`."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = child_process.start(self._command, theirs.fileno(), self._purpose)
            try:
                ours.sendall(line)
                watch = _Watch(process, ours, hearing, is_wanted, seconds, self._end_grace)
                watch.purpose = self._purpose
                return watch.follow()
            except OSError as error:
                raise _died(process, error, self._purpose) from error
            finally:
                process.kill()
                process.wait()


class _Watch:
    """Follows one process to its end."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        connection: socket.socket,
        hearing: Hearing,
        is_wanted: Callable[[], bool],
        seconds: float,
        end_grace: float,
    ) -> None:
        self._process = process
        self._connection = connection
        self._hearing = hearing
        self._is_wanted = is_wanted
        self._deadline = time.monotonic() + seconds
        self._end_grace = end_grace
        self._seconds = seconds
        self.purpose = "a capture"
        """Purpose of the process, with an article."""
        self._rest = bytearray()
        self._report: Mapping[str, Any] | None = None
        self._failure: exception.AcstorError | None = None
        self._ending: exception.AcstorError | None = None
        self._kill_at = float("inf")

    def follow(self) -> Mapping[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            while True:
                if selector.select(CHECK_INTERVAL):
                    part = self._receive()
                    if not part:
                        break
                    self._take(part)
                self._look()
        if self._report is not None:
            return self._report
        if self._ending is not None:
            raise self._ending
        raise self._failure or _died(self._process, None, self.purpose)

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(_PART_SIZE)
        except ConnectionResetError:
            return b""  # it has ended before it had read its order

    def _look(self) -> None:
        now = time.monotonic()
        if self._ending is None:
            if now >= self._deadline:
                self._ending = exception.DeadlineError(
                    f"{self.purpose} took longer than {self._seconds:g} s",
                    hint="raise its deadline, or [captures] read_rate",
                )
            elif not self._is_wanted():
                self._ending = exception.UnavailableError(f"{self.purpose} is not wanted any more")
            if self._ending is not None:
                self._process.send_signal(signal.SIGTERM)
                self._kill_at = now + self._end_grace
        elif now >= self._kill_at:
            self._process.kill()
            self._kill_at = float("inf")

    def _take(self, part: bytes) -> None:
        self._rest += part
        while (end := self._rest.find(b"\n")) >= 0:
            line = bytes(self._rest[:end])
            del self._rest[: end + 1]
            self._take_line(line)
        if len(self._rest) > orders.LINE_SIZE_MAX:
            raise exception.InternalError(f"a process of {self.purpose} says too much")

    def _take_line(self, line: bytes) -> None:
        message = untrusted_json.load(line, f"what a process of {self.purpose} says")
        match message:
            case {"progress": [int(done), int(total)]}:
                self._hearing.progress(done, total)
            case {"frozen": str(server)}:
                self._hearing.frozen(server)
            case {"committed": str(version)}:
                self._hearing.committed(version)
            case {"report": dict(report)}:
                self._report = report
            case {"failure": dict(failure)}:
                self._failure = Failure.from_fields(failure).to_error()
            case _:
                raise exception.InternalError(f"a process of {self.purpose} says nonsense")


def _died(
    process: "subprocess.Popen[bytes]", error: OSError | None, purpose: str
) -> exception.AcstorError:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(CHECK_INTERVAL)
    status = process.returncode
    reason = f"status {status}" if error is None else str(error.strerror)
    return exception.UnavailableError(
        f"the process of {purpose} has ended: {reason}",
        hint="see the log of acstor-agent, and ask again",
    )


def in_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """Start a thread; a child ends with the thread that started it, so each has its own."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
