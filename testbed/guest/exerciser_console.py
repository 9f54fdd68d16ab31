"""Commands in an exerciser, through its virtio serial port."""

import base64
import contextlib
import itertools
import pathlib
import re
import socket
import time
from collections.abc import Callable

from testbed import exception

COMMAND_TIMEOUT_S = 120.0
_PIECE_BYTES = 1 << 16
_READY = "acstor-exerciser-ready"
_ANSWER = re.compile(r"acstor-exerciser-answer (\d+) (\d+) ([A-Za-z0-9+/=]*)")


class GuestCommandError(exception.TestbedError):
    """A command in a guest failed, or did not end in time."""


class ExerciserConsole:
    """The port of a guest.

    :param path: of the socket that QEMU has for it.
    :raises OSError: when QEMU does not listen (yet).
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.lines: list[str] = []  #: what commands wrote to their descriptor 3
        self._numbers = itertools.count(1)
        self._rest = b""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the guest takes commands."""
        self.wait_line(_READY.__eq__, timeout_s)

    def run(self, command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run a line of bash in the guest and return what it printed, errors too.

        :raises GuestCommandError: when its exit status is not 0, or it does not end in time.
        """
        return self.finish(self.start(command), timeout_s)

    def start(self, command: str) -> int:
        """Start a command, which is to be finished before the next one; return its number."""
        assert "\n" not in command, command
        number = next(self._numbers)
        self._socket.settimeout(COMMAND_TIMEOUT_S)
        self._socket.sendall(f"{number} {command}\n".encode())
        return number

    def finish(self, number: int, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Wait for the end of a command and return what it printed."""
        wanted = f"acstor-exerciser-answer {number} "
        line = self.wait_line(lambda line: line.startswith(wanted), timeout_s)
        found = _ANSWER.fullmatch(line)
        if found is None:
            raise GuestCommandError(f"the guest's answer is damaged: {line[:200]}")
        output = base64.b64decode(found[3]).decode(errors="replace")
        if found[2] != "0":
            raise GuestCommandError(f"the command ended with {found[2]}: {output}")
        return output

    def wait_line(self, is_wanted: Callable[[str], bool], timeout_s: float) -> str:
        """Return the first line that is wanted and comes now; all are kept in :attr:`lines`.

        :raises GuestCommandError: when none comes in time, or QEMU ends.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            line = self._read_line(deadline, timeout_s)
            self.lines.append(line)
            if is_wanted(line):
                return line

    def read_rest(self) -> None:
        """Read what a guest that has ended wrote before."""
        with contextlib.suppress(GuestCommandError):
            self.wait_line(lambda _: False, COMMAND_TIMEOUT_S)

    def _read_line(self, deadline: float, timeout_s: float) -> str:
        while b"\n" not in self._rest:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                piece = self._socket.recv(_PIECE_BYTES)
            except TimeoutError as error:
                raise GuestCommandError(f"the guest said nothing in {timeout_s:g} s") from error
            except OSError as error:
                raise GuestCommandError(f"the guest is gone: {error}") from error
            if not piece:
                raise GuestCommandError("the guest is gone")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def close(self) -> None:
        """Leave the guest alone."""
        self._socket.close()
