"""Schedules of projects with their targets, and their runs.

A run is a row that is unique by schedule, target and slot, written in one transaction with the task
that it starts: neither two schedulers nor a clock that is set back start a slot twice.
"""

import dataclasses
import datetime
import enum
from typing import Protocol

from acstor.versions.database.tasks import KEEP_DAYS, PAGE_MAX, NewTask, Position
from acstor.versions.retention import Policy
from acstor.versions.schedules import Run, Schedule

TARGETS_MAX = 10_000
"""Most targets of one schedule."""


class TargetKind(enum.StrEnum):
    """Kind of a target."""

    SERVER = "server"
    VOLUME = "volume"


class WantedConsistency(enum.StrEnum):
    """Consistency that is asked for."""

    BEST = "best"
    """File systems frozen where the guest's agent answers, else as after a power failure."""
    CRASH = "crash"
    FS = "fs"
    """File systems frozen, or no version."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule of a project."""

    schedule: Schedule
    project: str
    name: str
    """No other schedule of the project has it."""
    keep: Policy
    consistency: WantedConsistency
    is_enabled: bool
    enabled_at: datetime.datetime
    """Moment from which on it counts: it was made, switched on, or given other times then."""
    created_at: datetime.datetime
    updated_at: datetime.datetime
    revision: int
    """Number of its changes."""

    @property
    def id(self) -> str:
        """Its id."""
        return self.schedule.id


@dataclasses.dataclass(frozen=True, slots=True)
class NewSchedule:
    """Request for a schedule."""

    schedule: Schedule
    """With its id, a UUID made by whoever asks."""
    project: str
    name: str
    keep: Policy
    consistency: WantedConsistency = WantedConsistency.BEST
    is_enabled: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Server or volume of a schedule."""

    schedule_id: str
    kind: TargetKind
    id: str
    added_at: datetime.datetime
    last_slot: datetime.datetime | None
    """Moment of the latest slot that was run for it."""


@dataclasses.dataclass(frozen=True, slots=True)
class ScheduleQuery:
    """Page of schedules, by the time of their creation."""

    project: str | None = None
    """None: of all projects."""
    target: str | None = None
    """Only those that have this target."""
    is_descending: bool = False
    limit: int = PAGE_MAX
    after: Position | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DueTarget:
    """Target of a schedule that is switched on."""

    stored: StoredSchedule
    target: Target

    @property
    def since(self) -> datetime.datetime:
        """Moment from which on the schedule counts for the target."""
        return max(self.stored.enabled_at, self.target.added_at)


class ScheduleStore(Protocol):
    """Schedules in the database.

    Every method may raise :class:`~acstor.exception.UnavailableError`, and may be repeated then.
    """

    def create(self, new: NewSchedule) -> StoredSchedule:
        """Make a schedule; repeating it with the same content is safe.

        :raises ConflictError: when the project has another one of that name, or there is one with
            that id.
        """

    def get(self, schedule_id: str, project: str | None = None) -> StoredSchedule:
        """Return a schedule.

        :param project: whose it must be; None: anybody's.
        :raises NotFoundError: when there is none.
        """

    def find_name(self, project: str, name: str) -> StoredSchedule | None:
        """Return the schedule of a project with a name."""

    def page(self, query: ScheduleQuery) -> list[StoredSchedule]:
        """Return a page."""

    def count(self, project: str) -> int:
        """Return the number of a project's schedules."""

    def replace(self, schedule_id: str, revision: int, new: NewSchedule) -> StoredSchedule:
        """Change a schedule.

        :param revision: the one that was read.
        :param new: as it shall be; id and project are as they were.
        :raises NotFoundError: when there is none.
        :raises ConflictError: when somebody changed it meanwhile, or the name is taken.
        """

    def delete(self, schedule_id: str) -> None:
        """Delete a schedule, if there is one; its versions and running tasks stay."""

    def add_target(self, schedule_id: str, kind: TargetKind, target_id: str) -> Target:
        """Add a target; repeating it is safe.

        :raises NotFoundError: when there is no such schedule.
        :raises ExhaustedError: when it has :data:`TARGETS_MAX`.
        """

    def remove_target(self, schedule_id: str, target_id: str) -> None:
        """Remove a target, if it is one."""

    def targets(self, schedule_id: str, after: str | None, limit: int) -> list[Target]:
        """Return a page of the targets, by id."""

    def enabled_targets(self, after: tuple[str, str] | None, limit: int) -> list[DueTarget]:
        """Return a page of the targets of all schedules that are switched on.

        :param after: ids of schedule and target behind which to begin; None: at the first.
        """

    def start_run(self, run: Run, new: NewTask) -> bool:
        """Note a run and queue its task, both or none.

        :returns: False where the run is noted already: its task was queued then.
        """

    def purge_runs(self, keep_days: float = KEEP_DAYS) -> int:
        """Forget runs that are older; return how many. Their slots stay past."""
