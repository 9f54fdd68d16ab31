"""A connection to a Ceph cluster, with a deadline for everything that is asked of it."""

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from acstor import exception
from acstor.origin.rados import binding

MISMATCH_ERRNO_MIN = 4095
"""From here on librados gives the place at which a comparison failed (``MAX_ERRNO``)."""
ALL_NAMESPACES = "\x01"
NEARLY = 0.9
"""Share of the deadline from which a listing that ends has run into it: clocks differ a little."""


class MismatchError(Exception):
    """An object is not in the state that the operation requires."""


class ExistsError(Exception):
    """An object that was to be made is there."""


class AbsentError(Exception):
    """There is no such RADOS object."""


class Cluster:
    """Connects at the first use; all calls end with the deadline.

    :param conf: path of ceph.conf.
    :param client: name of the client without its type, as in ``client.NAME``.
    :param timeout_seconds: of each call, and of connecting.
    :param rados: the binding; None: the distribution's.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        conf: str,
        client: str,
        timeout_seconds: float,
        rados: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep the cluster and the client to connect as."""
        self._conf = conf
        self._client = client
        self._timeout = timeout_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._handle: Any = None
        self._contexts: dict[tuple[str, str], Any] = {}
        self.rados = rados or binding.load()

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
                    found.set_namespace(namespace)
                    # Else writing to a full pool would wait for space until the deadline, and
                    # deletions with it.
                    found.set_osdmap_full_try()
                self._contexts[pool, namespace] = found
            return found

    def statistics(self) -> dict[str, int]:
        """Return the cluster's room, as ``rados df`` has it."""
        with self._connecting():
            handle = self._connected()
        with self.map_errors("asking for the room of the cluster"):
            found: dict[str, int] = handle.get_cluster_stats()
            return found

    @contextlib.contextmanager
    def _connecting(self) -> Iterator[None]:
        """Hold the lock; who waits for another one's connecting has a deadline, too."""
        if not self._lock.acquire(timeout=self._timeout):
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
                f"connecting as client.{self._client}",
                f"check that {self._conf} and the keyring of this client are there",
            ):
                self._handle = self._connect()
        return self._handle

    def _connect(self) -> Any:
        handle = self.rados.Rados(conffile=self._conf, rados_id=self._client)
        try:
            seconds = f"{self._timeout:g}"
            for option in ("rados_osd_op_timeout", "rados_mon_op_timeout"):
                handle.conf_set(option, seconds)
            # It takes whole seconds only, and none for no end.
            handle.conf_set("client_mount_timeout", str(max(1, round(self._timeout))))
            handle.connect()
        except BaseException:
            handle.shutdown()
            raise
        return handle

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
            raise AbsentError(what) from error
        except self.rados.ObjectExists as error:
            raise ExistsError(what) from error
        except self.rados.Error as error:
            if (getattr(error, "errno", 0) or 0) >= MISMATCH_ERRNO_MIN:
                raise MismatchError(what) from error
            raise self._mapped(error, what) from error

    def _mapped(self, error: Any, what: str) -> exception.AcstorError:
        text = f"{what}: {error}"
        code = getattr(error, "errno", 0)
        if isinstance(error, self.rados.NoSpace) or code in (errno.ENOSPC, errno.EDQUOT):
            return exception.ExhaustedError(
                text, hint="make room in the pool ('acstor gc' frees what no image needs)"
            )
        denied = (self.rados.PermissionError, self.rados.PermissionDeniedError)
        if isinstance(error, denied):
            return exception.InvalidError(
                text, hint="give this client the capabilities that the page on Ceph names"
            )
        if code in (errno.EINVAL, errno.ENAMETOOLONG, errno.EFBIG, errno.EMSGSIZE):
            return exception.InvalidError(text)
        if code in (errno.EOPNOTSUPP,):
            return exception.UnsupportedError(text)
        return exception.UnavailableError(
            text, hint="check that monitors and OSDs are up ('ceph -s') and reached from here"
        )

    def listed(self, context: Any, what: str) -> Iterator[Any]:
        """Yield what is in a context's namespace.

        The binding takes any error for the end of a listing. One that timed out has taken as long
        as the deadline, which tells it from the end.

        :raises UnavailableError: when the listing is not whole.
        """
        with self.map_errors(what):
            entries = iter(context.list_objects())
            while True:
                started = self._clock()
                entry = next(entries, None)
                if entry is None:
                    break
                yield entry
        if self._clock() - started >= NEARLY * self._timeout:
            raise exception.UnavailableError(
                f"{what}: an OSD did not answer in time", hint="check that OSDs are up ('ceph -s')"
            )

    def completed(self, completion: Any, what: str) -> int:
        """Wait for an asynchronous call; return what it returned, 0 or more."""
        completion.wait_for_complete_and_cb()
        value = int(completion.get_return_value())
        if value >= 0:
            return value
        if value == -errno.ENOENT:
            raise AbsentError(what)
        with self.map_errors(what):
            raise self.rados.OSError(f"error {-value}", -value)
        raise AssertionError  # the block above raises
