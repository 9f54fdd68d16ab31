"""A snapshot that misbehaves on purpose, around any other; it counts what is read."""

import dataclasses
import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from acstor import exception
from acstor.repository.source.rbd import base
from acstor.repository.source.rbd.data_ranges import DataRanges


class Operation(enum.StrEnum):
    """Call of a snapshot."""

    LIST = "list"
    READ = "read"
    LOOK = "look"


class Effect(enum.StrEnum):
    """Fault that is injected."""

    ERROR = "error"
    """The call fails."""
    DELAY = "delay"
    """The call waits, then does its work."""
    CORRUPTION = "corruption"
    """A read returns other bytes. Only for :attr:`Operation.READ`."""
    ACTION = "action"
    """Something else happens first: :attr:`Fault.action`."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, at certain calls of one operation."""

    operation: Operation
    effect: Effect
    call: int | None = None
    """The n-th call of that operation, counted from 1; None: any."""
    delay_seconds: float = 0.0
    error: Callable[[str], exception.AcstorError] = exception.UnavailableError
    action: Callable[[], None] = lambda: None


class FaultySnapshot(base.BlockSnapshot):
    """Passes every call on, except where a fault hits.

    :param inner: the snapshot that does the work.
    :param faults: what goes wrong; the first that hits a call counts.
    :param sleep: how to wait; a test may put its own.
    """

    def __init__(
        self,
        inner: base.BlockSnapshot,
        faults: Sequence[Fault] = (),
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wrap ``inner``."""
        self._inner = inner
        self._sleep = sleep
        self._lock = threading.Lock()
        self.name = inner.name
        self.size_bytes = inner.size_bytes
        self.faults = list(faults)
        self.calls: Counter[Operation] = Counter()
        self.bytes_read = 0
        self.is_closed = False

    def list_data(self) -> DataRanges:
        """Return the ranges that may hold data."""
        self._before(Operation.LIST)
        return self._inner.list_data()

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the snapshot."""
        fault = self._before(Operation.READ)
        content = self._inner.read(offset, size)
        with self._lock:
            self.bytes_read += len(content)
        if fault and fault.effect is Effect.CORRUPTION and content:
            return bytes([content[0] ^ 1]) + content[1:]
        return content

    def is_there(self) -> bool:
        """Return whether it is there."""
        self._before(Operation.LOOK)
        return self._inner.is_there()

    def close(self) -> None:
        """Close the snapshot that does the work."""
        self.is_closed = True
        self._inner.close()

    def _before(self, operation: Operation) -> Fault | None:
        """Count a call; do what goes wrong before it, and return the fault that hits it."""
        with self._lock:
            self.calls[operation] += 1
            call = self.calls[operation]
            hits = (
                fault
                for fault in self.faults
                if fault.operation is operation and fault.call in (None, call)
            )
            fault = next(hits, None)
        if fault is None:
            return None
        if fault.effect is Effect.DELAY:
            self._sleep(fault.delay_seconds)
        if fault.effect is Effect.ACTION:
            fault.action()
        if fault.effect is Effect.ERROR:
            raise fault.error(f"{operation} of {self.name} failed on purpose")
        return fault
