"""An origin whose objects and refs are in two stores."""

import abc
import contextlib
from collections.abc import Iterator, Sequence

from acstor import exception
from acstor.origin import base
from acstor.origin.doorbell import Doorbell


class ForwardingOrigin(base.Origin):
    """Passes each call on to the store that it concerns."""

    @property
    @abc.abstractmethod
    def objects(self) -> base.ObjectStore:
        """Store of the objects."""

    @property
    @abc.abstractmethod
    def refs(self) -> base.RefStore:
        """Store of the refs."""

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object."""
        return self.objects.put_if_absent(key, buffers)

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        return self.objects.readinto(key, offset, buffer)

    def read_many(
        self, ranges: Sequence[base.ReadRange], deadline_seconds: float | None = None
    ) -> Sequence[exception.AcstorError | None]:
        """Fill the buffers of several ranges."""
        return self.objects.read_many(ranges, deadline_seconds)

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        return self.objects.size(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""
        return self.objects.list(prefix)

    def list_protected(self, prefix: str) -> Iterator[str]:
        """Yield those keys in the folder ``prefix`` that hosts cannot delete."""
        return self.objects.list_protected(prefix)

    def is_protected(self, key: str) -> bool:
        """Return whether there is such an object that hosts cannot delete."""
        return self.objects.is_protected(key)

    def delete(self, key: str) -> bool:
        """Delete an object."""
        return self.objects.delete(key)

    def remove_folder(self, prefix: str) -> bool:
        """Remove a folder without objects."""
        return self.objects.remove_folder(prefix)

    def space(self) -> base.Space | None:
        """Return how much room there is for objects."""
        return self.objects.space()

    def of_member(self, name: str | None) -> base.ObjectStore:
        """Return the store of one member alone."""
        objects = self.objects
        store = objects.of_member(name)
        return self if store is objects else store

    def near_member(self, name: str | None) -> base.ObjectStore:
        """Return the same objects, those of logs from one member before others."""
        objects = self.objects
        store = objects.near_member(name)
        return self if store is objects else store

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        return self.refs.get_ref(name)

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state, ``known`` itself where it still is in that one."""
        return self.refs.refresh_ref(name, known)

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        return self.refs.swap_ref(name, expected, content)

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        return self.refs.list_refs(prefix)

    def freeing(self, *, is_beginning: bool = False) -> contextlib.AbstractContextManager[None]:
        """Return the context of the refs' store."""
        return self.refs.freeing(is_beginning=is_beginning)

    def doorbell(self) -> Doorbell | None:
        """Return the doorbell of the refs' store."""
        return self.refs.doorbell()

    @property
    def needs_locks(self) -> bool:
        """As the refs' store."""
        return self.refs.needs_locks

    def convert_refs(self) -> bool:
        """Convert the refs."""
        return self.refs.convert_refs()

    def sweep(self) -> int:
        """Remove leftovers of both."""
        return self.objects.sweep() + self.refs.sweep()


class OriginPair(ForwardingOrigin):
    """Two stores.

    :param objects: holds the objects.
    :param refs: holds the refs; both are closed with the pair.
    """

    def __init__(self, objects: base.ObjectStore, refs: base.RefStore) -> None:
        """Join the two."""
        self._objects = objects
        self._refs = refs

    @property
    def objects(self) -> base.ObjectStore:
        """Store of the objects."""
        return self._objects

    @property
    def refs(self) -> base.RefStore:
        """Store of the refs."""
        return self._refs

    def close(self) -> None:
        """Close both."""
        try:
            self.objects.close()
        finally:
            self.refs.close()
