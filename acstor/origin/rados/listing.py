"""Listings of pools: all that is there, or an error."""

import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from acstor.origin.rados import librados
from acstor.origin.rados.connection import Connection

BATCH = 1024
"""Names taken while others wait."""


class Listed(NamedTuple):
    """RADOS object that a listing tells of."""

    nspace: str
    key: str


class ListingError(Exception):
    """A listing that is not whole.

    :param code: number of the error, positive.
    """

    def __init__(self, code: int, step: str) -> None:
        """Say in words what the number means."""
        super().__init__(f"{step}: {os.strerror(code)}")
        self.code = code


class Lister(Protocol):
    """Lists pools of a cluster."""

    def entries(self, pool: str, namespace: str) -> Iterator[Listed]:
        """Yield what is in a namespace.

        :raises ListingError: when that is not all.
        """

    def close(self) -> None:
        """End the connection; it is made again at the next use."""


class PoolLister:
    """Lists pools through a connection of its own; several threads may.

    :param connection: how it is made, at the first use.
    :param library: librados; None: the installed one.
    """

    def __init__(self, connection: Connection, library: Any = None) -> None:
        """Keep the connection's parameters."""
        self._connection = connection
        self._library = library or librados.load()
        # The collector of cycles may close a forgotten listing in the midst of another.
        self._lock = threading.RLock()
        self._cluster: ctypes.c_void_p | None = None
        self._open: set[_Cursor] = set()

    def entries(self, pool: str, namespace: str) -> Iterator[Listed]:
        """Yield what is in a namespace.

        :raises ListingError: when that is not all.
        """
        cursor = None
        try:
            while cursor is None or not cursor.is_at_end:
                with _Held(self._lock, self._connection.timeout_seconds):
                    if cursor is None:
                        cursor = _Cursor(self._library, self._connected(), pool, namespace)
                        self._open.add(cursor)
                    batch = cursor.next()
                yield from batch
        finally:
            if cursor is not None:
                with self._lock:
                    self._open.discard(cursor)
                    cursor.close()

    def close(self) -> None:
        """End the connection; listings that are under way fail."""
        with self._lock:
            cluster, self._cluster = self._cluster, None
            while self._open:
                self._open.pop().close()
            if cluster is not None:
                self._library.rados_shutdown(cluster)

    def _connected(self) -> ctypes.c_void_p:
        if self._cluster is None:
            self._cluster = self._connect()
        return self._cluster

    def _connect(self) -> ctypes.c_void_p:
        connection, cluster = self._connection, ctypes.c_void_p()
        _check(self._library.rados_create(ctypes.byref(cluster), connection.client.encode()), "new")
        try:
            conf = os.fsencode(connection.conf)
            _check(self._library.rados_conf_read_file(cluster, conf), f"reading {connection.conf}")
            for option, value in connection.options.items():
                code = self._library.rados_conf_set(cluster, option.encode(), value.encode())
                _check(code, option)
            code = self._library.rados_connect(cluster)
            # A monitor that is too slow is told so, also where the key is right.
            code = -errno.ENOTCONN if code == -errno.EPERM else code
            _check(code, f"connecting as client.{connection.client}")
        except BaseException:
            self._library.rados_shutdown(cluster)
            raise
        return cluster


class _Cursor:
    """Place in a listing."""

    def __init__(self, library: Any, cluster: ctypes.c_void_p, pool: str, namespace: str) -> None:
        self.is_at_end = False
        self._library = library
        self._cluster = cluster
        self._pool = pool
        self._context: ctypes.c_void_p | None = None
        self._cursor: ctypes.c_void_p | None = None
        context, cursor = ctypes.c_void_p(), ctypes.c_void_p()
        code = library.rados_ioctx_create(cluster, pool.encode(), ctypes.byref(context))
        _check(code, f"opening pool {pool}")
        self._context = context
        library.rados_ioctx_set_namespace(context, namespace.encode())
        try:
            code = library.rados_nobjects_list_open(context, ctypes.byref(cursor))
            _check(code, f"listing pool {pool}")
        except ListingError:
            self.close()
            raise
        self._cursor = cursor

    def next(self) -> list[Listed]:
        """Return the next ones; fewer where an OSD has to be asked for more."""
        if self._cursor is None:
            raise ListingError(errno.ESHUTDOWN, f"listing pool {self._pool}")
        key, locator, nspace = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_char_p()
        places = ctypes.byref(key), ctypes.byref(locator), ctypes.byref(nspace)
        found: list[Listed] = []
        while len(found) < BATCH:
            code = self._library.rados_nobjects_list_next(self._cursor, *places)
            if code == -errno.ENOENT:
                self._check_pool()
                self.is_at_end = True
                break
            _check(code, f"listing pool {self._pool}")
            found.append(Listed(_text(nspace), _text(key)))
        return found

    def _check_pool(self) -> None:
        """See that the pool is there: the end of the listing and the pool's have one number."""
        present = self._library.rados_pool_lookup(self._cluster, self._pool.encode())
        if present < 0 or present != self._library.rados_ioctx_get_id(self._context):
            raise ListingError(errno.ENOENT, f"listing pool {self._pool}")

    def close(self) -> None:
        """Free what librados holds for it."""
        if self._cursor is not None:
            self._library.rados_nobjects_list_close(self._cursor)
            self._cursor = None
        if self._context is not None:
            self._library.rados_ioctx_destroy(self._context)
            self._context = None


def _text(name: ctypes.c_char_p) -> str:
    """Return a name; one that is no text, which nobody here gave, as one that no key is."""
    return (name.value or b"").decode(errors="replace")


class _Held:
    """A lock that is waited for as long as a call may take, not longer."""

    def __init__(self, lock: threading.RLock, seconds: float) -> None:
        self._lock = lock
        self._seconds = seconds

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._seconds):
            raise ListingError(errno.ETIMEDOUT, "waiting for another listing")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _check(code: int, step: str) -> None:
    if code < 0:
        raise ListingError(-code, step)
