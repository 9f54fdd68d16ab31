"""QEMU's server of one disk at rest: confined, behind a unix socket in a folder of its own."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from acstor import exception
from acstor.backoff import BackOff
from acstor.repository.source import confinement
from acstor.repository.source.confinement import Limits

ADDRESS_SPACE_MAX = 4 << 30
"""Bytes of address space of qemu-nbd."""
CPU_SECONDS_MIN = 60
BYTES_PER_CPU_SECOND = 2 << 20
"""Slowest reading of a disk that is allowed, bytes per CPU second."""
START_TIMEOUT = 30.0
"""Seconds that qemu-nbd may take to listen."""
END_TIMEOUT = 60.0
"""Seconds that it may take to end by itself: it writes what it keeps of the image's tables."""
ERRORS_SIZE_MAX = 4096
"""Bytes that are shown of what qemu-nbd says."""
CONNECTIONS = 2
"""Connections that a server takes at a time."""
_CONNECT = BackOff(first=0.01, longest=0.2)

Opened = TypeVar("Opened")


class QemuServer:
    """A qemu-nbd that has a disk open, a child of this process.

    :param path: of the disk, for people.
    :param descriptor: of the disk's file; open for as long as the server is.
    :param image: options of the image, as ``--image-opts`` takes them.
    :param is_writable: whether it takes writes.
    :param work_bytes: that may be read and written beside the file as it is: a small overlay may
        come to have all of its disk.
    :raises UnavailableError: when it cannot be run.
    """

    def __init__(
        self,
        path: str,
        descriptor: int,
        image: str,
        *,
        is_writable: bool = False,
        work_bytes: int = 0,
    ) -> None:
        """Start it; it may not listen yet."""
        self._path = path
        self._work_bytes = work_bytes
        self._folder = tempfile.mkdtemp(prefix="acstor-disk-")
        self.socket_path = os.path.join(self._folder, "nbd")
        try:
            self._process = self._start(descriptor, image, is_writable)
        except BaseException:
            self._remove_folder()
            raise

    def connect(self, attempt: Callable[[], Opened]) -> Opened:
        """Return what an attempt to connect returns, once the server listens.

        :raises UnavailableError: when it does not open the disk, with its reason.
        """
        for attempts in _counted(time.monotonic() + START_TIMEOUT):
            try:
                return attempt()
            except exception.UnavailableError:
                if self._process.poll() is not None:
                    raise self._refusal() from None
                time.sleep(_CONNECT.seconds(attempts))
        raise exception.DeadlineError(f"qemu-nbd does not open {self._path} in {START_TIMEOUT:g} s")

    def finish(self) -> None:
        """Have it close the disk, and end.

        :raises UnavailableError: when it does not, or not well: then it is killed.
        """
        try:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise exception.DeadlineError(
                f"qemu-nbd does not close {self._path} in {END_TIMEOUT:g} s"
            ) from None
        else:
            if self._process.returncode != 0:
                raise self._refusal()
        finally:
            self.kill()

    def kill(self) -> None:
        """End it, whatever it is at; ending it again does nothing."""
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._remove_folder()

    def _start(self, descriptor: int, image: str, is_writable: bool) -> "subprocess.Popen[bytes]":
        arguments = [
            "qemu-nbd",
            *(() if is_writable else ("--read-only",)),
            "--allocation-depth",
            "--persistent",
            f"--shared={CONNECTIONS}",
            f"--socket={self.socket_path}",
            "--image-opts",
            image,
        ]
        confinement.give(self._folder)
        size = os.fstat(descriptor).st_size + self._work_bytes
        seconds = CPU_SECONDS_MIN + size // BYTES_PER_CPU_SECOND
        try:
            return subprocess.Popen(
                confinement.confine(
                    arguments,
                    Limits(ADDRESS_SPACE_MAX, seconds),
                    descriptor,
                    reads_all=True,  # the base file may be the group's that reads images
                    writes=is_writable,
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(descriptor,),
                env=confinement.environment(self._folder),
            )
        except OSError as error:
            raise exception.UnavailableError(
                f"qemu-nbd cannot be run for {self._path}: {error.strerror}",
                hint="install qemu-utils",
            ) from error

    def _refusal(self) -> exception.AcstorError:
        output = b""
        if self._process.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                output = self._process.stderr.read(ERRORS_SIZE_MAX)
        lines = output.decode(errors="replace").strip().splitlines()
        status = f"it ended with status {self._process.returncode}"
        reason = lines[-1][:500] if lines else status
        return exception.UnavailableError(
            f"qemu-nbd does not open {self._path}: {reason}",
            hint="install qemu-utils and util-linux",
        )

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _counted(until: float) -> Iterator[int]:
    attempts = 0
    while time.monotonic() < until:
        attempts += 1
        yield attempts
