"""Registering files in child processes with bounded memory.

A file of a project may make its registration take any memory, or crash what reads it. That ends
one child, and the registration is one that failed; the registrar and its other registrations go
on. What a child has left in its temporary folder is removed; what it stored is found again.
"""

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

from acstor import child_process, exception
from acstor.registrar.registration import child_messages
from acstor.registrar.registration.child_messages import OutOfMemoryError
from acstor.registrar.registration.child_signing import OrderedRecord
from acstor.registrar.registration.file_registration import (
    CancelledError,
    FileRegistrar,
    FileSettings,
    ImageFile,
)
from acstor.repository.images import registration
from acstor.repository.images.record_writer import RecordWriter
from acstor.repository.repository import Repository

LOG = logging.getLogger(__name__)

CHECK_INTERVAL = 0.25
"""Seconds after which the registrar looks whether a child is still wanted."""
CANCEL_GRACE = 5.0
"""Seconds that a child has to end by itself when it is not wanted any more."""
ERRORS_SIZE_MAX = 4096
"""Bytes that are kept of what a child writes to its standard error."""
SILENCE_MAX = 3600.0
"""Seconds without a word after which a child counts as hung. It says something for every part of
the disk that it has stored; the longest silence is that in which a file's checksum is computed."""
_PART_SIZE = 64 << 10
_ALLOCATION_FAILED = (b"memory allocation of", b"MemoryError", b"Cannot allocate memory")


class InChild(FileRegistrar):
    """Registers each file in a process of its own.

    :param origin_url: where the child finds the repository.
    :param origin_timeout: seconds, for each call of the origin.
    :param memory_bytes: most address space of a child.
    :param command: what a child runs, the number of its socket appended.
    :param silence_max: seconds without a word after which a child is killed.
    :param writer: writes the records here, where its key is; None: children write them, unsigned.
    """

    def __init__(
        self,
        origin_url: str,
        origin_timeout: float,
        memory_bytes: int,
        command: tuple[str, ...] = ("-m", "acstor.registrar.registration.registration_child"),
        silence_max: float = SILENCE_MAX,
        writer: RecordWriter | None = None,
    ) -> None:
        """Keep how to start children."""
        self._origin = (origin_url, origin_timeout)
        self._memory_bytes = memory_bytes
        self._command = command
        self._silence_max = silence_max
        self._writer = writer

    def register(
        self,
        repository: Repository,
        file: ImageFile,
        settings: FileSettings,
        check: Callable[[], None],
        advance: Callable[[int], None],
    ) -> registration.Report:
        """Register the file; errors are those of the child, or say how it died."""
        record = OrderedRecord(self._writer, repository, file) if self._writer else None
        order = child_messages.Order(
            *self._origin,
            repository.format.id,
            self._memory_bytes,
            file,
            settings,
            is_signing=record is not None,
            is_current=record is None or record.is_current(),
        )
        with tempfile.TemporaryDirectory(
            prefix="acstor-register-", ignore_cleanup_errors=True
        ) as folder:
            # Nobody, as whom QEMU's tools run where this is root, has to find what is in it.
            os.chmod(folder, 0o711)  # noqa: S103 - its names are not listed
            ours, theirs = socket.socketpair()
            with ours:
                with theirs:
                    process = self._start(theirs.fileno(), folder)
                with process:
                    try:
                        watch = _Watch(process, ours, check, advance, self._silence_max, record)
                        return watch.follow(order)
                    finally:
                        process.kill()

    def _start(self, descriptor: int, folder: str) -> "subprocess.Popen[bytes]":
        """Start a child of this thread, which must not end before it."""
        return child_process.start(
            self._command,
            descriptor,
            "a registration",
            # Address space is limited, and glibc reserves 64 MiB of it for each arena.
            variables={"TMPDIR": folder, "MALLOC_ARENA_MAX": "4"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )


class _Watch:
    """Follows one child to its end."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        connection: socket.socket,
        check: Callable[[], None],
        advance: Callable[[int], None],
        silence_max: float,
        record: OrderedRecord | None,
    ) -> None:
        self._record = record
        self._process = process
        self._silence_max = silence_max
        self._connection = connection
        self._check = check
        self._advance = advance
        self._rest = bytearray()
        self._errors = bytearray()
        self._last: dict[str, Any] | None = None
        """Message that the child sent at its end."""
        self._cancelled: CancelledError | None = None
        self._kill_at = float("inf")
        """Time at which it has to have ended: it is not wanted, or says no more."""
        self._is_hung = False

    def follow(self, order: child_messages.Order) -> registration.Report:
        """Return what the child's registration did, or raise what it raised."""
        try:
            self._send(order.encode())
            self._read_all()
        except ValueError as error:
            raise exception.InternalError(
                f"the process of a registration says what cannot be understood: {error}"
            ) from error
        if self._cancelled is not None:
            raise self._cancelled
        if self._is_hung:
            raise exception.DeadlineError(
                f"the process of the registration has said nothing for {self._silence_max:g} s",
                hint="look whether the file is read very slowly, and whether the origin answers",
            )
        if self._last is None:
            raise self._death()
        try:
            if "report" in self._last:
                return child_messages.report_of(self._last["report"])
            failure = child_messages.error_of(self._last["error"])
        except ValueError as error:
            raise exception.InternalError(
                f"the process of a registration says what cannot be understood: {error}"
            ) from error
        raise failure

    def _read_all(self) -> None:
        """Hear what the child says until it has said its last, or is gone."""
        with selectors.DefaultSelector() as streams:
            streams.register(self._connection, selectors.EVENT_READ, self._take)
            if self._process.stderr is not None:
                streams.register(self._process.stderr, selectors.EVENT_READ, self._keep)
            heard_at = time.monotonic()
            while streams.get_map() and self._last is None:
                for key, _ in streams.select(CHECK_INTERVAL):
                    part = self._read(key.fd)
                    heard_at = time.monotonic()
                    if part:
                        key.data(part)
                    else:
                        streams.unregister(key.fileobj)
                        self._kill_at = min(self._kill_at, time.monotonic() + CANCEL_GRACE)
                self._may_go_on()
                if time.monotonic() >= self._kill_at:
                    return
                if time.monotonic() - heard_at >= self._silence_max:
                    self._is_hung = True
                    return

    def _read(self, descriptor: int) -> bytes:
        try:
            return os.read(descriptor, _PART_SIZE)
        except ConnectionResetError:
            return b""

    def _may_go_on(self) -> str:
        """Return why the child has to end; empty: it may go on."""
        if self._cancelled is None:
            try:
                self._check()
            except CancelledError as error:
                self._cancelled = error
                self._kill_at = min(self._kill_at, time.monotonic() + CANCEL_GRACE)
        return self._cancelled.message if self._cancelled is not None else ""

    def _keep(self, part: bytes) -> None:
        self._errors += part
        del self._errors[:-ERRORS_SIZE_MAX]

    def _take(self, part: bytes) -> None:
        *lines, rest = (self._rest + part).split(b"\n")
        for line in lines:
            self._hear(child_messages.decode(bytes(line)))
        if len(rest) > child_messages.LINE_SIZE_MAX:
            raise ValueError("a line is too long")
        self._rest = rest

    def _hear(self, message: dict[str, Any]) -> None:
        match message:
            case {"ask": int(size_bytes)}:
                self._advance(max(0, min(size_bytes, 1 << 50)))
                self._send(child_messages.encode({"cancel": self._may_go_on()}))
            case {"record": dict(fields)} if self._record is not None:
                self._send(self._written(self._record, fields))
            case {"log": [str(name), int(level), str(text)]}:
                known = name if name.startswith("acstor.") else __name__
                logging.getLogger(known[:100]).log(min(max(level, 0), logging.ERROR), "%s", text)
            case {"report": _} | {"error": _}:
                self._last = message
            case _:
                raise ValueError("an unknown message")

    def _written(self, record: OrderedRecord, fields: dict[str, Any]) -> bytes:
        """Return the line with what a ref is to hold, or why it cannot be written."""
        reason = self._may_go_on()
        try:
            if reason:
                raise CancelledError(reason)
            return child_messages.encode({"written": record.write(fields).decode()})
        except (exception.AcstorError, OSError) as error:
            return child_messages.encode_error(error)

    def _send(self, line: bytes) -> None:
        try:
            self._connection.sendall(line)
        except OSError as error:  # it is gone, which the end of its output says
            LOG.debug("the process of a registration does not listen: %s", error)

    def _death(self) -> exception.AcstorError:
        """Return the error for a child that ended without a word."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CANCEL_GRACE)
        self._process.kill()
        status = self._process.wait()
        lines = bytes(self._errors).decode(errors="replace").strip().splitlines()
        said = f": {lines[-1][:500]}" if lines else ""
        if any(words in self._errors for words in _ALLOCATION_FAILED):
            return OutOfMemoryError(f"the registration needs more memory than it may have{said}")
        if status == -signal.SIGKILL:
            return exception.ExhaustedError(
                "the process of the registration was killed",
                hint="see the kernel's log: where the machine, or the service's MemoryMax, has "
                "too little memory, lower [registrar] workers or job_memory",
            )
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended: {status}"
        return exception.InternalError(f"the process of the registration {how}{said}")
