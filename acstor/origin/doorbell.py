"""Doorbell: a signal from those who change refs to those who follow them.

A hint: a ring may be lost, or come for nothing. Who listens looks at the refs all the same now and
then, and looks at them earlier when it hears something.
"""

import abc
import threading
from collections.abc import Callable


class Doorbell(abc.ABC):
    """Rung by writers of refs, and heard by all who listen."""

    @abc.abstractmethod
    def ring(self) -> None:
        """Have everybody who listens look; returns at once, raises nothing, and may be lost."""

    @abc.abstractmethod
    def listen(self, heard: Callable[[], object]) -> None:
        """Listen from now on; returns at once.

        :param heard: called after a ring, once for several that come together, and whenever rings
            may have been missed, as at the beginning. From any thread; it must not block.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Listen no longer; what was rung until now still goes out if that takes no time."""


class MemoryDoorbell(Doorbell):
    """Doorbell within one process; whoever rings it calls those who listen."""

    def __init__(self) -> None:
        """Begin without listeners."""
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []

    def ring(self) -> None:
        """Call everybody who listens."""
        with self._lock:
            listeners = list(self._listeners)
        for heard in listeners:
            heard()

    def listen(self, heard: Callable[[], object]) -> None:
        """Listen from now on."""
        with self._lock:
            self._listeners.append(heard)
        heard()

    def close(self) -> None:
        """Listen no longer."""
        with self._lock:
            self._listeners.clear()
