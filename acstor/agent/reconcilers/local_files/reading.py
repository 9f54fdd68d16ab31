"""Reading an image's file in the mount without being hung up by a data plane that hangs."""

import contextlib
import errno
import os
import select
import stat
import subprocess
import sys
import time
from typing import Protocol

from acstor import exception
from acstor.agent.reconcilers.local_files import reading_child

READ_TIMEOUT = 60.0
"""Seconds that one piece may take: longer than the data plane waits for the origin."""
_MODULE = "acstor.agent.reconcilers.local_files.reading_child"
_END_TIMEOUT = 1.0
"""Seconds that a child has to end; one that hangs in the kernel is left behind."""


class ImageReader(Protocol):
    """Reads one image."""

    @property
    def size_bytes(self) -> int:
        """Size of the image, bytes."""

    @property
    def group(self) -> int | None:
        """Group that alone may read images; None: every user may."""

    def read(self, offset: int, size: int) -> memoryview:
        """Return a part of the image.

        :raises UnavailableError: when it cannot be read in time.
        """

    def close(self) -> None:
        """Read no more."""


class ChildReader:
    """Reads a file of the mount in a child process.

    :param path: of the image's file.
    :param timeout: seconds that the greeting and each piece may take.
    :raises UnavailableError: when the file cannot be opened in time.
    :raises InvalidError: when this process may not read it as one that leaves no traces.
    """

    def __init__(self, path: str, timeout: float = READ_TIMEOUT) -> None:
        self._path = path
        self._timeout = timeout
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        try:
            self.size_bytes, self.group = self._greeted()
        except BaseException:
            self.close()
            raise

    def _greeted(self) -> tuple[int, int | None]:
        number, size, mode, group = reading_child.GREETING.unpack(
            self._receive(reading_child.GREETING.size)
        )
        if number == errno.EPERM:
            raise exception.InvalidError(
                f"{self._path} can be read for a local file by root only",
                hint="run acstor-agent as root, or set [local_files] enabled = false",
            )
        if number:
            raise exception.UnavailableError(f"{self._path}: {os.strerror(number)}")
        return size, None if mode & stat.S_IROTH else group

    def read(self, offset: int, size: int) -> memoryview:
        """See :class:`ImageReader`."""
        try:
            self._input.write(reading_child.REQUEST.pack(offset, size))
            self._input.flush()
        except OSError as error:
            raise self._ended() from error
        (number,) = reading_child.ANSWER.unpack(self._receive(reading_child.ANSWER.size))
        if number:
            reason = os.strerror(number) if number > 0 else "it ends early"
            raise exception.UnavailableError(f"{self._path} at {offset}: {reason}")
        return self._receive(size)

    def _receive(self, size: int) -> memoryview:
        received, filled = memoryview(bytearray(size)), 0
        deadline = time.monotonic() + self._timeout
        poll = select.poll()
        poll.register(self._output.fileno(), select.POLLIN)
        while filled < size:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise exception.DeadlineError(
                    f"{self._path} was not read in {self._timeout:g} s",
                    hint="see 'acstor-status upgrade check' and the log of acstor-dataplane",
                )
            with contextlib.suppress(BlockingIOError):
                count = os.readv(self._output.fileno(), [received[filled:]])
                if not count:
                    raise self._ended()
                filled += count
        return received

    def _ended(self) -> exception.UnavailableError:
        return exception.UnavailableError(f"the process that reads {self._path} has ended")

    def close(self) -> None:
        """See :class:`ImageReader`."""
        self._process.kill()
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT)
