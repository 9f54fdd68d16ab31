"""Waiting for the end of a task."""

import dataclasses
import random
import time
from collections.abc import Callable

from keystoneauth1 import exceptions as keystone_exceptions
from openstack import exceptions

from acstorclient.exception import TaskCancelled, TaskFailed, TaskTimeout
from acstorclient.v1.task import Task, TaskState

Observer = Callable[[Task], None]
"""Called with a task each time it was asked for."""


@dataclasses.dataclass(frozen=True)
class Pace:
    """Distances of the questions for a task, and the patience with failing ones."""

    first_seconds: float = 0.5
    factor: float = 1.5
    longest_seconds: float = 5.0
    jitter: float = 0.2
    """Part of a distance by which it is longer or shorter at random."""
    failures_max: int = 10
    """Most questions in a row that may fail: an API that restarts loses nobody."""

    def after(self, seconds: float) -> float:
        """Return the distance after one of so many seconds."""
        return min(seconds * self.factor, self.longest_seconds)

    def spread(self, seconds: float) -> float:
        """Return a distance with its jitter."""
        return seconds * random.uniform(1 - self.jitter, 1 + self.jitter)


class TaskWait:
    """Asks for a task until it has ended.

    :param fetch: returns the present task of an id.
    :param seconds: longest wait; 0: without limit, as each task ends some time.
    """

    def __init__(
        self,
        fetch: Callable[[str], Task],
        *,
        seconds: float = 0,
        observe: Observer | None = None,
        pace: Pace | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._seconds = seconds
        self._observe = observe or (lambda task: None)
        self._pace = pace or Pace()
        self._sleep = sleep
        self._clock = clock

    def until_done(self, task: Task) -> Task:
        """Return a task when it is done.

        :raises TaskFailed: with the code and hint of the task.
        :raises TaskCancelled: somebody has cancelled it.
        :raises TaskTimeout: the time is over; the task goes on.
        """
        deadline = self._clock() + self._seconds if self._seconds else None
        distance = self._pace.first_seconds
        failures = 0
        self._observe(task)
        while not task.is_ended:
            pause = self._pace.spread(distance)
            if deadline is not None:
                left = deadline - self._clock()
                if left <= 0:
                    raise TaskTimeout(_timeout_text(task, self._seconds))
                pause = min(pause, left)
            self._sleep(pause)
            distance = self._pace.after(distance)
            try:
                task = self._fetch(task.id)
            except (keystone_exceptions.ConnectFailure, exceptions.HttpException) as error:
                failures += 1
                if failures > self._pace.failures_max or not _is_passing(error):
                    raise
                continue
            failures = 0
            self._observe(task)
        return _done(task)


def _is_passing(error: Exception) -> bool:
    status = getattr(error, "status_code", None)
    return status is None or status in (429, 502, 503, 504)


def _timeout_text(task: Task, seconds: float) -> str:
    return (
        f"Task {task.id} ({task.kind}) is {task.state} after {seconds:g} s of waiting; it goes on\n"
        f"Hint: openstack acstor task show {task.id}"
    )


def _done(task: Task) -> Task:
    match task.state:
        case TaskState.FAILED:
            raise TaskFailed(task.id, task.kind, task.explanation)
        case TaskState.CANCELLED:
            raise TaskCancelled(f"Task {task.id} ({task.kind}) was cancelled")
        case _:
            return task
