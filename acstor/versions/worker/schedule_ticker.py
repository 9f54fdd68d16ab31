"""Turning slots of schedules into tasks.

Nothing here keeps a state: the database knows which slots were run, so the ticker may run beside
another, or be restarted with its clock set back. That only one runs is to save work.
"""

import datetime
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.record import Trigger
from acstor.versions import schedules
from acstor.versions.database.schedule_store import DueTarget, ScheduleStore
from acstor.versions.database.tasks import NewTask, TaskKind
from acstor.versions.lifecycle.own_tasks import OwnTasks
from acstor.versions.schedules import Run

LOG = logging.getLogger(__name__)

PAGE = 500
"""Targets that are read at a time."""


class ScheduleTicker:
    """Starts the runs that are due.

    :param own_tasks: bound on the tasks of a project: a run without room stays due.
    :param now: returns the time.
    """

    def __init__(
        self,
        store: ScheduleStore,
        own_tasks: OwnTasks,
        now: Callable[[], datetime.datetime] = version_refs.utc_now,
    ) -> None:
        """Keep the schedules."""
        self._store = store
        self._own_tasks = own_tasks
        self._full: set[str] = set()  # projects of which the log tells that they have no room
        self._now = now

    def tick(self, is_to_stop: Callable[[], bool] = lambda: False) -> int:
        """Start what is due; return how many runs were started.

        :param is_to_stop: asked between two targets.
        :raises UnavailableError: when the database cannot be reached; the next tick goes on.
        """
        started = 0
        after: tuple[str, str] | None = None
        while page := self._store.enabled_targets(after, PAGE):
            for due in page:
                if is_to_stop():
                    return started
                started += self._start(due)
            after = (page[-1].stored.id, page[-1].target.id)
        return started

    def _start(self, due: DueTarget) -> bool:
        stored, target = due.stored, due.target
        try:
            run = schedules.due_run(
                stored.schedule, target.id, self._now(), due.since, target.last_slot
            )
        except exception.InvalidError as error:
            # The zone is not in this machine's database of zones; others go on.
            LOG.warning("schedule %s: %s", stored.id, exception.one_line(error))
            return False
        if run is None or not self._has_room(stored.project):
            return False
        if not self._store.start_run(run, task_of(due, run)):
            return False
        LOG.info("slot %s of schedule %s runs for %s", run.slot.key, stored.id, target.id)
        return True

    def _has_room(self, project: str) -> bool:
        if self._own_tasks.has_room(project):
            self._full.discard(project)
            return True
        if project not in self._full:
            self._full.add(project)
            LOG.warning(
                "schedules of project %s wait: too many of its tasks have not ended "
                "([worker] own_tasks_max)",
                project,
            )
        return False


def task_of(due: DueTarget, run: Run) -> NewTask:
    """Return the task of a run: the same for everybody who would start it."""
    stored, target = due.stored, due.target
    name = f"run {target.id} {run.slot.key}"
    parameters: Mapping[str, Any] = {
        "kind": target.kind.value,
        "owner": target.id,
        "name": f"{stored.name} {run.slot.key}"[:255],
        "trigger": Trigger.SCHEDULE.value,
        "consistency": stored.consistency.value,
        "schedule": stored.id,
        "slot": run.slot.key,
        "keep": stored.keep.to_fields(),
        "timezone": stored.schedule.timezone,
    }
    return NewTask(
        id=str(uuid.uuid5(uuid.UUID(stored.id), name)),
        project=stored.project,
        kind=TaskKind.CREATE,
        resource=f"{target.kind.value}/{target.id}",
        parameters=parameters,
    )
