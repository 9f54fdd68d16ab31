"""Doorbell in RADOS: an empty object that hosts watch, and that writers of refs notify.

Watching is a write to Ceph, so the object is in a namespace of its own, which hosts may write to.
Everything that waits for the cluster is done by two threads of the doorbell: no writer waits for a
ring, and nothing but the callback's own few lines is run by a thread of librados.
"""

import atexit
import contextlib
import ctypes
import functools
import logging
import threading
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.backoff import BackOff
from acstor.origin.doorbell import Doorbell
from acstor.origin.rados.cluster import AbsentError, Cluster, ExistsError, MismatchError

LOG = logging.getLogger(__name__)

NAMESPACE = "bell"
"""Last part of the namespace's name."""
OBJECT = "changes"
"""Name of the object, which stays empty."""
NOTIFY_SECONDS = 2.0
"""Wait of Ceph for listeners that have died, before a notification is over."""
RING_INTERVAL = 0.1
"""Seconds between notifications: rings in between are one."""
UNDER_WAY_MAX = 8
"""Notifications that wait for dead listeners; what is rung meanwhile is one ring, and later."""
HEARD_INTERVAL = 1.0
"""Seconds between calls of a listener, so that whoever rings all the time cannot keep it busy."""
REFUSED_SECONDS = 600.0
"""Seconds until it is tried again to listen where that was not allowed."""
CLOSE_SECONDS = 4.0
"""Wait of :meth:`RadosDoorbell.close` for rings that were not sent yet, or are under way."""
_BACKOFF = BackOff(first=1.0, longest=60.0, shortest=0.5)
_ERRORS = (AbsentError, ExistsError, MismatchError, exception.AcstorError)


class RadosDoorbell(Doorbell):
    """Doorbell of one repository.

    :param cluster: where it is.
    :param pool: replicated.
    :param prefix: of the namespace.
    """

    def __init__(self, cluster: Cluster, pool: str, prefix: str) -> None:
        """Do nothing yet."""
        self._cluster = cluster
        context = functools.partial(cluster.context, pool, prefix + NAMESPACE)
        self._ringer = _Ringer(cluster, context)
        self._context = context
        self._listeners: list[_Listener] = []

    def ring(self) -> None:
        """Have everybody who listens look."""
        self._ringer.ask()

    def listen(self, heard: Callable[[], object]) -> None:
        """Listen from now on."""
        self._listeners.append(_Listener(self._cluster, self._context, heard))

    def close(self) -> None:
        """Listen no longer, and send what was rung."""
        self._ringer.close()
        while self._listeners:
            self._listeners.pop().close()


class _Ringer:
    """Sends notifications, from a thread that is started by the first."""

    def __init__(self, cluster: Cluster, context: Callable[[], Any]) -> None:
        self._cluster = cluster
        self._context = context
        self._condition = threading.Condition()  # of all below
        self._thread: threading.Thread | None = None
        self._is_asked = False
        self._is_ending = False
        self._is_over = False
        self._under_way = 0

    def ask(self) -> None:
        """Have a notification sent soon."""
        with self._condition:
            self._is_asked = not self._is_over
            if self._thread is None and self._is_asked:
                self._thread = threading.Thread(
                    target=self._run, name="acstor-doorbell-ring", daemon=True
                )
                self._thread.start()
                atexit.register(self._leave)
            self._condition.notify_all()

    def _leave(self) -> None:
        """End the connection, too, as the process ends.

        A thread of librados that came back later, to tell that a notification is over, would find
        no interpreter any more, and end the process by a signal.
        """
        self.close()
        self._cluster.close()

    def close(self) -> None:
        """End the thread; what was asked for is sent if that takes little time."""
        atexit.unregister(self._leave)
        with self._condition:
            self._is_ending = True
            self._condition.notify_all()
            # The connection does not outlive this, and librados does not expect that of a
            # notification that is under way.
            self._condition.wait_for(
                lambda: not self._is_asked and self._under_way == 0, CLOSE_SECONDS
            )
            self._is_over = True
            self._condition.notify_all()
        if self._thread is not None:
            # It may be connecting. The connection must not be closed before it is done.
            self._thread.join(self._cluster.timeout_seconds + CLOSE_SECONDS)

    def _run(self) -> None:
        while self._wait():
            try:
                self._send()
            except _ERRORS as error:
                self._ended()
                LOG.info("hosts notice a change at their next look: %s", error)
            with self._condition:
                self._condition.wait_for(lambda: self._is_ending, RING_INTERVAL)

    def _wait(self) -> bool:
        """Wait until something is to be sent, and count it; return False at the end."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._is_over or (self._is_asked and self._under_way < UNDER_WAY_MAX)
            )
            if self._is_over:
                return False
            # What is asked for from here on is another one: this one may come too early for it.
            self._is_asked = False
            self._under_way += 1
            self._condition.notify_all()
            return True

    def _send(self) -> None:
        with self._cluster.map_errors("ringing the doorbell"):
            self._context().aio_notify(OBJECT, self._ended, "", int(NOTIFY_SECONDS * 1000))

    def _ended(self, *_: object) -> None:
        """Count a notification that is over; that nobody listens, or has died, is no error."""
        with self._condition:
            self._under_way -= 1
            self._condition.notify_all()


class _Listener:
    """Watches the object, and watches it again whenever the cluster has forgotten that.

    :param heard: called by its thread.
    """

    def __init__(
        self, cluster: Cluster, context: Callable[[], Any], heard: Callable[[], object]
    ) -> None:
        self._cluster = cluster
        self._context = context
        self._heard = heard
        self._condition = threading.Condition()  # of the three below
        self._is_rung = False
        self._is_broken = False
        self._is_over = False
        self._was_refused = False
        self._thread = threading.Thread(
            target=self._run, name="acstor-doorbell-listen", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread, which has a call to the cluster to wait for at most."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()
        self._thread.join(self._cluster.timeout_seconds + CLOSE_SECONDS)

    def _run(self) -> None:
        failures = 0
        while not self._is_over:
            try:
                watch = self._watch()
            except _ERRORS as error:
                failures += 1
                self._pause(self._seconds_after(error, failures))
                continue
            failures, self._was_refused = 0, False
            try:
                self._follow()
            finally:
                self._end(watch)
            self._pause(HEARD_INTERVAL)

    def _watch(self) -> Any:
        """Begin to watch, having made the object where it is absent."""
        context, what = self._context(), "listening for changes"
        with self._condition:
            # Rings until here were not heard.
            self._is_rung, self._is_broken = True, False
        with contextlib.suppress(AbsentError), self._cluster.map_errors(what):
            return context.watch(OBJECT, self._note_ring, self._note_break)
        with contextlib.suppress(ExistsError), self._cluster.map_errors(what):
            operation = context.create_write_op()
            try:
                operation.new(self._cluster.rados.LIBRADOS_CREATE_EXCLUSIVE)
                context.operate_write_op(operation, OBJECT)
            finally:
                context.release_write_op(operation)
        with self._cluster.map_errors(what):
            return context.watch(OBJECT, self._note_ring, self._note_break)

    def _seconds_after(self, error: Exception, failures: int) -> float:
        """Return how long to wait after a failure; that it is not allowed is told once."""
        if not isinstance(error, exception.InvalidError):
            LOG.info("changes are noticed at the usual looks only: %s", error)
            return _BACKOFF.seconds(failures)
        if not self._was_refused:
            LOG.warning(
                "changes are noticed at the usual looks only, and this is not told again: %s",
                exception.one_line(error, with_hint=True),
            )
        self._was_refused = True
        return REFUSED_SECONDS

    def _follow(self) -> None:
        """Tell of rings until the watch breaks."""
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._is_rung or self._is_broken or self._is_over)
                if self._is_broken or self._is_over:
                    return
                self._is_rung = False
            self._heard()
            self._pause(HEARD_INTERVAL)

    def _pause(self, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._is_over, seconds)

    def _note_ring(self, *_: object) -> str:
        """Answer a notification, on a thread of librados."""
        with self._condition:
            self._is_rung = True
            self._condition.notify_all()
        return ""

    def _note_break(self, *_: object) -> None:
        """Note that the cluster has ended the watch, on a thread of librados."""
        with self._condition:
            self._is_broken = True
            self._condition.notify_all()

    def _end(self, watch: Any) -> None:
        try:
            with self._cluster.map_errors("listening no longer"):
                watch.close()
        except _ERRORS as error:
            LOG.debug("%s", error)
            # librados has freed it all the same. The binding would free it again when nobody refers
            # to it any more, which ends the process.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(watch))
