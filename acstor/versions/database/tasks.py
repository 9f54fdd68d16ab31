"""Tasks: long work that somebody asked for, and that outlives whoever does it.

A worker takes a task by a lease that it renews. Each taking raises the task's *epoch*, which goes
with every call to a host and every write that the work makes: of two workers that both believe in
their lease, the one with the smaller epoch is refused, here and there.
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Any, Protocol

from acstor import exception
from acstor.versions.database.task_states import FINISHED, TaskEvent, TaskState

PAGE_MAX = 1000
"""Most rows of one page."""
KEEP_DAYS = 30
"""Days for which ended tasks, and the runs of schedules, are kept."""
CHOSEN = "chosen"
"""Name of the parameter that a worker adds: what it has decided, before its flow begins."""
MESSAGE_LENGTH_MAX = 2000
"""Longest text of an error, characters."""


class TaskKind(enum.StrEnum):
    """Kind of a task: the flow that does it."""

    CREATE = "create"
    """Take versions of the disks of a server, or of a volume."""
    DELETE = "delete"
    RESTORE = "restore"
    """Put a version, or all of a group, back in place."""
    IMAGE = "image"
    """Make the image of Glance that servers boot a version from."""
    IMAGE_REMOVE = "image_remove"
    EXPORT = "export"
    """Make an image of Glance with its own bytes of a version."""
    EXPIRE = "expire"
    """Apply a retention policy to the versions of one disk owner."""
    PRELOAD = "preload"
    """Bring an image to hosts before anybody boots it."""


@dataclasses.dataclass(frozen=True, slots=True)
class TaskError:
    """Reason for which a task failed."""

    code: str
    """For programs; it never changes: ``acstor.version.not_committed``."""
    message: str
    hint: str

    def to_fields(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, error: BaseException, code: str | None = None) -> "TaskError":
        """Return an error as a task shows it.

        :param code: None: that of the error's ``code``, or of its kind.
        """
        if isinstance(error, exception.AcstorError):
            default = f"acstor.{error.kind.value}"
            message, hint = error.message, error.hint
        else:
            default = "acstor.internal"
            message = f"a fault of ACStor: {type(error).__name__}"
            hint = "report it with the log of acstor-worker"
        found = code or getattr(error, "code", None) or default
        return cls(str(found), " ".join(message.split())[:MESSAGE_LENGTH_MAX], hint)


@dataclasses.dataclass(frozen=True, slots=True)
class NewTask:
    """Request for a task."""

    id: str
    """UUID, made by whoever asks: so asking twice makes one task."""
    project: str
    kind: TaskKind
    resource: str
    """Name of what it works on, for example ``server/<uuid>``: at most one task of a resource is at
    work at a time, the others wait."""
    parameters: Mapping[str, Any]
    """Small JSON."""
    user: str | None = None
    """Id of the user who asks; None: ACStor does."""
    request: str | None = None
    """Id of the request to the API."""
    not_before: datetime.datetime | None = None
    """Moment before which no worker takes it; None: it is due."""


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A task as it is."""

    id: str
    project: str
    user: str | None
    request: str | None
    kind: TaskKind
    state: TaskState
    resource: str
    parameters: Mapping[str, Any]
    step: str
    """Name of the step it is at; empty before the first."""
    progress: float
    """Share that is done, 0 to 1."""
    bytes_done: int
    bytes_total: int | None
    """None: not known yet."""
    result: Mapping[str, Any] | None
    error: TaskError | None
    is_cancelled: bool
    """True if somebody has asked for its end."""
    created_at: datetime.datetime
    updated_at: datetime.datetime
    finished_at: datetime.datetime | None
    owner: str | None
    """Worker that has its lease."""
    epoch: int
    """Times that it was taken."""

    @property
    def is_finished(self) -> bool:
        """True if it does not change any more."""
        return self.state in FINISHED


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """Right of a worker to do a task, until it ends or somebody takes it anew."""

    task_id: str
    owner: str
    """Name of the worker, no other process's."""
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a task; None: as it is."""

    step: str | None = None
    share: float | None = None
    """Share that is done, 0 to 1; what is shown never goes back."""
    bytes_done: int | None = None
    bytes_total: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """Place in a list, behind which a page begins."""

    value: int | str
    """Value of the column that the list is sorted by."""
    id: str


@dataclasses.dataclass(frozen=True, slots=True)
class TaskQuery:
    """Page of tasks, by the time of their creation."""

    project: str | None = None
    """None: of all projects."""
    states: frozenset[TaskState] = frozenset()
    """Empty: all."""
    kinds: frozenset[TaskKind] = frozenset()
    """Empty: all."""
    resource: str | None = None
    is_descending: bool = True
    limit: int = PAGE_MAX
    after: Position | None = None


class TaskStore(Protocol):
    """Tasks in the database.

    Every method may raise :class:`~acstor.exception.UnavailableError`, and may be repeated then.
    """

    def create(self, new: NewTask) -> Task:
        """Queue a task; repeating it with the same content is safe.

        :raises ConflictError: when there is another task with that id.
        """

    def get(self, task_id: str, project: str | None = None) -> Task:
        """Return a task.

        :param project: whose it must be; None: anybody's.
        :raises NotFoundError: when there is none.
        """

    def page(self, query: TaskQuery) -> list[Task]:
        """Return a page of tasks."""

    def unfinished(self, project: str, *, are_asked_for: bool) -> int:
        """Return how many tasks of a project have not ended.

        :param are_asked_for: those that users ask for; else those of ACStor itself.
        """

    def forget(self, task_id: str) -> None:
        """Forget a task as if nobody had asked for it; one that was taken is cancelled.

        Repeating it is safe, and so is one that there is none of.
        """

    def cancel(self, task_id: str) -> Task:
        """Cancel a task: one that is queued ends, one that runs is told; others stay as they are.

        :raises NotFoundError: when there is none.
        """

    def take(self, owner: str, lease_seconds: float) -> tuple[Task, Lease] | None:
        """Take the lease of the task whose turn it is; None: none is due.

        Projects take turns: the one with the fewest tasks at work comes first, what its users ask
        for apart from what ACStor does by itself. Within a turn the oldest task comes first.

        :param owner: no other process's; it does not call this twice at the same time.
        """

    def renew(self, lease: Lease, lease_seconds: float) -> Task:
        """Make a lease last longer, and return the task.

        :raises FencedError: when the task has ended or was taken anew.
        """

    def release(self, lease: Lease, delay_seconds: float = 0.0) -> None:
        """Give a lease back before its end, so that another worker goes on.

        :param delay_seconds: before which nobody takes it.
        """

    def report(self, lease: Lease, progress: Progress) -> None:
        """Note the progress.

        :raises FencedError: when the task has ended or was taken anew.
        """

    def decide(self, lease: Lease, chosen: Mapping[str, Any]) -> Task:
        """Note what was left to the worker, as the parameter :data:`CHOSEN`; repeating it is safe.

        :param chosen: small JSON, in place of what was decided before.
        :raises FencedError: when the task has ended or was taken anew.
        """

    def start_reverting(self, lease: Lease, error: TaskError | None) -> Task:
        """Note that undoing begins; repeating it is safe.

        :param error: the reason; None: it was cancelled.
        :raises FencedError: when the task has ended or was taken anew.
        """

    def finish(
        self,
        lease: Lease,
        event: TaskEvent,
        result: Mapping[str, Any] | None = None,
        error: TaskError | None = None,
    ) -> Task:
        """End a task; repeating it is safe.

        :param error: None of a failure: the one with which undoing began.
        :raises FencedError: when it has ended otherwise or was taken anew.
        """

    def purge(self, keep_days: float = KEEP_DAYS) -> int:
        """Forget tasks that ended longer ago; return how many."""
