"""A mounter in memory: a socket pair for each mount, which is gone when that is closed."""

import socket

from acstor import exception


class MemoryMounter:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures: dict[str, exception.AcstorError] = {}
        """Error with which a call fails, by its name."""
        self._ends: list[socket.socket] = []

    def mount(self) -> int:
        self._called("mount")
        ours, theirs = socket.socketpair()
        self._ends.append(theirs)
        return ours.detach()

    def set_read_ahead(self) -> None:
        self._called("set_read_ahead")

    def unmount(self) -> None:
        self._called("unmount")
        self.close()

    def detach(self) -> None:
        self._called("detach")

    def close(self) -> None:
        while self._ends:
            self._ends.pop().close()

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.failures:
            raise self.failures[name]
