"""Waiting for tasks, without a clock."""

from collections.abc import Iterator
from typing import Any

import pytest
from keystoneauth1 import exceptions as keystone_exceptions
from openstack import exceptions

from acstorclient import exception
from acstorclient.osc.progress import CLEAR, Progress
from acstorclient.task_wait import Pace, TaskWait
from acstorclient.v1.task import Task


def task(state: str, **fields: Any) -> Task:
    """Return a task of a state."""
    return Task.existing(id="t", kind="restore", state=state, **fields)


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Pause."""
        self.pauses.append(seconds)
        self.now += seconds

    def read(self) -> float:
        """Return the time."""
        return self.now


class Tasks:
    """Answers to the questions for a task, one after the other; the last one stays."""

    def __init__(self, *answers: Task | Exception) -> None:
        self._answers = list(answers)

    def fetch(self, task_id: str) -> Task:
        """Return the next one."""
        assert task_id == "t"
        answer = self._answers[0]
        if len(self._answers) > 1:
            del self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def wait(tasks: Tasks, clock: Clock, **settings: object) -> TaskWait:
    """Return a wait on that clock."""
    pace = Pace(jitter=0, failures_max=2)
    return TaskWait(tasks.fetch, pace=pace, sleep=clock.sleep, clock=clock.read, **settings)  # type: ignore[arg-type]


def test_distances_grow_to_a_bound() -> None:
    clock = Clock()
    tasks = Tasks(*[task("running")] * 9, task("done"))
    assert wait(tasks, clock).until_done(task("queued")).state == "done"
    assert clock.pauses[:3] == [0.5, 0.75, 1.125]
    assert clock.pauses[-1] == 5.0


def test_distances_have_jitter() -> None:
    pace = Pace()
    assert len({pace.spread(1.0) for _ in range(9)}) > 1
    assert all(0.8 <= pace.spread(1.0) <= 1.2 for _ in range(99))


def test_one_that_is_done_is_not_waited_for() -> None:
    clock = Clock()
    assert wait(Tasks(), clock).until_done(task("done")).state == "done"
    assert clock.pauses == []


def test_the_time_is_over_when_it_is() -> None:
    clock = Clock()
    with pytest.raises(exception.TaskTimeout, match="running after 7 s of waiting; it goes on"):
        wait(Tasks(task("running")), clock, seconds=7).until_done(task("queued"))
    assert clock.now == pytest.approx(7)
    assert issubclass(exception.TaskTimeout, exceptions.ResourceTimeout)


def test_a_failure_has_code_and_hint() -> None:
    error = {"code": "acstor.x", "detail": "it broke", "hint": "mend it"}
    with pytest.raises(exception.TaskFailed) as caught:
        wait(Tasks(task("failed", error=error)), Clock()).until_done(task("queued"))
    assert str(caught.value) == "Task t (restore) failed: it broke (acstor.x)\nHint: mend it"
    assert caught.value.explanation.code == "acstor.x"


def test_a_cancelled_one_is_no_success() -> None:
    with pytest.raises(exception.TaskCancelled):
        wait(Tasks(task("reverting"), task("cancelled")), Clock()).until_done(task("running"))


@pytest.mark.parametrize(
    "error",
    [keystone_exceptions.ConnectFailure("no route"), exceptions.HttpException(http_status=503)],
)
def test_an_api_that_restarts_loses_nobody(error: Exception) -> None:
    tasks = Tasks(error, error, task("running"), error, error, task("done"))
    assert wait(tasks, Clock()).until_done(task("queued")).state == "done"


def test_an_api_that_stays_away_does() -> None:
    with pytest.raises(keystone_exceptions.ConnectFailure):
        wait(Tasks(keystone_exceptions.ConnectFailure("no route")), Clock()).until_done(
            task("queued")
        )


def test_a_task_that_nobody_knows_is_not_asked_for_again() -> None:
    clock = Clock()
    with pytest.raises(exceptions.HttpException):
        wait(Tasks(exceptions.HttpException(http_status=404)), clock).until_done(task("queued"))
    assert len(clock.pauses) == 1


class Terminal:
    """Standard error, or something else that is written to."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.written: list[str] = []
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._is_terminal

    def write(self, text: str) -> int:
        """Write."""
        self.written.append(text)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


def shown(*, is_terminal: bool) -> Iterator[str]:
    """Return the progress of a task, step by step."""
    terminal = Terminal(is_terminal=is_terminal)
    with Progress(terminal) as progress:  # type: ignore[arg-type]
        progress.show_task(task("queued"))
        for part in (0.5, 0.5, 7.0):
            fields = {"step": "commit", "progress": part, "bytes_done": 1024, "bytes_total": 2048}
            progress.show_task(task("running", **fields))
        progress.show_bytes(3, None)
    return iter(terminal.written)


def test_progress_is_one_line_on_a_terminal() -> None:
    assert list(shown(is_terminal=True)) == [
        f"{CLEAR}restore queued",
        f"{CLEAR}[{'#' * 15}{'.' * 15}]  50 % restore running commit, 1.0 KiB of 2.0 KiB",
        f"{CLEAR}[{'#' * 30}] 100 % restore running commit, 1.0 KiB of 2.0 KiB",
        f"{CLEAR}download",
        CLEAR,
    ]


def test_there_is_no_progress_in_a_file() -> None:
    assert list(shown(is_terminal=False)) == []
