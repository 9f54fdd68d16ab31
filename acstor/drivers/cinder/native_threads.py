"""Executor of the driver's blocking calls: a native thread where eventlet has patched the process.

cinder-volume's green threads share one native thread. A call that blocks in the kernel (a file of
an NFS server that hangs) or computes outside Python stops all of them, the heartbeat of the
service among them. So such calls go through a :class:`Caller`. Calls of the message bus and of
unix sockets need none: their sockets are green.
"""

import contextlib
import contextvars
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from acstor import exception, native
from acstor.origin import base
from acstor.origin.doorbell import Doorbell
from acstor.origin.pair import OriginPair
from acstor.repository.source.base import Extent, ImageSource

Answer = TypeVar("Answer")


class Caller(Protocol):
    """Runs a call that may block, and waits for it."""

    def run(self, call: Callable[[], Answer]) -> Answer:
        """Return what the call returns, or raise what it raises."""


class DirectCaller:
    """Runs it in the thread of who calls: native threads block nobody else."""

    def run(self, call: Callable[[], Answer]) -> Answer:
        """Run it."""
        return call()


class NativeThreadCaller:
    """Runs it in eventlet's pool of native threads, as Cinder's own drivers do.

    The pool is shared with them (``backend_native_threads_pool_size``).
    """

    def run(self, call: Callable[[], Answer]) -> Answer:
        """Run it; other green threads go on meanwhile."""
        from eventlet import tpool

        # What is said for a thread (contextvars) is said for the calls that it has made elsewhere.
        answer: Answer = tpool.execute(contextvars.copy_context().run, call)
        return answer


def find_caller(modules: dict[str, Any] | None = None) -> Caller:
    """Return the caller of this process.

    :param modules: loaded ones by name; ``sys.modules`` unless given. A process that has not
        loaded eventlet is not patched by it, and it need not be installed.
    """
    patcher = (sys.modules if modules is None else modules).get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("thread"):
        return NativeThreadCaller()
    return DirectCaller()


def around(caller: Caller, origin: base.Origin) -> base.Origin:
    """Return an origin whose calls go through ``caller``."""
    return origin if isinstance(caller, DirectCaller) else NativeThreadOrigin(origin, caller)


class NativeThreadOrigin(base.Origin):
    """Has every call of an origin run elsewhere, one at a time.

    One: locks of the origin's own are green ones, which native threads must not compete for; and
    an origin that hangs takes one thread of the pool, not all of them from the other back-ends.

    :param inner: the origin that does the work.
    :param caller: how it is called.
    """

    def __init__(self, inner: base.Origin, caller: Caller) -> None:
        """Wrap ``inner``."""
        self._inner = inner
        self._caller = caller
        self._turn = threading.Lock()

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object."""
        return self._run(lambda: self._inner.put_if_absent(key, buffers))

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        return self._run(lambda: self._inner.readinto(key, offset, buffer))

    def read_many(
        self, ranges: Sequence[base.ReadRange], deadline_seconds: float | None = None
    ) -> Sequence[exception.AcstorError | None]:
        """Fill the buffers of several ranges."""
        return self._run(lambda: self._inner.read_many(ranges, deadline_seconds))

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        return self._run(lambda: self._inner.size(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``; all are looked for at the first."""
        yield from self._run(lambda: list(self._inner.list(prefix)))

    def list_protected(self, prefix: str) -> Iterator[str]:
        """Yield those keys in the folder ``prefix`` that hosts cannot delete."""
        yield from self._run(lambda: list(self._inner.list_protected(prefix)))

    def is_protected(self, key: str) -> bool:
        """Return whether there is such an object that hosts cannot delete."""
        return self._run(lambda: self._inner.is_protected(key))

    def of_member(self, name: str | None) -> base.ObjectStore:
        """Return the store of one member alone, whose calls are run elsewhere as well."""
        return self._elsewhere(self._run(lambda: self._inner.of_member(name)))

    def near_member(self, name: str | None) -> base.ObjectStore:
        """Return the same objects, those of logs from one member before others."""
        return self._elsewhere(self._run(lambda: self._inner.near_member(name)))

    def _elsewhere(self, store: base.ObjectStore) -> base.ObjectStore:
        if store is self._inner:
            return self
        made = NativeThreadOrigin(OriginPair(store, self._inner), self._caller)
        made._turn = self._turn
        return made

    def delete(self, key: str) -> bool:
        """Delete an object."""
        return self._run(lambda: self._inner.delete(key))

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        return self._run(lambda: self._inner.get_ref(name))

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state, ``known`` itself where it still is in that one."""
        return self._run(lambda: self._inner.refresh_ref(name, known))

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        return self._run(lambda: self._inner.swap_ref(name, expected, content))

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``; as ``list``."""
        yield from self._run(lambda: list(self._inner.list_refs(prefix)))

    def doorbell(self) -> Doorbell | None:
        """Return none: its threads would compete with green ones for locks."""
        return None

    def remove_folder(self, prefix: str) -> bool:
        """Remove a folder without objects."""
        return self._run(lambda: self._inner.remove_folder(prefix))

    def space(self) -> base.Space | None:
        """Return how much room the inner origin has."""
        return self._run(self._inner.space)

    def freeing(self, *, is_beginning: bool = False) -> contextlib.AbstractContextManager[None]:
        """Return the inner origin's context, which its calls take along."""
        return self._inner.freeing(is_beginning=is_beginning)

    @property
    def needs_locks(self) -> bool:
        """As the wrapped origin."""
        return self._run(lambda: self._inner.needs_locks)

    def convert_refs(self) -> bool:
        """Convert the inner origin's refs."""
        return self._run(self._inner.convert_refs)

    def sweep(self) -> int:
        """Remove leftovers."""
        return self._run(self._inner.sweep)

    def close(self) -> None:
        """Close the origin that does the work."""
        self._run(self._inner.close)

    def _run(self, call: Callable[[], Answer]) -> Answer:
        with self._turn:
            return self._caller.run(call)


class NativeThreadSource(ImageSource):
    """A disk whose reading and digesting runs elsewhere.

    :param inner: the source that does the work.
    :param caller: how it is called.
    """

    def __init__(self, inner: ImageSource, caller: Caller) -> None:
        """Wrap ``inner``."""
        self._inner = inner
        self._caller = caller
        self.size_bytes = inner.size_bytes
        self.file = inner.file

    def extents(self) -> Iterator[Extent]:
        """Yield ranges that cover the disk."""
        found = self._inner.extents()
        while (extent := self._caller.run(functools.partial(next, found, None))) is not None:
            yield extent

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        """Read and digest."""
        return self._caller.run(lambda: self._inner.scan(offset, buffer, chunk_size, scope))

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the disk."""
        return self._caller.run(lambda: self._inner.read(offset, size))

    def check_unchanged(self) -> None:
        """Refuse when the file was changed since it was opened."""
        self._caller.run(self._inner.check_unchanged)

    def close(self) -> None:
        """Release what the source holds."""
        self._caller.run(self._inner.close)
