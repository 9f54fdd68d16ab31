"""The binding of librados, or what stands in its place, with operations that fail on purpose.

What times out may have taken effect: the answer alone is lost. Or it has not. Reads fail by the
name of what is read, or are not answered until a test says so.
"""

import enum
import errno
import threading
from collections.abc import Callable
from typing import Any

from acstor.origin.rados.binding import Binding


class Loss(enum.Enum):
    """Part of an operation that gets lost."""

    ANSWER = enum.auto()
    """It takes effect, and times out."""
    REQUEST = enum.auto()
    """It times out, and takes no effect."""


class ReadFault(enum.Enum):
    """Fault of a read."""

    ERROR = errno.EIO
    """It fails at once."""
    TIME_OUT = errno.ETIMEDOUT
    """It fails at once, as one does that was not answered."""
    SILENCE = 0
    """It has no answer before :meth:`FaultyRados.answer`."""


CHANGING = frozenset({"write_full", "remove_object", "operate_write_op"})
"""Calls that change something, and wait for the answer."""


class FaultyRados:
    """Module ``rados`` whose n-th changing operation is lost.

    :param inner: the module.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.loss: Loss | None = None
        self.losing_call = 0
        self.calls = 0
        self.read_faults: dict[str, ReadFault] = {}
        """By a part of the name of what is read."""
        self.reads: list[str] = []
        """Names of what was read asynchronously, in order."""
        self.is_notifying_silent = False
        """True while nobody is told of a notification, and none is over."""
        self.notifications = 0
        self._silent: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def lose(self, loss: Loss, call: int) -> None:
        """Lose the ``call``-th changing operation from here on, counted from 1."""
        self.loss, self.losing_call, self.calls = loss, call, 0

    @property
    def binding(self) -> Binding:
        """Binding that stands in the place of the distribution's."""
        return Binding(self, self._inner.lister)

    @property
    def has_lost(self) -> bool:
        """True if the operation to be lost was."""
        return self.loss is not None and self.calls >= self.losing_call

    def note_read(self, name: str, answer: Callable[[], object]) -> ReadFault | None:
        """Note a read; return what goes wrong with it, and keep its answer if it is silence."""
        found = (fault for part, fault in self.read_faults.items() if part in name)
        fault = next(found, None)
        with self._lock:
            self.reads.append(name)
            if fault is ReadFault.SILENCE:
                self._silent.append(answer)
        return fault

    @property
    def silent_count(self) -> int:
        """Number of reads without an answer."""
        return len(self._silent)

    def answer(self) -> None:
        """Answer all reads that were asked for until now."""
        with self._lock:
            silent, self._silent = self._silent, []
        for one in silent:
            one()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def Rados(self, **options: Any) -> Any:  # noqa: N802 - as the binding has it
        """Make a connection."""
        return _Handle(self, self._inner.Rados(**options))

    def next_loss(self) -> Loss | None:
        """Count a changing operation; return what is lost of it."""
        self.calls += 1
        return self.loss if self.calls == self.losing_call else None


class _Handle:
    def __init__(self, faulty: FaultyRados, inner: Any) -> None:
        self._faulty = faulty
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open_ioctx(self, pool: str) -> Any:
        """Open a pool."""
        return _Context(self._faulty, self._inner.open_ioctx(pool))


class _Context:
    def __init__(self, faulty: FaultyRados, inner: Any) -> None:
        self._faulty = faulty
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in CHANGING:
            return call

        def changing(*arguments: Any) -> Any:
            loss = self._faulty.next_loss()
            answer = None if loss is Loss.REQUEST else call(*arguments)
            if loss is not None:
                raise self._faulty.TimedOut("lost on purpose", errno=errno.ETIMEDOUT)
            return answer

        return changing

    def aio_write_full(self, name: str, content: bytes) -> Any:
        """Have these bytes and no others."""
        loss = self._faulty.next_loss()
        completion = None if loss is Loss.REQUEST else self._inner.aio_write_full(name, content)
        return completion if loss is None else _LostCompletion(completion)

    def aio_read(self, name: str, length: int, offset: int, done: Callable[..., None]) -> Any:
        """Hand bytes of an object over, at once, later or never."""

        def answer() -> Any:
            return self._inner.aio_read(name, length, offset, done)

        fault = self._faulty.note_read(name, answer)
        if fault is None:
            return answer()
        completion = _FailedCompletion(fault)
        if fault is not ReadFault.SILENCE:
            done(completion, None)
        return completion

    def aio_notify(self, *arguments: Any) -> Any:
        """Tell all who watch an object, or nobody."""
        self._faulty.notifications += 1
        silent = _FailedCompletion(ReadFault.SILENCE)
        return silent if self._faulty.is_notifying_silent else self._inner.aio_notify(*arguments)


class _FailedCompletion:
    def __init__(self, fault: ReadFault) -> None:
        self._fault = fault

    def get_return_value(self) -> int:
        """Return the number of the error."""
        return -self._fault.value


class _LostCompletion:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def wait_for_complete_and_cb(self) -> None:
        """Wait for what is under way, so that it does not come later than the next one."""
        if self._inner is not None:
            self._inner.wait_for_complete_and_cb()

    def get_return_value(self) -> int:
        """Return the number of a time-out."""
        return -errno.ETIMEDOUT
