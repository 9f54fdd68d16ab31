"""A connection to a Ceph cluster, with a deadline for everything that is asked of it."""

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.origin.rados import pools
from acstor.origin.rados.binding import Binding, distributed
from acstor.origin.rados.connection import Connection
from acstor.origin.rados.listing import Listed, ListingError

MISMATCH_ERRNO_MIN = 4095
"""From here on librados gives the place at which a comparison failed (``MAX_ERRNO``)."""
ALL_NAMESPACES = "\x01"
_ROOM_COMMAND = json.dumps({"prefix": "df", "detail": "detail", "format": "json"})
_ABSENT_HINT = "check that {} and the keyring of this client are there"


class MismatchError(Exception):
    """An object is not in the state that the operation requires."""


class ExistsError(Exception):
    """An object that was to be made is there."""


class AbsentError(Exception):
    """There is no such RADOS object."""


class Cluster:
    """Connects at the first use; all calls end with the deadline.

    :param binding: of librados; None: the distribution's.
    :param used: pools that are checked at each connecting.
    """

    def __init__(
        self,
        connection: Connection,
        binding: Binding | None = None,
        used: pools.UsedPools | None = None,
    ) -> None:
        """Keep the cluster and the client to connect as."""
        self._connection = connection
        self._used = used
        self.timeout_seconds = connection.timeout_seconds
        binding = binding or distributed()
        self.rados = binding.rados
        self._lister = binding.lister(connection)
        self._lock = threading.Lock()
        self._handle: Any = None
        self._contexts: dict[tuple[str, str], Any] = {}
        self._pools: dict[str, int] = {}
        """Ids of the pools that were opened."""

    def context(self, pool: str, namespace: str) -> Any:
        """Return the context of a namespace in a pool; it is opened once.

        :raises UnavailableError: when the cluster does not answer in time.
        :raises InvalidError: when pool, configuration or key are not there.
        """
        with self._connecting():
            found = self._contexts.get((pool, namespace))
            if found is None:
                handle = self._connected()
                with self._refusing_absent(
                    f"opening pool {pool}", "make the pool, or name another"
                ):
                    found = handle.open_ioctx(pool)
                    if self._pools.setdefault(pool, found.get_pool_id()) != found.get_pool_id():
                        raise _deleted(pool, f"opening pool {pool}")
                    found.set_namespace(namespace)
                    # Else writing to a full pool would wait for space until the deadline, and
                    # deletions with it.
                    found.set_osdmap_full_try()
                self._contexts[pool, namespace] = found
            return found

    def fsid(self) -> str:
        """Return the id of the cluster.

        :raises UnavailableError: when the cluster does not answer in time.
        :raises InvalidError: when configuration or key are not there.
        """
        with self._connecting():
            handle = self._connected()
        with self.map_errors("asking for the id of the cluster"):
            return str(handle.get_fsid())

    def room(self, pool: str) -> tuple[int, int]:
        """Return how many bytes may still be stored in a pool, and how many there are.

        As ``ceph df detail`` has them: without copies, and within the pool's quota, which the
        statistics of the cluster know nothing of. These are told of a pool that is so new that
        nobody has figures of it.

        :raises UnavailableError: when the cluster does not answer in time.
        """
        what = f"asking for the room of pool {pool}"
        with self._connecting():
            handle = self._connected()
        with self.map_errors(what):
            code, answer, _ = handle.mon_command(_ROOM_COMMAND, b"")
        if code < 0:
            raise mapped_error(-code, f"{what}: {os.strerror(-code)}")
        try:
            told = untrusted_json.load(answer, what)["pools"]
            known = {one["name"]: one["stats"] for one in told}
            if pool in known:
                return _room_of(known[pool])
        except (ValueError, KeyError, TypeError) as error:
            raise exception.UnavailableError(f"{what}: no figures were told") from error
        with self.map_errors(what):
            cluster = handle.get_cluster_stats()
        return cluster["kb_avail"] << 10, cluster["kb_used"] << 10

    @contextlib.contextmanager
    def _connecting(self) -> Iterator[None]:
        """Hold the lock; who waits for another one's connecting has a deadline, too."""
        if not self._lock.acquire(timeout=self._connection.timeout_seconds):
            raise exception.UnavailableError(
                "another call has not reached the cluster yet",
                hint="check that the monitors are up ('ceph -s') and reached from here",
            )
        try:
            yield
        finally:
            self._lock.release()

    def _connected(self) -> Any:
        if self._handle is None:
            with self._refusing_absent(
                f"connecting as client.{self._connection.client}",
                _ABSENT_HINT.format(self._connection.conf),
            ):
                self._handle = self._connect()
        return self._handle

    def _connect(self) -> Any:
        """Connect; a monitor that is too slow makes librados say that it is not permitted.

        A wrong key is told as that too, or as denied.
        """
        connection = self._connection
        handle = self.rados.Rados(conffile=connection.conf, rados_id=connection.client)
        try:
            for option, value in connection.options.items():
                handle.conf_set(option, value)
            handle.connect()
            self._check_pools(handle)
        except BaseException as error:
            handle.shutdown()
            if getattr(error, "errno", 0) == errno.EPERM:
                raise exception.UnavailableError(
                    f"connecting as client.{connection.client}: {error}",
                    hint="check that the monitors are up ('ceph -s'), and the key of this client",
                ) from error
            raise
        return handle

    def _check_pools(self, handle: Any) -> None:
        if self._used is None:
            return
        what = "asking for the kinds of pools"
        with self.map_errors(what):
            code, answer, _ = handle.mon_command(pools.LIST_COMMAND, b"")
        if code in (-errno.EPERM, -errno.EACCES):
            return  # a client with fewer capabilities than the page on Ceph names
        if code < 0:
            raise mapped_error(-code, f"{what}: {os.strerror(-code)}")
        self._used.check(pools.parse(answer))

    @contextlib.contextmanager
    def _refusing_absent(self, what: str, hint: str) -> Iterator[None]:
        try:
            with self.map_errors(what):
                yield
        except AbsentError as error:
            raise exception.InvalidError(f"{what}: {error.__cause__}", hint=hint) from error

    def close(self) -> None:
        """Close the connection; it is made again at the next use."""
        with self._lock:
            handle, self._handle = self._handle, None
            contexts, self._contexts = self._contexts, {}
            self._pools = {}
        self._lister.close()
        for context in contexts.values():
            context.close()
        if handle is not None:
            handle.shutdown()

    @contextlib.contextmanager
    def map_errors(self, what: str) -> Iterator[None]:
        """Turn errors of the binding into this module's, or those of :mod:`acstor.exception`."""
        try:
            yield
        except self.rados.ObjectNotFound as error:
            raise self.absent(what) from error
        except self.rados.ObjectExists as error:
            raise ExistsError(what) from error
        except self.rados.Error as error:
            if (getattr(error, "errno", 0) or 0) >= MISMATCH_ERRNO_MIN:
                raise MismatchError(what) from error
            raise mapped_error(getattr(error, "errno", 0), f"{what}: {error}") from error

    def listed(self, pool: str, namespace: str, what: str) -> Iterator[Listed]:
        """Yield what is in a namespace.

        :raises AcstorError: when the listing is not whole.
        """
        try:
            yield from self._lister.entries(pool, namespace)
        except ListingError as error:
            text = f"{what}: {error}"
            if error.code == errno.ENOENT:
                hint = _ABSENT_HINT.format(self._connection.conf) + f", and pool {pool}"
                raise exception.InvalidError(text, hint=hint) from error
            raise mapped_error(error.code, text) from error

    def absent(self, what: str) -> AbsentError | exception.AcstorError:
        """Return what an answer means that there is no such object.

        librados gives the same for every object of a pool that was deleted, also where another one
        has its name now. To take that for absent would be to lose sight of images and volumes.
        """
        handle, opened = self._handle, dict(self._pools)
        if handle is None:
            return AbsentError(what)
        try:
            for pool, number in opened.items():
                # From the map that librados has; where the pool is not in it, from the newest one.
                if handle.pool_reverse_lookup(number) is None:
                    return _deleted(pool, what)
        except self.rados.Error as error:
            return mapped_error(getattr(error, "errno", 0), f"{what}: {error}")
        return AbsentError(what)

    def error(self, code: int, what: str) -> exception.AcstorError:
        """Return what an error's number means, positive, other than those of one object's state."""
        return mapped_error(code, f"{what}: {os.strerror(code)}")

    def completed(self, completion: Any, what: str) -> int:
        """Wait for an asynchronous call; return what it returned, 0 or more."""
        completion.wait_for_complete_and_cb()
        value = int(completion.get_return_value())
        if value >= 0:
            return value
        if value == -errno.ENOENT:
            raise self.absent(what)
        with self.map_errors(what):
            raise self.rados.OSError(f"error {-value}", -value)
        raise AssertionError  # the block above raises


def _deleted(pool: str, what: str) -> exception.UnavailableError:
    return exception.UnavailableError(
        f"{what}: pool {pool} was deleted since this service opened it",
        hint="restore the repository, then restart this service: it uses no pool made meanwhile",
    )


def _room_of(figures: Mapping[str, int]) -> tuple[int, int]:
    stored, free, quota = (figures[name] for name in ("stored", "max_avail", "quota_bytes"))
    return max(0, min(free, quota - stored) if quota else free), stored


def mapped_error(code: int | None, text: str) -> exception.AcstorError:
    """Return the error for a code of Ceph's libraries (``errno``)."""
    if code in (errno.ENOSPC, errno.EDQUOT):
        return exception.ExhaustedError(
            text, hint="make room in the pool ('acstor gc' frees what no image needs)"
        )
    if code in (errno.EPERM, errno.EACCES):
        return exception.InvalidError(
            text, hint="give this client the capabilities that the page on Ceph names"
        )
    if code in (errno.EINVAL, errno.ENAMETOOLONG, errno.EFBIG, errno.EMSGSIZE):
        return exception.InvalidError(text)
    if code == errno.EOPNOTSUPP:
        return exception.UnsupportedError(text)
    if code == errno.ESHUTDOWN:  # EBLOCKLISTED of Ceph
        return exception.UnavailableError(
            text,
            hint="this client may be blocked ('ceph osd blocklist ls'): find out who did that and "
            "why, then restart this service",
        )
    return exception.UnavailableError(
        text, hint="check that monitors and OSDs are up ('ceph -s') and reached from here"
    )
