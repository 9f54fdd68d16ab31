"""The child process of one registration, started with ``-m`` and a descriptor as its argument.

It has no credentials of other services: what it gets is a file, the URL of the origin, and a
socket to the registrar. What the file makes it take is bounded by its limits, and what becomes of
it is one failed registration. It ends with the registrar, whatever either of them is doing.
"""

import contextlib
import ctypes
import logging
import os
import resource
import signal
import socket
import sys
import threading
from typing import Any

from acstor import exception, warning_filters
from acstor.registrar.registration import child_messages
from acstor.registrar.registration.child_messages import Order
from acstor.registrar.registration.child_signing import ChildRecords
from acstor.registrar.registration.file_registration import CancelledError, InProcess
from acstor.repository.source import confined

FILES_MAX = 4096
"""Open files: of the image, of packs, and connections to the origin."""
_OOM_SCORE_MAX = "1000"
_PR_SET_PDEATHSIG = 1


class Parent:
    """The registrar, at the other end of a socket."""

    def __init__(self, descriptor: int) -> None:
        """Use an open socket."""
        self._socket = socket.socket(fileno=descriptor)
        self._lines = self._socket.makefile("rb")
        self._stored = 0
        self._lock = threading.Lock()

    def read_order(self) -> Order:
        """Return what to do."""
        return Order.parse(self._read())

    def advance(self, size_bytes: int) -> None:
        """Note that so much more was stored; said with the next question."""
        self._stored += size_bytes

    def check(self) -> None:
        """Ask whether to go on, and wait for as long as the registrar wants.

        :raises CancelledError: when not.
        """
        stored, self._stored = self._stored, 0
        self.send(child_messages.encode({"ask": stored}))
        reason = child_messages.decode(self._read()).get("cancel")
        if reason:
            raise CancelledError(str(reason))

    def write_record(self, fields: dict[str, Any]) -> bytes:
        """Have the registrar write the image's record; return the content of its ref.

        :raises CancelledError: when the registration is not wanted any more.
        :raises AcstorError: when it cannot be written.
        """
        self.send(child_messages.encode({"record": fields}))
        answer = child_messages.decode(self._read())
        if "error" in answer:
            raise child_messages.error_of(answer["error"])
        return str(answer["written"]).encode()

    def send(self, line: bytes) -> None:
        """Say something; from any thread."""
        with self._lock:
            self._socket.sendall(line)

    def _read(self) -> bytes:
        line = self._lines.readline(child_messages.LINE_SIZE_MAX)
        if not line.endswith(b"\n"):
            os._exit(1)  # the registrar is gone
        return line


class _ToParent(logging.Handler):
    """Has the registrar log what is logged here."""

    def __init__(self, parent: Parent) -> None:
        super().__init__(logging.INFO)
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)[:1000]
        self._parent.send(child_messages.encode({"log": [record.name, record.levelno, text]}))


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def limit(memory_bytes: int) -> None:
    """Set this process's limits, and have the kernel prefer it to the registrar."""
    confined.limit(
        {
            resource.RLIMIT_AS: memory_bytes,
            resource.RLIMIT_NOFILE: FILES_MAX,
            resource.RLIMIT_CORE: 0,
        }
    )
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(_OOM_SCORE_MAX)


def register(order: Order, parent: Parent) -> bytes:
    """Do what was ordered; return the line that says what came of it."""
    from acstor.origin.opening import open_origin
    from acstor.repository.repository import Repository

    origin = open_origin(order.origin_url, order.origin_timeout)
    try:
        repository = Repository.open(origin)
        if repository.format.id != order.repository_id:
            raise exception.UnavailableError(
                f"the origin holds another repository, {repository.format.id} and not "
                f"{order.repository_id}",
                hint="check that the origin's file system is mounted, and which",
            )
        writer = (
            ChildRecords(parent.write_record, is_current=order.is_current)
            if order.is_signing
            else None
        )
        report = InProcess(writer).register(
            repository, order.file, order.settings, parent.check, parent.advance
        )
        return child_messages.encode_report(report)
    finally:
        origin.close()


def main(arguments: list[str]) -> int:
    """Register one file."""
    end_with_parent()
    warning_filters.ignore_eventlet()
    parent = Parent(int(arguments[0]))
    order = parent.read_order()
    limit(order.memory_bytes)
    logging.basicConfig(level=logging.INFO, handlers=[_ToParent(parent)])
    try:
        last = register(order, parent)
    except Exception as error:
        last = child_messages.encode_error(error)
    parent.send(last)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
