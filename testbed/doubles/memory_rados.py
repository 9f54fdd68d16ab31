"""Memory in place of a Ceph cluster, behind the binding's interface as far as the origin uses it.

It stands where the module ``rados`` does. Each operation takes effect at one moment, a compound one
as a whole or not at all; a comparison takes bytes behind an object's end for zeros, as OSDs do.
"""

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from acstor.origin.rados import pools
from acstor.origin.rados.binding import Binding
from acstor.origin.rados.connection import Connection
from acstor.origin.rados.listing import Listed

MISMATCH_ERRNO = 4095
"""Error number of a comparison that fails at the first byte."""
Place = tuple[str, str, str]
"""Pool, namespace and name."""


class Error(Exception):
    """Error of the cluster.

    :param errno: number of the error, positive.
    """

    def __init__(self, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno


class OSError(Error):  # noqa: A001 - as the binding has it
    """Error with a number of the system's."""


class ObjectNotFound(OSError):  # noqa: N818 - as the binding has it
    """Absent object, pool or configuration."""


class ObjectExists(OSError):  # noqa: N818
    """Object that was to be new."""


class ExtendMismatch(OSError):  # noqa: N818
    """Comparison that failed."""


class TimedOut(OSError):  # noqa: N818
    """Operation without an answer in time."""


class NoSpace(OSError):  # noqa: N818
    """Write to a full pool."""


class PermissionError(OSError):  # noqa: A001
    """Operation that the key does not allow."""


class PermissionDeniedError(OSError):
    """The same, by another number."""


class MemoryRados:
    """Module and cluster in one; what is stored outlives the connections."""

    LIBRADOS_CREATE_EXCLUSIVE = 1
    Error = Error
    OSError = OSError
    ObjectNotFound = ObjectNotFound
    ObjectExists = ObjectExists
    ExtendMismatch = ExtendMismatch
    TimedOut = TimedOut
    NoSpace = NoSpace
    PermissionError = PermissionError
    PermissionDeniedError = PermissionDeniedError

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stored: dict[Place, bytes] = {}
        self.free_bytes = 1 << 39
        self.quotas: dict[str, int] = {}
        """Of pools, bytes."""
        self.command_error = 0
        """Number of the error of commands to monitors."""
        self.erasure_coded: frozenset[str] = frozenset()
        """Pools of that kind; all others are replicated."""
        self.tags: dict[str, dict[str, object]] = {}
        """Applications by pool; nobody else has tagged one."""
        self.pool_ids: dict[str, int] = {}
        """Of the pools that somebody has opened, and nobody has deleted since."""
        self._last_pool_id = 0
        self.watches: list[Watch] = []
        self.watch_error: Error | None = None
        """Raised by who begins to watch."""

    def Rados(self, conffile: str, rados_id: str) -> "Handle":  # noqa: N802 - as the binding has it
        """Make a connection."""
        return Handle(self)

    @property
    def binding(self) -> Binding:
        """Binding that stands in the place of the distribution's."""
        return Binding(self, self.lister)

    def lister(self, connection: Connection) -> "MemoryLister":
        """Make what lists pools."""
        return MemoryLister(self)

    def room_of(self, pool: str, *, is_detailed: bool) -> dict[str, int]:
        """Return what monitors tell of a pool."""
        stored = sum(len(content) for place, content in self.stored.items() if place[0] == pool)
        found = {"stored": stored, "max_avail": self.free_bytes}
        return found | {"quota_bytes": self.quotas.get(pool, 0)} if is_detailed else found

    def listed_pools(self) -> list[dict[str, object]]:
        """Return what monitors tell of all pools: of those with something in them, or a kind."""
        names = {place[0] for place in self.stored} | self.erasure_coded | self.tags.keys()
        return [
            {
                "pool_name": name,
                "type": 3 if name in self.erasure_coded else 1,
                "application_metadata": self.tags.get(name, {}),
            }
            for name in sorted(names)
        ]

    def open_pool(self, pool: str) -> int:
        """Return the id of a pool; there is every one."""
        with self.lock:
            if pool not in self.pool_ids:
                self._last_pool_id += 1
                self.pool_ids[pool] = self._last_pool_id
            return self.pool_ids[pool]

    def delete_pool(self, pool: str) -> None:
        """Delete a pool; who opens it from here on has another one of its name."""
        with self.lock:
            self.stored = {place: kept for place, kept in self.stored.items() if place[0] != pool}
            del self.pool_ids[pool]

    def break_watches(self) -> None:
        """End all watches, and tell who watches, as OSDs do who have not heard of it for long."""
        with self.lock:
            broken, self.watches = self.watches, []
        for one in broken:
            one.tell_break(one.number, -errno.ENOTCONN)

    def names(self, namespace_part: str) -> list[str]:
        """Return the names of what is stored in namespaces with that part."""
        return [name for _, space, name in self.stored if namespace_part in space]


class MemoryLister:
    """Lists pools."""

    def __init__(self, cluster: MemoryRados) -> None:
        self._cluster = cluster

    def entries(self, pool: str, namespace: str) -> Iterator[Listed]:
        """Yield what is in the namespace, or in all of them."""
        with self._cluster.lock:
            places = list(self._cluster.stored)
        for place, space, name in places:
            if place == pool and namespace in (space, "\x01"):
                yield Listed(space, name)

    def close(self) -> None:
        """Close nothing."""


class Handle:
    """Connection to the cluster."""

    def __init__(self, cluster: MemoryRados) -> None:
        self._cluster = cluster

    def conf_set(self, option: str, value: str) -> None:
        """Take an option that memory has no use for."""

    def connect(self) -> None:
        """Connect at once."""

    def shutdown(self) -> None:
        """Close nothing."""

    def open_ioctx(self, pool: str) -> "Context":
        """Open a pool; there is every one."""
        return Context(self._cluster, pool)

    def pool_reverse_lookup(self, pool_id: int) -> str | None:
        """Return the name of a pool, None where there is none (any more)."""
        known = {number: name for name, number in self._cluster.pool_ids.items()}
        return known.get(pool_id)

    def get_cluster_stats(self) -> dict[str, int]:
        """Return a room that does not change."""
        return {"kb": 1 << 30, "kb_avail": 1 << 29, "kb_used": 1 << 28}

    def mon_command(self, command: str, given: bytes) -> tuple[int, bytes, str]:
        """Answer ``ceph df detail`` and ``ceph osd pool ls detail``; there are no others."""
        if self._cluster.command_error:
            return -self._cluster.command_error, b"", "no answer"
        asked = json.loads(command)
        if asked == json.loads(pools.LIST_COMMAND):
            return 0, json.dumps(self._cluster.listed_pools()).encode(), ""
        if asked.get("prefix") != "df" or asked.get("format") != "json":
            return -errno.EINVAL, b"", "no such command"
        figures = [
            {"name": name, "stats": self._cluster.room_of(name, is_detailed="detail" in asked)}
            for name in sorted({place[0] for place in self._cluster.stored})
        ]
        return 0, json.dumps({"pools": figures}).encode(), ""


class Completion:
    """Answer of an asynchronous operation, which is there at once."""

    def __init__(self, value: int) -> None:
        self._value = value

    def wait_for_complete_and_cb(self) -> None:
        """Return at once."""

    def get_return_value(self) -> int:
        """Return the number of bytes, or the negative number of an error."""
        return self._value


class Watch:
    """Watch of an object."""

    def __init__(
        self,
        cluster: MemoryRados,
        place: Place,
        tell: Callable[[int, int, int, bytes | None], str | None],
        tell_break: Callable[[int, int], None],
    ) -> None:
        self.place = place
        self.tell = tell
        self.tell_break = tell_break
        self.number = id(self)
        self._cluster = cluster

    def close(self) -> None:
        """Watch no longer; what is broken may be closed, too."""
        with self._cluster.lock:
            if self in self._cluster.watches:
                self._cluster.watches.remove(self)


class WriteOperation:
    """Steps that take effect together."""

    def __init__(self) -> None:
        self.steps: list[Callable[[bytes | None], bytes | None]] = []

    def new(self, exclusive: int) -> None:
        """Fail if the object is there."""

        def step(present: bytes | None) -> bytes:
            if present is not None:
                raise ObjectExists("there is one", errno.EEXIST)
            return b""

        self.steps.append(step)

    def cmpext(self, expected: bytes, offset: int) -> None:
        """Fail if the object's bytes are others."""

        def step(present: bytes | None) -> bytes | None:
            found = (present or b"")[offset:][: len(expected)].ljust(len(expected), b"\0")
            if found != expected:
                raise ExtendMismatch("not the same", MISMATCH_ERRNO)
            return present

        self.steps.append(step)

    def write_full(self, content: bytes) -> None:
        """Have these bytes and no others."""
        self.steps.append(lambda _: content)

    def remove(self) -> None:
        """Remove the object."""

        def step(present: bytes | None) -> None:
            if present is None:
                raise ObjectNotFound("there is none", errno.ENOENT)

        self.steps.append(step)


class Context:
    """Namespace of a pool."""

    def __init__(self, cluster: MemoryRados, pool: str) -> None:
        self._cluster = cluster
        self._pool = pool
        self._pool_id = cluster.open_pool(pool)
        self._namespace = ""

    def set_namespace(self, namespace: str) -> None:
        """Use another namespace."""
        self._namespace = namespace

    def get_pool_id(self) -> int:
        """Return the id that the pool had when it was opened."""
        return self._pool_id

    def set_osdmap_full_try(self) -> None:
        """Take what memory has no use for; it is never full."""

    def close(self) -> None:
        """Close nothing."""

    def read(self, name: str, length: int, offset: int = 0) -> bytes:
        """Return bytes of an object."""
        with self._cluster.lock:
            return self._present(name)[offset : offset + length]

    def stat(self, name: str) -> tuple[int, time.struct_time]:
        """Return size and time of change, which is always now."""
        with self._cluster.lock:
            return len(self._present(name)), time.localtime()

    def write_full(self, name: str, content: bytes) -> None:
        """Have these bytes and no others."""
        with self._cluster.lock:
            self._check_pool()
            self._cluster.stored[self._place(name)] = bytes(content)

    def remove_object(self, name: str) -> None:
        """Remove an object."""
        with self._cluster.lock:
            self._present(name)
            del self._cluster.stored[self._place(name)]

    def create_write_op(self) -> WriteOperation:
        """Return an operation without steps."""
        return WriteOperation()

    def release_write_op(self, operation: WriteOperation) -> None:
        """Release nothing."""

    def operate_write_op(self, operation: WriteOperation, name: str) -> None:
        """Do all steps, or none."""
        with self._cluster.lock:
            self._check_pool()
            present = self._cluster.stored.pop(self._place(name), None)
            after = present
            try:
                for step in operation.steps:
                    after = step(after)
            except Error:
                after = present
                raise
            finally:
                if after is not None:
                    self._cluster.stored[self._place(name)] = after

    def aio_write_full(self, name: str, content: bytes) -> Completion:
        """Have these bytes and no others."""
        try:
            self.write_full(name, content)
        except Error as error:
            return Completion(-error.errno)
        return Completion(0)

    def aio_read(
        self, name: str, length: int, offset: int, done: Callable[[Any, bytes | None], None]
    ) -> Completion:
        """Hand bytes of an object over; where there are none, memory that nobody has written to."""
        try:
            content = self.read(name, length, offset)
        except Error as error:
            completion = Completion(-error.errno)
            done(completion, None)
        else:
            completion = Completion(len(content))
            done(completion, content or b"?" * length)
        return completion

    def watch(
        self,
        name: str,
        callback: Callable[[int, int, int, bytes | None], str | None],
        error_callback: Callable[[int, int], None],
    ) -> Watch:
        """Be told of notifications of an object."""
        if self._cluster.watch_error is not None:
            raise self._cluster.watch_error
        with self._cluster.lock:
            self._present(name)
            made = Watch(self._cluster, self._place(name), callback, error_callback)
            self._cluster.watches.append(made)
        return made

    def aio_notify(
        self, name: str, done: Callable[..., None], message: str, timeout_ms: int
    ) -> Completion:
        """Tell all who watch an object."""
        with self._cluster.lock:
            is_there = self._place(name) in self._cluster.stored
            told = [one for one in self._cluster.watches if one.place == self._place(name)]
        completion = Completion(0 if is_there else -errno.ENOENT)
        for one in told:
            one.tell(1, 1, one.number, message.encode() or None)
        done(completion, completion.get_return_value(), [], [])
        return completion

    def _place(self, name: str) -> Place:
        return self._pool, self._namespace, name

    def _check_pool(self) -> None:
        """Answer as librados does for a pool that was deleted since: as of an absent object."""
        if self._cluster.pool_ids.get(self._pool) != self._pool_id:
            raise ObjectNotFound("there is no such pool", errno.ENOENT)

    def _present(self, name: str) -> bytes:
        self._check_pool()
        found = self._cluster.stored.get(self._place(name))
        if found is None:
            raise ObjectNotFound("there is none", errno.ENOENT)
        return found
