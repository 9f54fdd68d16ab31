"""An origin whose calls are repeated, within a deadline, while the store is unavailable."""

import contextlib
import functools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from acstor import exception
from acstor.origin import base
from acstor.origin.doorbell import Doorbell
from acstor.origin.pair import OriginPair

WAIT_SECONDS_INITIAL = 0.05
"""Bound of the wait after the first failure; it doubles with each further one."""
WAIT_SECONDS_MAX = 2.0
"""Largest bound of a wait: a call takes at most this much longer than the outage."""

COMPARED_BYTES = 4 << 20
"""Bytes read at once to compare an object with what was to be stored."""

Answer = TypeVar("Answer")


class RetryingOrigin(base.Origin):
    """Repeats what failed with a transient error.

    Only the deadline bounds how often: errors that come at once are repeated as long as errors
    that take their time. Between attempts it waits for a random time below a doubling bound (full
    jitter), so that many hosts do not come back at once; the last attempt is made at the deadline.
    A call that blocks in the kernel is not interrupted: on NFS the mount's own ``timeo`` and
    ``retrans`` bound that.

    :param inner: the origin that does the work.
    :param deadline_seconds: no attempt starts later than this after the call.
    :param clock: monotonic seconds.
    :param sleep: waits for so many seconds of that clock.
    """

    def __init__(
        self,
        inner: base.Origin,
        deadline_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Wrap ``inner``."""
        self.inner = inner
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._sleep = sleep

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object.

        :returns: False also when an earlier attempt stored it and its answer was lost.
        :raises CorruptError: when a repeated attempt finds an object of other content.
        """
        outcomes: list[bool] = []

        def attempt() -> bool:
            is_first = not outcomes
            outcomes.append(is_first)
            is_new = self.inner.put_if_absent(key, buffers)
            if not is_new and not is_first:
                self._check_content(key, buffers)
            return is_new

        return self._repeat(attempt)

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        return self._repeat(functools.partial(self.inner.readinto, key, offset, buffer))

    def read_many(
        self, ranges: Sequence[base.ReadRange], deadline_seconds: float | None = None
    ) -> Sequence[exception.AcstorError | None]:
        """Fill the buffers of several ranges; what fails for a time is asked for again."""
        end = None if deadline_seconds is None else self._clock() + deadline_seconds
        outcomes: dict[int, exception.AcstorError | None] = {}
        pending = list(range(len(ranges)))

        def attempt() -> None:
            left = None if end is None else max(0.0, end - self._clock())
            found = self.inner.read_many([ranges[index] for index in pending], left)
            outcomes.update(zip(pending, found, strict=True))
            errors = {index: error for index in pending if (error := outcomes[index])}
            pending[:] = [index for index, error in errors.items() if error.is_transient]
            if pending:
                raise errors[pending[0]]

        with contextlib.suppress(exception.AcstorError):  # they are among the outcomes
            self._repeat(attempt, deadline_seconds)
        return [outcomes[index] for index in range(len(ranges))]

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        return self._repeat(functools.partial(self.inner.size, key))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        yield from self._repeat(lambda: list(self.inner.list(prefix)))

    def list_protected(self, prefix: str) -> Iterator[str]:
        """Yield those keys in the folder ``prefix`` that hosts cannot delete."""
        yield from self._repeat(lambda: list(self.inner.list_protected(prefix)))

    def is_protected(self, key: str) -> bool:
        """Return whether there is such an object that hosts cannot delete."""
        return self._repeat(functools.partial(self.inner.is_protected, key))

    def delete(self, key: str) -> bool:
        """Delete an object; False also when an earlier attempt deleted it."""
        return self._repeat(functools.partial(self.inner.delete, key))

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        return self._repeat(functools.partial(self.inner.get_ref, name))

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state, ``known`` itself where it still is in that one."""
        return self._repeat(functools.partial(self.inner.refresh_ref, name, known))

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen.

        When a repeated attempt finds the ref changed to exactly what it should become, an earlier
        attempt did that, or someone with the same intention: both are success.

        :raises OvertakenError: when it finds something else: an earlier attempt may have changed it
            before that.
        """
        has_failed = False

        def attempt() -> str | None:
            nonlocal has_failed
            try:
                return self.inner.swap_ref(name, expected, content)
            except exception.ConflictError:
                if not has_failed:
                    raise
                present = self.inner.get_ref(name)
                if (present.content if present else None) == content:
                    return present.token if present else None
                raise base.OvertakenError(
                    f"ref {name} was changed by someone else, and maybe by this call before"
                ) from None
            except exception.AcstorError:
                has_failed = True
                raise

        return self._repeat(attempt)

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        yield from self._repeat(lambda: list(self.inner.list_refs(prefix)))

    def remove_folder(self, prefix: str) -> bool:
        """Remove an empty folder; False also when an earlier attempt removed it."""
        return self._repeat(functools.partial(self.inner.remove_folder, prefix))

    def of_member(self, name: str | None) -> base.ObjectStore:
        """Return the store of one member alone, whose calls are repeated as well."""
        return self._repeating(self.inner.of_member(name))

    def near_member(self, name: str | None) -> base.ObjectStore:
        """Return the same objects, those of logs from one member before others."""
        return self._repeating(self.inner.near_member(name))

    def _repeating(self, store: base.ObjectStore) -> base.ObjectStore:
        if store is self.inner:
            return self
        return RetryingOrigin(
            OriginPair(store, self.inner),
            self._deadline_seconds,
            clock=self._clock,
            sleep=self._sleep,
        )

    def space(self) -> base.Space | None:
        """Return how much room the inner origin has."""
        return self._repeat(self.inner.space)

    def freeing(self, *, is_beginning: bool = False) -> contextlib.AbstractContextManager[None]:
        """Return the inner origin's context."""
        return self.inner.freeing(is_beginning=is_beginning)

    def doorbell(self) -> Doorbell | None:
        """Return the inner origin's doorbell, which tries again by itself."""
        return self.inner.doorbell()

    @property
    def needs_locks(self) -> bool:
        """As the wrapped origin."""
        return self._repeat(lambda: self.inner.needs_locks)

    def convert_refs(self) -> bool:
        """Convert the inner origin's refs."""
        return self._repeat(self.inner.convert_refs)

    def sweep(self) -> int:
        """Remove leftovers."""
        return self._repeat(self.inner.sweep)

    def close(self) -> None:
        """Close the origin that does the work."""
        self.inner.close()

    def _repeat(self, call: Callable[[], Answer], seconds_max: float | None = None) -> Answer:
        """Return the answer of ``call``, or raise what its last attempt raised.

        :param seconds_max: for which it is repeated at most; None: the origin's deadline.
        """
        seconds = self._deadline_seconds
        deadline = self._clock() + (seconds if seconds_max is None else min(seconds, seconds_max))
        bound = WAIT_SECONDS_INITIAL
        while True:
            try:
                return call()
            except exception.AcstorError as error:
                left = deadline - self._clock()
                if not error.is_transient or left <= 0:
                    raise
            self._sleep(min(left, random.uniform(0, bound)))
            bound = min(WAIT_SECONDS_MAX, 2 * bound)

    def _check_content(self, key: str, buffers: Sequence[base.Buffer]) -> None:
        views = base.as_views(buffers)
        expected = sum(len(view) for view in views)
        actual = self.inner.size(key)
        if actual != expected:
            raise exception.CorruptError(
                f"object {key} has {actual} bytes, {expected} were stored",
                hint="the origin shows partial objects: it must not be used",
            )
        offset = 0
        for view in views:
            for start in range(0, len(view), COMPARED_BYTES):
                part = view[start : start + COMPARED_BYTES]
                if self.inner.get_range(key, offset, len(part)) != part:
                    raise exception.CorruptError(
                        f"object {key} differs from what was stored, from byte {offset} on",
                        hint="either somebody else stored it meanwhile, or the origin damages "
                        "what it holds",
                    )
                offset += len(part)
