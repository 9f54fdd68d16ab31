"""Objects of one repository in two classes: what controllers have stored, and what hosts have.

Whoever may write to a namespace of Ceph may delete everything in it. So hosts write to namespaces
of their own, and a stolen host's key cannot delete a pack of an image.
"""

from collections.abc import Iterator, Sequence

from acstor import exception
from acstor.origin import base
from acstor.origin.rados.objects import RadosObjects
from acstor.origin.rados.reading import Reading

OF_THE_WRITER = frozenset({"packs", "manifests"})
"""First parts of the keys that both store: content addresses, so two of a name are the same."""
OF_HOSTS = frozenset({"volume-log"})
"""First parts of the keys that hosts store alone. All others are of controllers."""
REMEMBERED_MAX = 4096


class ClassedObjects(base.ObjectStore):
    """The objects of both classes.

    What is in both is read from the controllers' one at first, so no host can take its place.

    :param controllers: what controllers store.
    :param hosts: what hosts store.
    :param is_host: whose program this is.
    """

    def __init__(self, controllers: RadosObjects, hosts: RadosObjects, *, is_host: bool) -> None:
        """Join the two."""
        self.controllers = controllers
        self.hosts = hosts
        self._is_host = is_host
        self._found_at_hosts: dict[str, None] = {}

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        """Store an object in the class of the writer."""
        first = _first(key)
        if first in OF_HOSTS:
            return self.hosts.put_if_absent(key, buffers)
        if first not in OF_THE_WRITER or not self._is_host:
            # Nothing that a host has stored keeps a controller from storing it.
            return self.controllers.put_if_absent(key, buffers)
        return not self.controllers.exists(key) and self.hosts.put_if_absent(key, buffers)

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Read from an object into ``buffer``."""
        return self.controllers.rounds.read(self._reading(base.ReadRange(key, offset, buffer)))

    def read_many(
        self, ranges: Sequence[base.ReadRange], deadline_seconds: float | None = None
    ) -> Sequence[exception.AcstorError | None]:
        """Fill the buffers of several ranges, all at once."""
        readings = [*map(self._reading, ranges)]
        return self.controllers.rounds.read_many(ranges, readings, deadline_seconds)

    def _reading(self, one: base.ReadRange) -> Reading:
        if one.key in self._found_at_hosts:
            try:
                return (yield from self.hosts.reading(one))
            except exception.NotFoundError:
                self._found_at_hosts.pop(one.key, None)
        *others, last = self._classes(one.key)
        for store in others:
            try:
                return (yield from store.reading(one))
            except exception.NotFoundError:
                continue
        count = yield from last.reading(one)
        if others:
            self._remember(one.key)
        return count

    def size(self, key: str) -> int:
        """Return the size of an object in bytes."""
        *others, last = self._classes(key)
        for store in others:
            try:
                return store.size(key)
            except exception.NotFoundError:
                continue
        return last.size(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``, each once."""
        of_controllers = set()
        if not prefix or self.controllers in self._classes(prefix):
            for key in self.controllers.list(prefix):
                if _first(key) in OF_THE_WRITER:
                    of_controllers.add(key)
                yield key
        if not prefix or self.hosts in self._classes(prefix):
            yield from (key for key in self.hosts.list(prefix) if key not in of_controllers)

    def list_protected(self, prefix: str) -> Iterator[str]:
        """Yield those keys in the folder ``prefix`` that controllers have stored."""
        yield from self.controllers.list(prefix)

    def is_protected(self, key: str) -> bool:
        """Return whether controllers have stored the object; to a host its own is as good."""
        return self.controllers.exists(key) or (self._is_host and self.hosts.exists(key))

    def delete(self, key: str) -> bool:
        """Delete an object, in both classes where it is in both."""
        deleted = [store.delete(key) for store in self._classes(key)]
        return any(deleted)

    def space(self) -> base.Space | None:
        """Return the room, which is one for both."""
        return self.controllers.space()

    def sweep(self) -> int:
        """Remove leftovers of both."""
        return self.controllers.sweep() + self.hosts.sweep()

    def close(self) -> None:
        """Close the connection, which is the refs' too."""
        self.controllers.close()

    def _classes(self, key: str) -> tuple[RadosObjects, ...]:
        first = _first(key)
        if first in OF_THE_WRITER:
            return self.controllers, self.hosts
        return (self.hosts,) if first in OF_HOSTS else (self.controllers,)

    def _remember(self, key: str) -> None:
        if len(self._found_at_hosts) >= REMEMBERED_MAX:
            self._found_at_hosts.clear()
        self._found_at_hosts[key] = None


def _first(key: str) -> str:
    return key.partition("/")[0]
