"""Bound on the tasks that ACStor itself queues for a project: of schedules, and at events.

Apart from that of its users, whom no schedule keeps from asking. It is a bound on rows, looked at
before a task is queued: two services at the same time may pass it by a task each.
"""

from acstor.versions.database.tasks import TaskStore

EVENTS_SHARE = 2
"""Times the bound up to which events are taken: nothing makes up for one, as the next tick does for
a slot."""


class OwnTasks:
    """Tasks of ACStor itself that have not ended.

    :param most: of one project; 0: without end.
    """

    def __init__(self, tasks: TaskStore, most: int) -> None:
        """Keep the tasks."""
        self._tasks = tasks
        self._most = most

    def has_room(self, project: str, share: int = 1) -> bool:
        """Return whether a project may have one more.

        :param share: times the bound up to which it may.
        :raises UnavailableError: when the database cannot be reached.
        """
        if not self._most:
            return True
        return self._tasks.unfinished(project, are_asked_for=False) < share * self._most
