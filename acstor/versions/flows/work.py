"""Work at a task: all that its steps may use, and the ways in which it ends early.

Two of these are no exceptions of a step. :class:`Interrupted` ends the work as a kill would: not
one further row or ref is written, and whoever takes the task next goes on from there. A
:class:`CancelledError` is a failure like others: what the flow has done is undone.
"""

import contextlib
import datetime
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.store import VersionStore
from acstor.versions.database import index_refresh
from acstor.versions.database.opening import Stores
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import Lease, Progress, Task, TaskError
from acstor.versions.database.version_index import IndexedVersion
from acstor.versions.services.services import Services

LOG = logging.getLogger(__name__)


class Interrupted(BaseException):
    """The worker stops, or does not know any more whether the task is its own."""


class CancelledError(exception.AcstorError):
    """Somebody cancelled the task."""

    kind = exception.ErrorKind.FENCED
    code = "acstor.task.cancelled"
    default_hint = "nothing is left of it; ask again"


class Control(Protocol):
    """Word of the worker to the work at one task, from any thread."""

    @property
    def is_over(self) -> bool:
        """True if the worker stops, or the lease is lost or may be."""

    @property
    def is_cancelled(self) -> bool:
        """True if somebody has cancelled the task."""

    def pause(self, seconds: float) -> None:
        """Wait for so long, or until one of these is true."""


class Work:
    """Work at one task under one lease.

    :param task: as it was taken.
    :param lease_seconds: by which a fence makes the lease last longer.
    :param clock: monotonic seconds, for deadlines.
    :param now: the time, for retention.
    """

    def __init__(
        self,
        task: Task,
        lease: Lease,
        *,
        stores: Stores,
        versions: VersionStore,
        services: Services,
        control: Control,
        lease_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime.datetime] = version_refs.utc_now,
    ) -> None:
        """Keep what to work with."""
        self.task = task
        self.lease = lease
        self.stores = stores
        self.versions = versions
        self.services = services
        self.control = control
        self.clock = clock
        self.now = now
        self.find_result: Callable[[str], Any] = _no_result
        """Returns the result of an earlier step by its name; the runner's."""
        self._lease_seconds = lease_seconds
        self._error: TaskError | None = task.error
        self._is_reverting = task.state is TaskState.REVERTING

    @property
    def epoch(self) -> int:
        """Epoch of the lease: it goes with each call to a host."""
        return self.lease.epoch

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Parameters of the task."""
        return self.task.parameters

    @property
    def is_reverting(self) -> bool:
        """True if the task has failed or was cancelled, and is being undone."""
        return self._is_reverting

    def result_of(self, step: str) -> Any:
        """Return the result of an earlier step, None where it has none."""
        return self.find_result(step)

    def name_of(self, part: str) -> str:
        """Return the UUID of a thing that this task makes: the same in each attempt."""
        return str(uuid.uuid5(uuid.UUID(self.task.id), part))

    # Ends

    def check(self) -> None:
        """Look whether to go on.

        :raises Interrupted: when the worker stops or the lease may be lost.
        :raises CancelledError: when somebody has cancelled the task, unless it is being undone.
        """
        if self.control.is_over:
            raise Interrupted
        if self.control.is_cancelled and not self._is_reverting:
            raise CancelledError(f"task {self.task.id} was cancelled")

    def wait(self, seconds: float) -> None:
        """Wait; see :meth:`check`."""
        self.check()
        self.control.pause(seconds)
        self.check()

    def fence(self) -> None:
        """Make sure that the task is still this work's, right before a change elsewhere.

        The lease is renewed, so it is this work's for as long as that lasts. Calls to hosts carry
        the epoch besides; refs and other services know none, which is why this comes before.

        :raises Interrupted: when it is not, or the database cannot say.
        """
        with self.interrupting():
            found = self.stores.tasks.renew(self.lease, self._lease_seconds)
        if self.control.is_over:
            raise Interrupted
        if found.is_cancelled and not self._is_reverting:
            raise CancelledError(f"task {self.task.id} was cancelled")

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Have failures of the database end the work as a kill would.

        Without it nothing can be noted, undoing least of all.

        :raises Interrupted: when the task is not this work's, or the database cannot be reached.
        """
        try:
            yield
        except exception.AcstorError as error:
            is_ours = not isinstance(error, exception.FencedError) and not error.is_transient
            if is_ours:
                raise
            LOG.warning("task %s is left to others: %s", self.task.id, exception.one_line(error))
            raise Interrupted from error

    def fail(self, error: BaseException) -> None:
        """Note that the task has failed, before anything is undone; the first reason counts."""
        if self._is_reverting:
            return
        reason = None if isinstance(error, CancelledError) else TaskError.of(error)
        with self.interrupting():
            self.stores.tasks.start_reverting(self.lease, reason)
        self._is_reverting, self._error = True, reason

    # Progress

    def report(self, progress: Progress) -> None:
        """Note the progress."""
        with self.interrupting():
            self.stores.tasks.report(self.lease, progress)

    def decide(self, chosen: Mapping[str, Any]) -> None:
        """Note what was left to the worker, before the flow begins."""
        with self.interrupting():
            self.task = self.stores.tasks.decide(self.lease, chosen)

    def note(self, text: str) -> None:
        """Tell of something that is left to the sweep of leftovers."""
        LOG.warning("task %s (%s): %s", self.task.id, self.task.kind, text)

    # Versions

    def refresh(self, version_id: str) -> IndexedVersion | None:
        """Make the row of a version as its record is, and return it."""
        with self.interrupting():
            return index_refresh.refresh(
                self.stores.versions, self.versions.repository.origin, version_id
            )


def _no_result(step: str) -> Any:
    raise exception.InternalError(f"nobody runs the flow of which {step} is a step")
