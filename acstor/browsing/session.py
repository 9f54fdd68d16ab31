"""Sessions with a process that reads the file systems of one disk."""

import json
import logging
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from typing import Protocol

from acstor import child_process, exception, untrusted_json
from acstor.browsing import frames
from acstor.browsing.frames import FrameSocket

LOG = logging.getLogger(__name__)

SECONDS_MAX = 3600.0
"""Seconds that a session takes at most: a large file on its way to a slow client."""
_COMMAND = ("-m", "acstor.browsing.child")
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "LANG", "LC_ALL")
"""Variables that a program needs to start. Of what the process has a disk may make content."""
_HINT = "export the version, and look into it with a machine of your own"
_ERRORS: Mapping[str, type[exception.AcstorError]] = {
    "not_found": exception.NotFoundError,
    "invalid": exception.InvalidError,
    "unsupported": exception.UnsupportedError,
    "damaged": exception.UnsupportedError,
    "too_large": exception.InvalidError,
}
"""Errors by what the process calls them. A guest's damage is no damage of the origin."""
_MESSAGE_MAX = 1000
"""Characters of an error that are passed on."""


class ReadableDisk(Protocol):
    """Disk that never changes."""

    @property
    def size_bytes(self) -> int:
        """Length."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of it."""


class Session:
    """Process of one disk, from the first question to :meth:`close`.

    One answer is taken at a time, and to its end: an answer that is given up closes the session.

    :param command: of Python; the size of the disk and a descriptor follow.
    """

    def __init__(
        self,
        disk: ReadableDisk,
        seconds: float = SECONDS_MAX,
        command: tuple[str, ...] = _COMMAND,
    ) -> None:
        """Start the process.

        :raises UnavailableError: when it cannot be started.
        """
        self._disk = disk
        ours, theirs = socket.socketpair()
        self._frames = FrameSocket(ours, seconds)
        try:
            with theirs:
                self._process = child_process.start(
                    (*command, str(disk.size_bytes)),
                    theirs.fileno(),
                    "the files of a version",
                    # Address space is limited, and glibc reserves 64 MiB of it for each arena.
                    variables={"MALLOC_ARENA_MAX": "1"},
                    inherited=_INHERITED,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        except BaseException:
            ours.close()
            raise
        self._is_greeted = False

    def close(self) -> None:
        """End the process. May be repeated."""
        self._process.kill()
        self._process.wait()
        self._frames.close()

    def ask(self, question: Mapping[str, object]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the parts of an answer, each with its kind: :data:`~.frames.ITEM` or ``BYTES``.

        :raises NotFoundError: when there is no such file or partition.
        :raises InvalidError: when it cannot be asked for that way, or has too much to be shown.
        :raises UnsupportedError: when nothing here reads it, or it is damaged.
        :raises UnavailableError: when the process ends, or takes too long.
        :raises AcstorError: as reading the disk does.
        """
        try:
            yield from self._answer(json.dumps(question).encode())
        except ValueError as error:
            raise exception.InternalError(
                f"the process that reads files says what cannot be understood: {error}"
            ) from error
        except OSError as error:
            raise self._death() from error

    def _answer(self, question: bytes) -> Iterator[tuple[bytes, bytes]]:
        if not self._is_greeted:
            self._greet()
        self._frames.send(frames.QUESTION, question)
        while True:
            kind, content = self._next()
            if kind == frames.WANTED:
                self._frames.send(frames.DATA, self._read(*frames.wanted(content)))
            elif kind in (frames.ITEM, frames.BYTES):
                yield kind, content
            elif kind == frames.ERROR:
                raise _error_of(content)
            elif kind == frames.END:
                return
            else:
                raise ValueError(f"a frame {kind!r} in an answer")

    def _read(self, offset: int, size: int) -> bytes:
        """Return bytes of the disk; what reading comes to is not the process's fault."""
        try:
            return self._disk.read(offset, size)
        except (OSError, ValueError) as error:
            raise exception.UnavailableError(
                f"the disk cannot be read at {offset}: {error}", hint="look at the origin"
            ) from error

    def _greet(self) -> None:
        kind, content = self._next()
        said = untrusted_json.load(content, "the greeting")
        expected = {"version": frames.PROTOCOL_VERSION, "size_bytes": self._disk.size_bytes}
        if kind != frames.HELLO or said != expected:
            raise ValueError(f"its greeting is {said!r}, not {expected!r}")
        self._is_greeted = True

    def _next(self) -> tuple[bytes, bytes]:
        found = self._frames.receive()
        if found is None:
            raise self._death()
        return found

    def _death(self) -> exception.AcstorError:
        """Return what became of the process: it says no more."""
        self._process.kill()
        status = self._process.wait()
        if status == -signal.SIGSYS:
            LOG.error(
                "The process that read the files of a version did what it may not; it is gone"
            )
        return exception.UnsupportedError(
            f"the process that reads the files ended early ({_named(status)}): the file system is "
            "damaged, larger than is looked into, or made to do harm",
            hint=_HINT,
        )


def _named(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _error_of(content: bytes) -> exception.AcstorError:
    """Return the error that the process tells of.

    :raises ValueError: when it is none.
    """
    said = untrusted_json.load(content, "an error")
    if not isinstance(said, dict) or not isinstance(said.get("message"), str):
        raise ValueError("an error without a message")
    message, kind = said["message"][:_MESSAGE_MAX], said.get("kind")
    # Where the origin fails the process is told nothing: what it misses is not on the disk.
    if kind in ("damaged", "unavailable"):
        return exception.UnsupportedError(f"the file system is damaged: {message}", hint=_HINT)
    return _ERRORS.get(str(kind), exception.UnavailableError)(message)
