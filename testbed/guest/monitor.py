"""QEMU's machine protocol (QMP): one command after the other."""

import contextlib
import json
import pathlib
import socket
from typing import Any

from testbed import exception

TIMEOUT_S = 60.0


class Monitor:
    """A connection to a QEMU that runs.

    :param path: of its socket, on which it listens.
    :raises OSError: when it does not (yet).
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._events: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(TIMEOUT_S)
            self._socket.connect(str(path))
            self._lines = self._socket.makefile("r")
            self._lines.readline()  # greeting
            self.execute("qmp_capabilities")
        except BaseException:
            self.close()
            raise

    def execute(self, command: str, **arguments: Any) -> Any:
        """Return the answer to a command.

        :raises TestbedError: when it fails or QEMU does not answer.
        """
        request = {"execute": command, "arguments": arguments}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while "event" in (answer := self._read()):
                self._events.append(answer)
        except OSError as error:
            raise exception.TestbedError(f"QEMU's monitor is gone at {command}: {error}") from error
        if "error" in answer:
            raise exception.TestbedError(f"QEMU refuses {command}: {answer['error']['desc']}")
        return answer["return"]

    def wait_event(self, name: str, **data: str) -> None:
        """Wait for an event that has some data, which may have come before.

        :raises TestbedError: when it does not come in time.
        """
        while True:
            for event in self._events:
                if event["event"] == name and data.items() <= event.get("data", {}).items():
                    self._events.remove(event)
                    return
            try:
                self._events.append(self._read())
            except OSError as error:
                raise exception.TestbedError(f"QEMU tells of no {name} {data}: {error}") from error

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise ConnectionResetError("QEMU has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Leave QEMU alone."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
