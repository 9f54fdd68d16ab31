"""An image service that misbehaves on purpose, around any other."""

import dataclasses
import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from acstor import exception
from acstor.registrar.image_service import base


class Operation(enum.StrEnum):
    """Call of the image service."""

    LIST = "list"
    FIND = "find"
    OPEN = "open"
    READ = "read"


class Effect(enum.StrEnum):
    """Fault that is injected."""

    ERROR = "error"
    """The call fails."""
    DELAY = "delay"
    """The call waits, then does its work."""
    CORRUPTION = "corruption"
    """A read returns other bytes. Only for :attr:`Operation.READ`."""
    END = "end"
    """A read says that there is no more. Only for :attr:`Operation.READ`."""
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


class FaultyImageService(base.ImageService):
    """Passes every call on, except where a fault hits.

    :param inner: the service that does the work.
    :param faults: what goes wrong; the first that hits a call counts.
    :param sleep: how to wait; a test may put its own.
    """

    def __init__(
        self,
        inner: base.ImageService,
        faults: Sequence[Fault] = (),
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wrap ``inner``."""
        self._inner = inner
        self._sleep = sleep
        self._lock = threading.Lock()
        self.faults = list(faults)
        self.calls: Counter[Operation] = Counter()

    def list_images(self) -> list[base.ServiceImage]:
        """Return all images."""
        self.before(Operation.LIST)
        return self._inner.list_images()

    def find_image(self, image_id: str) -> base.ServiceImage | None:
        """Return an image."""
        self.before(Operation.FIND)
        return self._inner.find_image(image_id)

    def open_data(self, image_id: str, offset: int = 0) -> base.ImageData:
        """Begin to read."""
        self.before(Operation.OPEN)
        return _FaultyData(self, self._inner.open_data(image_id, offset))

    def close(self) -> None:
        """Close the service that does the work."""
        self._inner.close()

    def before(self, operation: Operation) -> Fault | None:
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
            raise fault.error(f"{operation} failed on purpose")
        return fault


class _FaultyData(base.ImageData):
    def __init__(self, service: FaultyImageService, inner: base.ImageData) -> None:
        self._service = service
        self._inner = inner
        self.offset = inner.offset

    def read(self, size: int) -> bytes:
        fault = self._service.before(Operation.READ)
        if fault and fault.effect is Effect.END:
            return b""
        content = self._inner.read(size)
        if fault and fault.effect is Effect.CORRUPTION and content:
            return bytes([content[0] ^ 1]) + content[1:]
        return content

    def close(self) -> None:
        self._inner.close()
