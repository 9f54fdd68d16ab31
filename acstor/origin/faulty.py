"""An origin that misbehaves on purpose, around any other origin."""

import contextlib
import dataclasses
import enum
import functools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from acstor import exception
from acstor.origin import base
from acstor.origin.doorbell import Doorbell
from acstor.origin.pair import OriginPair

Answer = TypeVar("Answer")


class Operation(enum.StrEnum):
    """A method of the origin."""

    PUT = "put"
    READ = "read"
    SIZE = "size"
    LIST = "list"
    DELETE = "delete"
    GET_REF = "get_ref"
    SWAP_REF = "swap_ref"
    LIST_REFS = "list_refs"
    RING = "ring"


class Effect(enum.StrEnum):
    """Fault that is injected."""

    ERROR = "error"
    """The call fails and nothing happened."""
    LOST_ANSWER = "lost_answer"
    """The call does its work and then fails."""
    DELAY = "delay"
    """The call waits, then does its work."""
    SHORT_READ = "short_read"
    """A read returns one byte where more are there. Only for :attr:`Operation.READ`."""
    TORN_WRITE = "torn_write"
    """An object is stored with half of its bytes, and the call fails: what an origin that breaks
    its promise would do. Only for :attr:`Operation.PUT`."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, at certain calls of one operation."""

    operation: Operation
    effect: Effect
    call: int | None = None
    """The n-th call of that operation, counted from 1; None: any."""
    probability: float = 1.0
    """Share of the calls that it hits."""
    delay_seconds: float = 0.0
    error: Callable[[str], exception.AcstorError] = exception.UnavailableError


class FaultyOrigin(base.Origin):
    """Passes every call on, except where a fault hits.

    :param inner: the origin that does the work.
    :param faults: what goes wrong; the first that hits a call counts.
    :param seed: makes the choices by probability repeatable.
    :param sleep: how to wait; a test may put its own.
    """

    def __init__(
        self,
        inner: base.Origin,
        faults: Sequence[Fault] = (),
        *,
        seed: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wrap ``inner``."""
        self._inner = inner
        self._random = random.Random(seed)
        self._sleep = sleep
        self._lock = threading.Lock()
        self.faults = list(faults)
        self.calls: Counter[Operation] = Counter()
        self.hits: Counter[Effect] = Counter()
        self.room: base.Space | None = None
        self._doorbell: Doorbell | None = None

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object."""
        fault = self._before(Operation.PUT, key)
        if fault and fault.effect is Effect.TORN_WRITE:
            content = b"".join(base.as_views(buffers))
            self._inner.put_if_absent(key, [content[: len(content) // 2]])
            raise fault.error(f"torn write of {key}")
        return self._after(fault, key, self._inner.put_if_absent(key, buffers))

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        fault = self._before(Operation.READ, key)
        if fault and fault.effect is Effect.SHORT_READ:
            buffer = buffer[:1]
        return self._after(fault, key, self._inner.readinto(key, offset, buffer))

    def read_many(
        self, ranges: Sequence[base.ReadRange], deadline_seconds: float | None = None
    ) -> Sequence[exception.AcstorError | None]:
        """Fill the buffers of several ranges; each is a read of its own to the faults."""
        outcomes: dict[int, exception.AcstorError | None] = {}
        faults: dict[int, Fault | None] = {}
        for index, one in enumerate(ranges):
            try:
                faults[index] = self._before(Operation.READ, one.key)
            except exception.AcstorError as error:
                outcomes[index] = error
        found = self._inner.read_many([ranges[index] for index in faults], deadline_seconds)
        for (index, fault), outcome in zip(faults.items(), found, strict=True):
            try:
                outcomes[index] = self._after(fault, ranges[index].key, outcome)
            except exception.AcstorError as error:
                outcomes[index] = error
        return [outcomes[index] for index in range(len(ranges))]

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        fault = self._before(Operation.SIZE, key)
        return self._after(fault, key, self._inner.size(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``; a lost answer fails after the last."""
        yield from self._listed(prefix, self._inner.list)

    def list_protected(self, prefix: str) -> Iterator[str]:
        """Yield those keys in the folder ``prefix`` that hosts cannot delete."""
        yield from self._listed(prefix, self._inner.list_protected)

    def _listed(self, prefix: str, listing: Callable[[str], Iterator[str]]) -> Iterator[str]:
        fault = self._before(Operation.LIST, prefix)
        yield from listing(prefix)
        self._after(fault, prefix, None)

    def is_protected(self, key: str) -> bool:
        """Return whether there is such an object that hosts cannot delete."""
        fault = self._before(Operation.SIZE, key)
        return self._after(fault, key, self._inner.is_protected(key))

    def delete(self, key: str) -> bool:
        """Delete an object."""
        fault = self._before(Operation.DELETE, key)
        return self._after(fault, key, self._inner.delete(key))

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        fault = self._before(Operation.GET_REF, name)
        return self._after(fault, name, self._inner.get_ref(name))

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state; counted, and faulty, as ``get_ref`` is."""
        fault = self._before(Operation.GET_REF, name)
        return self._after(fault, name, self._inner.refresh_ref(name, known))

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        fault = self._before(Operation.SWAP_REF, name)
        return self._after(fault, name, self._inner.swap_ref(name, expected, content))

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``; as ``list``."""
        fault = self._before(Operation.LIST_REFS, prefix)
        yield from self._inner.list_refs(prefix)
        self._after(fault, prefix, None)

    def remove_folder(self, prefix: str) -> bool:
        """Remove an empty folder; never faulty."""
        return self._inner.remove_folder(prefix)

    def of_member(self, name: str | None) -> base.ObjectStore:
        """Return the store of one member alone, with the same faults to come."""
        return self._faulty(self._inner.of_member(name))

    def near_member(self, name: str | None) -> base.ObjectStore:
        """Return the same objects, those of logs from one member before others."""
        return self._faulty(self._inner.near_member(name))

    def _faulty(self, store: base.ObjectStore) -> base.ObjectStore:
        if store is self._inner:
            return self
        made = FaultyOrigin(OriginPair(store, self._inner), sleep=self._sleep)
        # Of one count: a fault of the n-th call hits the n-th of all.
        made.faults, made.calls, made.hits = self.faults, self.calls, self.hits
        made._random, made._lock = self._random, self._lock
        return made

    def space(self) -> base.Space | None:
        """Return what a test put there, else how much room the inner origin has; never faulty."""
        return self.room or self._inner.space()

    def freeing(self, *, is_beginning: bool = False) -> contextlib.AbstractContextManager[None]:
        """Return the inner origin's context."""
        return self._inner.freeing(is_beginning=is_beginning)

    def doorbell(self) -> Doorbell | None:
        """Return the inner origin's doorbell, some rings of which are lost."""
        inner = self._inner.doorbell()
        if self._doorbell is None and inner is not None:
            self._doorbell = _FaultyDoorbell(inner, functools.partial(self._before, Operation.RING))
        return self._doorbell

    @property
    def needs_locks(self) -> bool:
        """As the wrapped origin."""
        return self._inner.needs_locks

    def convert_refs(self) -> bool:
        """Convert the inner origin's refs."""
        return self._inner.convert_refs()

    def sweep(self) -> int:
        """Remove leftovers; never faulty."""
        return self._inner.sweep()

    def close(self) -> None:
        """Close the origin that does the work."""
        self._inner.close()

    def _before(self, operation: Operation, name: str) -> Fault | None:
        with self._lock:
            self.calls[operation] += 1
            fault = self._choose(operation)
            if fault:
                self.hits[fault.effect] += 1
        if fault and fault.effect is Effect.DELAY:
            self._sleep(fault.delay_seconds)
        if fault and fault.effect is Effect.ERROR:
            raise fault.error(f"{operation} of {name or 'everything'} failed on purpose")
        return fault

    def _choose(self, operation: Operation) -> Fault | None:
        for fault in self.faults:
            if fault.operation is not operation:
                continue
            if fault.call not in (None, self.calls[operation]):
                continue
            if self._random.random() < fault.probability:
                return fault
        return None

    @staticmethod
    def _after(fault: Fault | None, name: str, answer: Answer) -> Answer:
        if fault and fault.effect is Effect.LOST_ANSWER:
            raise fault.error(f"the answer about {name} was lost on purpose")
        return answer


class _FaultyDoorbell(Doorbell):
    """Loses rings.

    :param before: raises for those that are lost.
    """

    def __init__(self, inner: Doorbell, before: Callable[[str], object]) -> None:
        self._inner = inner
        self._before = before

    def ring(self) -> None:
        """Have everybody who listens look, or nobody."""
        with contextlib.suppress(exception.AcstorError):
            self._before("the doorbell")
            self._inner.ring()

    def listen(self, heard: Callable[[], object]) -> None:
        """Listen from now on."""
        self._inner.listen(heard)

    def close(self) -> None:
        """Listen no longer."""
        self._inner.close()
