"""Leases of the tasks that one worker is at: renewed from a thread of its own, until they end."""

import logging
import threading
import time
from collections.abc import Callable

from acstor import exception
from acstor.versions.database.tasks import Lease, TaskStore

LOG = logging.getLogger(__name__)

RENEWALS = 3
"""Renewals in the time that a lease lasts."""


class TaskControl:
    """Word of the worker to the work at one task; see :class:`.Control`.

    :param seconds: that the lease lasts from its last renewal.
    :param clock: monotonic seconds. What was written with the database's clock is compared with a
        stretch of this one, begun before: so it ends here first.
    """

    def __init__(
        self,
        lease: Lease,
        seconds: float,
        taken_at: float,
        clock: Callable[[], float],
        *,
        is_cancelled: bool = False,
    ) -> None:
        """Begin with a lease that was taken not before ``taken_at``."""
        self.lease = lease
        self._seconds = seconds
        self._clock = clock
        self._until = taken_at + seconds
        self._changed = threading.Event()
        self._is_stopped = False
        self._is_cancelled = is_cancelled

    @property
    def is_over(self) -> bool:
        """True if the worker stops, or the lease is lost or may be."""
        return self._is_stopped or self._clock() >= self._until

    @property
    def is_cancelled(self) -> bool:
        """True if somebody has cancelled the task."""
        return self._is_cancelled

    def pause(self, seconds: float) -> None:
        """Wait for so long, or until there is something to know."""
        if self._changed.wait(seconds) and not self.is_over:
            # Known to be cancelled: while that is undone, waits are waits.
            self._changed.clear()

    def renew(self, tasks: TaskStore) -> None:
        """Make the lease last longer, if that is possible; errors only end it in time."""
        begun = self._clock()
        try:
            task = tasks.renew(self.lease, self._seconds)
        except exception.FencedError as error:
            LOG.warning("a task was taken from this worker: %s", exception.one_line(error))
            self.stop()
        except exception.AcstorError as error:
            LOG.warning("a lease cannot be renewed: %s", exception.one_line(error))
        else:
            self._until = begun + self._seconds
            if task.is_cancelled and not self._is_cancelled:
                self._is_cancelled = True
                self._changed.set()

    def stop(self) -> None:
        """Have the work end soon, from any thread."""
        self._is_stopped = True
        self._changed.set()


class Leases:
    """All leases of a worker.

    :param seconds: that each lasts.
    """

    def __init__(
        self,
        tasks: TaskStore,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Renew nothing yet."""
        self._tasks = tasks
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._controls: dict[str, TaskControl] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)

    def start(self) -> None:
        """Renew from now on."""
        self._thread.start()

    def add(self, lease: Lease, taken_at: float, *, is_cancelled: bool = False) -> TaskControl:
        """Return the control of a task whose lease was taken not before a moment."""
        control = TaskControl(
            lease, self._seconds, taken_at, self._clock, is_cancelled=is_cancelled
        )
        with self._lock:
            self._controls[lease.task_id] = control
        return control

    def remove(self, control: TaskControl) -> None:
        """Renew a lease no more."""
        with self._lock:
            if self._controls.get(control.lease.task_id) is control:
                del self._controls[control.lease.task_id]

    def stop_work(self) -> None:
        """Have the work at all tasks end soon."""
        for control in self._all():
            control.stop()

    def stop(self, timeout: float) -> None:
        """End, within ``timeout`` seconds."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def renew_all(self) -> None:
        """Renew every lease once."""
        for control in self._all():
            control.renew(self._tasks)

    def _all(self) -> list[TaskControl]:
        with self._lock:
            return list(self._controls.values())

    def _run(self) -> None:
        while not self._end.wait(self._seconds / RENEWALS):
            self.renew_all()
