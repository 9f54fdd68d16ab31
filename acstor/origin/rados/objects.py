"""Objects in RADOS: a head in a replicated pool, and stripes of what does not fit into it.

A small object is one RADOS object, made by one operation that fails where there is one. A larger
one is there from the moment its head says so, which is after all its stripes. Its stripes have a
name of their own (a nonce), so that two writers of one key do not write to the same.

What is stopped or killed leaves no half object. A writer first marks the head as pending and turns
it at the end, if it is still his; who sweeps turns an old pending head to dead before removing
stripes, so that a writer who wakes then fails. Stripes are removed by nobody else.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from acstor import exception
from acstor.origin import base, keys
from acstor.origin.rados.batch import Outcome, Piece
from acstor.origin.rados.cluster import (
    ALL_NAMESPACES,
    AbsentError,
    Cluster,
    ExistsError,
    MismatchError,
)
from acstor.origin.rados.head import HEAD_BYTES, STRIPES_MAX, Head, Kind
from acstor.origin.rados.reading import Reading, Rounds, contents, flat
from acstor.origin.rados.stripes import Stripes

LOG = logging.getLogger(__name__)

STRIPE_BYTES = 4 << 20
"""Size of a stripe, and the largest object that needs none."""
SMALL_READ_BYTES = 128 << 10
"""Bytes up to which a first read brings the head along with the content."""
HEADS_REMEMBERED_MAX = 4096
LEFTOVER_AGE_SECONDS = 24 * 3600.0
"""Age from which what a writer has begun is taken for a crashed one's."""
_PROBE = "probe"


class RadosObjects(base.ObjectStore):
    """The objects of one class in one repository.

    :param cluster: where they are.
    :param pool: of heads and small objects.
    :param stripe_pool: of stripes; it may be erasure-coded.
    :param prefix: of the namespaces.
    :param rounds: reads from the cluster.
    """

    def __init__(
        self, cluster: Cluster, pool: str, stripe_pool: str, prefix: str, rounds: Rounds
    ) -> None:
        """Use the objects in the pools."""
        self.rounds = rounds
        self._cluster = cluster
        self._pool = pool
        self._stripe_pool = stripe_pool
        self._prefix = prefix
        self._notes_namespace = f"{prefix}notes"
        self._heads: dict[str, Head] = {}

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object."""
        keys.validate_key(key)
        content = b"".join(base.as_views(buffers))
        if len(content) <= STRIPE_BYTES:
            head = Head.new(Kind.WHOLE, len(content), STRIPE_BYTES)
            return self._begin(key, head, head.encode() + content)
        head = Head.new(Kind.PENDING, len(content), STRIPE_BYTES)
        if head.stripe_count > STRIPES_MAX:
            raise exception.InvalidError(f"{key} has {len(content)} bytes, more than any object")
        self._note(key, head)
        if not self._begin(key, head, head.encode()):
            self._forget(key, head)
            return False
        self._stripes(key).write(key, head, memoryview(content))
        try:
            self._turn(key, head, head.turned(Kind.STRIPED).encode())
        except MismatchError:
            raise exception.UnavailableError(
                f"storing {key} took so long that somebody else does it"
            ) from None
        self._forget(key, head)
        return True

    def _begin(self, key: str, head: Head, content: bytes) -> bool:
        """Make the head, also where an unfinished one is; return False where the object is."""
        exclusive = self._cluster.rados.LIBRADOS_CREATE_EXCLUSIVE
        try:
            self._operate(key, lambda one: (one.new(exclusive), one.write_full(content)))
        except ExistsError:
            present = self._head(key)
            if present is not None and present.is_there:
                return False
            try:
                if present is None:
                    raise MismatchError from None
                # Its writer cannot finish any more, so its stripes, if any, are for who sweeps.
                self._note(key, present.turned(Kind.DEAD))
                self._turn(key, present, content)
            except MismatchError:
                raise exception.UnavailableError(f"somebody else stores or deletes {key}") from None
        return True

    def _turn(self, key: str, before: Head, content: bytes) -> None:
        """Replace what is at a key while its head is ``before``.

        :raises MismatchError: when it is another one.
        """
        self._operate(key, lambda one: (one.cmpext(before.encode(), 0), one.write_full(content)))

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        return self.rounds.read(self.reading(base.ReadRange(key, offset, buffer)))

    def read_many(
        self, ranges: Sequence[base.ReadRange], deadline_seconds: float | None = None
    ) -> Sequence[exception.AcstorError | None]:
        """Fill the buffers of several ranges, all at once."""
        return self.rounds.read_many(ranges, [*map(self.reading, ranges)], deadline_seconds)

    def reading(self, one: base.ReadRange) -> Reading:
        """Fill the buffer of a range, as far as the object reaches.

        :raises NotFoundError: when there is no such object.
        """
        key, buffer = keys.validate_key(one.key), flat(one.buffer)
        if one.offset < 0:
            raise exception.InvalidError(f"offset {one.offset} is negative")
        known = self._heads.get(key)
        if known is not None:
            with contextlib.suppress(AbsentError):
                return (yield from self._stripes(key).reading(key, known, one.offset, buffer))
            self._heads.pop(key, None)
        first = HEAD_BYTES + one.offset + len(buffer)
        size = first if first <= SMALL_READ_BYTES else HEAD_BYTES
        stored = yield from self._reading_stored(key, size)
        head = Head.parse(stored, key)
        if not head.is_there:
            raise _absent(key)
        if head.kind is Kind.WHOLE:
            return (yield from self._reading_whole(key, head, stored, one.offset, buffer))
        return (yield from self._reading_striped(key, head, one.offset, buffer))

    def _reading_striped(self, key: str, head: Head, offset: int, buffer: memoryview) -> Reading:
        try:
            count = yield from self._stripes(key).reading(key, head, offset, buffer)
        except AbsentError:
            present = Head.parse((yield from self._reading_stored(key, HEAD_BYTES)), key)
            if not present.is_there:
                raise _absent(key) from None
            raise exception.CorruptError(f"a stripe of {key} is missing") from None
        self._remember(key, head)
        return count

    def _reading_whole(
        self, key: str, head: Head, stored: bytes, offset: int, buffer: memoryview
    ) -> Reading:
        size = min(len(buffer), max(0, head.size - offset))
        content: bytes | memoryview = memoryview(stored)[HEAD_BYTES + offset :][:size]
        if len(content) < size:
            content = yield from self._reading_stored(key, size, HEAD_BYTES + offset)
        buffer[: len(content)] = content
        return len(content)

    def _reading_stored(
        self, key: str, size: int, offset: int = 0
    ) -> Generator[Sequence[Piece], Sequence[Outcome], bytes]:
        answers = yield [Piece(self._context(key), key, offset, size)]
        try:
            (stored,) = contents(answers)
        except AbsentError:
            raise _absent(key) from None
        return stored

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        head = self._head(keys.validate_key(key))
        if head is None or not head.is_there:
            raise _absent(key)
        return head.size

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``; also of what is being stored or deleted."""
        keys.validate_prefix(prefix)
        namespace = self._namespace(prefix) if prefix else ALL_NAMESPACES
        for one in self._cluster.listed(self._pool, namespace, f"listing {prefix}"):
            is_own = one.nspace == self._namespace(one.key) and keys.is_name(one.key)
            if is_own and one.key.startswith(prefix):
                yield one.key

    def delete(self, key: str) -> bool:
        """Delete an object; of one whose head is damaged only that, nothing names its stripes."""
        try:
            head = self._head(keys.validate_key(key))
        except exception.CorruptError as error:
            LOG.warning("deleting without its stripes, if it has any: %s", error)
            return self._remove_damaged(key)
        if head is not None and head.kind is Kind.DEAD:
            self._bury(key, head)  # who began may have been killed, and have had no room for a note
        if head is None or not head.is_there:
            return False
        try:
            if head.kind is Kind.WHOLE:
                self._remove_head(key, head)
                return True
            # In a full pool there is no room for a note; that deletions go on counts for more.
            with contextlib.suppress(exception.ExhaustedError):
                self._note(key, head)
            dead = head.turned(Kind.DEAD)
            self._turn(key, head, dead.encode())
        except MismatchError:
            return False
        self._bury(key, dead)
        return True

    def space(self) -> base.Space | None:
        """Return the room of the stripes' pool, as Ceph reckons it."""
        free_bytes, stored_bytes = self._cluster.room(self._stripe_pool)
        return base.Space(free_bytes, free_bytes + stored_bytes)

    def sweep(self) -> int:
        """Remove what crashed writers and deleters have left."""
        context, what = self._notes(), "looking for leftovers"
        try:
            with self._cluster.map_errors(what):
                context.write_full(_PROBE, b"")
                now = time.mktime(context.stat(_PROBE)[1])
        except exception.ExhaustedError:
            return 0  # what can be collected goes first, and makes room
        listed = self._cluster.listed(self._pool, self._notes_namespace, what)
        names = [one.key for one in listed if one.key != _PROBE]
        return sum(self._sweep_one(context, name, now) for name in names)

    def _sweep_one(self, context: Any, name: str, now: float) -> bool:
        key = name.partition("@")[0]
        try:
            with self._cluster.map_errors(f"looking at {name}"):
                if now - time.mktime(context.stat(name)[1]) < LEFTOVER_AGE_SECONDS:
                    return False
                noted = Head.parse(context.read(name, HEAD_BYTES), name)
            if not keys.is_name(key) or name != _note_name(key, noted):
                raise exception.CorruptError(f"note {name} is of no object")
            present = self._head(key)
            if present is not None and present.nonce == noted.nonce:
                if present.kind is Kind.PENDING:
                    self._turn(key, present, present.turned(Kind.DEAD).encode())
                    present = present.turned(Kind.DEAD)
                if present.kind is Kind.DEAD:
                    self._bury(key, present)
                    return True
            elif noted.kind is Kind.DEAD:
                self._stripes(key).remove(key, noted)
            self._forget(key, noted)
        except (AbsentError, MismatchError):
            return False
        except (exception.CorruptError, exception.UnsupportedError) as error:
            LOG.warning("a leftover is left alone: %s", error)
            return False
        return True

    def close(self) -> None:
        """Close the connection, which is the refs' too."""
        self._cluster.close()

    def _bury(self, key: str, dead: Head) -> None:
        """Remove the stripes, then the head, of what is dead."""
        self._heads.pop(key, None)
        self._stripes(key).remove(key, dead)
        with contextlib.suppress(MismatchError):
            self._remove_head(key, dead)
        self._forget(key, dead)

    def _remove_head(self, key: str, head: Head) -> None:
        self._operate(key, lambda one: (one.cmpext(head.encode(), 0), one.remove()))

    def _remove_damaged(self, key: str) -> bool:
        try:
            self._operate(key, lambda one: one.remove())
        except AbsentError:
            return False
        return True

    def _note(self, key: str, head: Head) -> None:
        """Note what is begun, for who sweeps."""
        with self._cluster.map_errors(f"noting {key}"):
            self._notes().write_full(_note_name(key, head), head.encode())

    def _forget(self, key: str, head: Head) -> None:
        with contextlib.suppress(AbsentError), self._cluster.map_errors(f"forgetting {key}"):
            self._notes().remove_object(_note_name(key, head))

    def _operate(self, key: str, step: Callable[[Any], object]) -> None:
        context = self._context(key)
        with self._cluster.map_errors(f"storing or deleting {key}"):
            operation = context.create_write_op()
            try:
                step(operation)
                context.operate_write_op(operation, key)
            finally:
                context.release_write_op(operation)

    def _head(self, key: str) -> Head | None:
        try:
            return Head.parse(self._stored(key, HEAD_BYTES), key)
        except exception.NotFoundError:
            return None

    def _stored(self, key: str, size: int, offset: int = 0) -> bytes:
        try:
            with self._cluster.map_errors(f"reading {key}"):
                stored: bytes = self._context(key).read(key, size, offset)
        except AbsentError:
            raise _absent(key) from None
        return stored

    def _remember(self, key: str, head: Head) -> None:
        while len(self._heads) >= HEADS_REMEMBERED_MAX:
            # Another thread may empty it at the same time.
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):
                self._heads.pop(next(iter(self._heads)))
        self._heads[key] = head

    def _context(self, key: str) -> Any:
        return self._cluster.context(self._pool, self._namespace(key))

    def _namespace(self, key: str) -> str:
        return f"{self._prefix}o.{key.partition('/')[0]}"

    def _notes(self) -> Any:
        return self._cluster.context(self._pool, self._notes_namespace)

    def _stripes(self, key: str) -> Stripes:
        namespace = f"{self._prefix}s.{key.partition('/')[0]}"
        return Stripes(self._cluster, self._cluster.context(self._stripe_pool, namespace))


def _note_name(key: str, head: Head) -> str:
    return f"{key}@{head.nonce.hex()}"


def _absent(key: str) -> exception.NotFoundError:
    return exception.NotFoundError(f"the origin has no object {key}")
