"""The origin's two interfaces: immutable objects under keys, and refs that change by swaps.

:class:`ObjectStore` may be in one place or in several, as what is in it never changes.
:class:`RefStore` has one home, where it is decided who was first. :class:`Origin` is both, for
those who need both: an image, a volume and a collection do. Who needs one takes that one.

Callers guarantee that a name is never both an object (or ref) and the folder of another one.
Implementations guarantee, whatever is killed at whatever moment:

* an object is visible with all its bytes or not at all, and never changes;
* refs are linearisable: each call takes effect, or not at all, at one moment between its beginning
  and its end; one that ends with an error at one moment from its beginning on, or never. So two
  callers that swap the same ref with the same token cannot both succeed;
* what ``put_if_absent`` or ``swap_ref`` reported is still there after a power failure;
* an object or ref that exists while ``list`` or ``list_refs`` runs from its start to its end is
  in the result.

All methods may be called from several threads at once and may block. Every method may raise
:class:`~acstor.exception.UnavailableError` (the store cannot be reached or answered with an I/O
error: try again later), and those that write
:class:`~acstor.exception.ExhaustedError` (no space). After an error of a writing method the
caller does not know whether the write took place, or still will.
"""

import abc
import collections.abc
import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence

from acstor import exception
from acstor.origin import keys
from acstor.origin.doorbell import Doorbell

Buffer = bytes | bytearray | memoryview
"""Content to be written: any contiguous run of bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """Content of a ref at one moment, with the token that a swap of it takes."""

    token: str
    """Names this state of the ref; no other state of it has the same token."""
    content: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """Room of the store, bytes."""

    free_bytes: int
    """Bytes that this user of the store may still write."""
    total_bytes: int
    """Bytes free, and those stored by now, by whomever."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadRange:
    """A run of an object's bytes, and where they are wanted."""

    key: str
    offset: int
    """From the object's start, bytes."""
    buffer: memoryview
    """Filled to its end; its length is the run's."""


class DamagedRefError(exception.CorruptError):
    """Ref whose stored bytes are not those that were written.

    :param token: of the ref in this state: who knows what it has to hold replaces it by that, with
        :meth:`RefStore.swap_ref`.
    """

    def __init__(self, message: str, *, token: str, hint: str | None = None) -> None:
        """Keep the token, too."""
        super().__init__(message, hint=hint)
        self.token = token


class OvertakenError(exception.ConflictError):
    """A ref was changed by somebody else, whether or not this call had changed it before.

    An earlier attempt of it has had no answer.
    """


class Store:
    """Common part of both: leftovers that are swept, and an end."""

    def sweep(self) -> int:
        """Remove what crashed writers left behind, where it is old enough that none still runs.

        :returns: number of leftovers removed.
        """
        return 0

    def close(self) -> None:
        """Release what the origin holds; it must not be used afterwards."""


class ObjectStore(Store, abc.ABC):
    """Objects under keys; they are stored once, read, and deleted, but never changed."""

    @abc.abstractmethod
    def put_if_absent(self, key: str, buffers: Sequence[Buffer]) -> bool:
        """Store an object: the buffers' bytes, one after the other.

        The buffers must not change until the call returns; they are not copied where the
        implementation can avoid it.

        :returns: True when this call stored it, False when the key was there already (the
            buffers are then not compared with what is stored).
        :raises InvalidError: when the key is malformed.
        """

    @abc.abstractmethod
    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from ``offset`` (bytes, from the object's start) into ``buffer``.

        :returns: bytes read; may be fewer than asked for, 0 only at or past the end.
        :raises NotFoundError: when there is no such object.
        :raises InvalidError: when the key is malformed or the offset is negative.
        """

    @abc.abstractmethod
    def size(self, key: str) -> int:
        """Return the size of an object in bytes.

        :raises NotFoundError: when there is no such object.
        :raises InvalidError: when the key is malformed.
        """

    @abc.abstractmethod
    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys of all objects in the folder ``prefix``, in no particular order.

        :param prefix: ends with ``/``, or is empty for all objects.
        :raises InvalidError: when the prefix is malformed.
        """

    def list_protected(self, prefix: str) -> Iterator[str]:
        """Yield those keys in the folder ``prefix`` that hosts cannot delete.

        All of them where a store does not tell who has stored what.

        :param prefix: ends with ``/``.
        :raises InvalidError: when the prefix is malformed.
        """
        return self.list(prefix)

    @abc.abstractmethod
    def delete(self, key: str) -> bool:
        """Delete an object; deleting what is not there is no error.

        :returns: whether this call deleted it.
        :raises InvalidError: when the key is malformed.
        """

    def remove_folder(self, prefix: str) -> bool:
        """Remove the folder ``prefix`` if no object is in it; stores without folders do nothing.

        Only for a folder that nobody stores anything in any more: a call that does at the same
        moment may fail with :class:`~acstor.exception.UnavailableError` and has to be repeated.

        :param prefix: of objects; ends with ``/``.
        :returns: whether this call removed it.
        :raises InvalidError: when the prefix is malformed.
        """
        keys.validate_prefix(prefix)
        return False

    def space(self) -> Space | None:
        """Return how much room there is, None where the store does not say."""
        return None

    def read_exactly(self, key: str, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset`` on.

        :raises CorruptError: when the object ends before the buffer is full.
        :raises NotFoundError: when there is no such object.
        """
        view = buffer.cast("B") if buffer.format != "B" or buffer.ndim != 1 else buffer
        done = 0
        while done < len(view):
            count = self.readinto(key, offset + done, view[done:])
            if count == 0:
                raise exception.CorruptError(
                    f"object {key} ends at byte {offset + done}, "
                    f"{len(view) - done} more were expected"
                )
            done += count

    def read_many(
        self, ranges: Sequence[ReadRange], deadline_seconds: float | None = None
    ) -> collections.abc.Sequence[exception.AcstorError | None]:
        """Fill the buffers of several ranges, all at once where the store can do that.

        :param deadline_seconds: from the call on; what is not read by then is given up. None: only
            the store's own deadlines count.
        :returns: of each range what keeps it from being filled, None where it is. What keeps it is
            :class:`~acstor.exception.DeadlineError` where the time was over, else what
            :meth:`read_exactly` raises.
        """
        end = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        return [self._read_range(one, end) for one in ranges]

    def _read_range(self, one: ReadRange, end: float | None) -> exception.AcstorError | None:
        if end is not None and time.monotonic() >= end:
            return exception.DeadlineError(f"there was no time to read {one.key}")
        try:
            self.read_exactly(one.key, one.offset, one.buffer)
        except exception.AcstorError as error:
            return error
        return None

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on.

        :raises CorruptError: when the object ends before that.
        :raises NotFoundError: when there is no such object.
        """
        content = bytearray(size)
        self.read_exactly(key, offset, memoryview(content))
        return bytes(content)

    def get(self, key: str, size_max: int) -> bytes:
        """Return a whole object of at most ``size_max`` bytes.

        :raises InvalidError: when it is larger.
        :raises NotFoundError: when there is no such object.
        """
        size = self.size(key)
        if size > size_max:
            raise exception.InvalidError(f"object {key} has {size} bytes, more than {size_max}")
        return self.get_range(key, 0, size)

    def exists(self, key: str) -> bool:
        """Return whether there is such an object."""
        try:
            self.size(key)
        except exception.NotFoundError:
            return False
        return True

    def is_protected(self, key: str) -> bool:
        """Return whether there is such an object, and hosts cannot delete it.

        Whether there is one, where a store does not tell who has stored what.

        :raises InvalidError: when the key is malformed.
        """
        return self.exists(key)

    def of_member(self, name: str | None) -> "ObjectStore":
        """Return the store of one member alone; no other one is asked, whatever it says.

        For what is decided there: the log of an epoch of a volume (RFD 38, *Epochs*).

        :param name: None: the home. An origin of one store is its own home.
        :raises UnsupportedError: when this origin is one store and knows no such member.
        :raises UnavailableError: when the member is not in use.
        """
        if name is None:
            return self
        raise exception.UnsupportedError(
            f"member {name} of the origin is not open here: this process knows one store",
            hint="name all members in [origin] members of this host, the home first",
        )

    def near_member(self, name: str | None) -> "ObjectStore":
        """Return the same objects, for reading; those of logs from one member before others.

        :param name: as of :meth:`of_member`; one that is not known makes no difference.
        """
        return self


class RefStore(Store, abc.ABC):
    """Refs: small contents under names, each changed by compare-and-swap only."""

    @abc.abstractmethod
    def get_ref(self, name: str) -> Ref | None:
        """Return the ref's present state, or None when there is no such ref.

        :raises InvalidError: when the name is malformed.
        :raises DamagedRefError: when the store has it damaged, and it can be replaced as it is.
        :raises CorruptError: when it can not.
        """

    def refresh_ref(self, name: str, known: Ref | None) -> Ref | None:
        """Return the ref's present state: ``known`` itself where it still is in that one.

        For those who look often at what changes rarely. Implementations that can tell without
        reading the content do so; then a ref that was changed and changed back to the same size
        in the same moment may be missed, which is why a caller calls :meth:`get_ref` now and then,
        and always before it changes the ref.

        :param known: what this origin returned for this name before; None: nothing.
        :raises InvalidError: when the name is malformed.
        """
        present = self.get_ref(name)
        return known if present == known else present

    @abc.abstractmethod
    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen.

        :param expected: the token of the state that the caller has seen; None: no such ref.
        :param content: the new content, at most :data:`REF_SIZE_MAX` bytes; None: remove the ref.
        :returns: the new state's token, None after a removal.
        :raises ConflictError: when the ref is in another state, which is still there after a
            power failure; nothing is changed.
        :raises OvertakenError: when it is, and it cannot be told whether this call had changed it
            before.
        :raises InvalidError: when the name is malformed or the content too long.
        """

    @abc.abstractmethod
    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all refs in the folder ``prefix``, in no particular order.

        :raises InvalidError: when the prefix is malformed.
        """

    def freeing(self, *, is_beginning: bool = False) -> contextlib.AbstractContextManager[None]:
        """Return a context in which what this thread writes to refs leads to more space.

        Where the store is full, there is still space for that: else nothing could be collected.

        :param is_beginning: more has to be written before there is more space.
        """
        return contextlib.nullcontext()

    def doorbell(self) -> Doorbell | None:
        """Return what followers of refs are woken by, always the same one.

        None where there is none: they look now and then.
        """
        return None

    @property
    def needs_locks(self) -> bool:
        """True if the refs are in a layout that needs locks, see :meth:`convert_refs`.

        :raises UnavailableError: when they are being converted, or it cannot be told.
        """
        return False

    def convert_refs(self) -> bool:
        """Have the refs in the layout that this release makes; stores with one layout do nothing.

        Programs of releases that do not know it fail from then on, and must not be running.
        Repeating it, on several machines at once too, is safe, whenever it is killed.

        :returns: whether they were not before.
        :raises DeadlineError: when another program keeps from it; nothing is changed then.
        """
        return False


class Origin(ObjectStore, RefStore):
    """The central store that everything can be re-read from: objects, and the refs that name them.

    Objects and refs may have the same names.
    """


REF_SIZE_MAX = 64 << 20
"""Largest content of a ref, bytes (a binary ring of 65,536 v-nodes has well below 1 MiB)."""


def check_ref_content(name: str, content: bytes | None) -> None:
    """Refuse content that is too long for a ref.

    :raises InvalidError: when it is.
    """
    if content is not None and len(content) > REF_SIZE_MAX:
        raise exception.InvalidError(
            f"content of ref {name} is {len(content)} bytes long, at most {REF_SIZE_MAX} may be"
        )


def as_views(buffers: Sequence[Buffer]) -> collections.abc.Sequence[memoryview]:
    """Return the buffers as flat byte views, empty ones left out."""
    views = (memoryview(buffer).cast("B") for buffer in buffers)
    return [view for view in views if len(view)]
