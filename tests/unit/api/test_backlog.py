"""Unfinished tasks of a project: as many as it may have, whoever asks at the same time."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy

from acstor.versions.database.tables import KEYS, TASKS
from acstor.versions.database.task_states import TaskEvent
from acstor.versions.database.tasks import NewTask, Task, TaskKind, TaskQuery
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import SERVER, VOLUME, Setting

BODY = {"version": {"server_id": SERVER}}


def bounded(api: Setting, most: int, **fields: Any) -> TestCaller:
    """Return a member whose project has at most so many unfinished tasks."""
    return api.caller_of(dataclasses.replace(api.backends, unfinished_tasks_max=most, **fields))


def rows(api: Setting) -> int:
    """Return how many rows the tables of tasks and keys have."""
    counts = [sqlalchemy.select(sqlalchemy.func.count()).select_from(one) for one in (TASKS, KEYS)]
    return api.database.read(
        lambda connection: sum(int(connection.execute(each).scalar_one()) for each in counts)
    )


def own_task(api: Setting, number: int) -> NewTask:
    """Return a task that ACStor itself queues for the project."""
    return NewTask(str(number), api.project, TaskKind.EXPIRE, f"server/{number}", {})


def test_more_tasks_than_the_most_are_refused_and_leave_nothing(api: Setting) -> None:
    caller = bounded(api, 2)
    assert [caller.ask("POST", "/v1/versions", BODY).status_code for _ in range(2)] == [202, 202]
    known = rows(api)
    for number in range(3):
        answer = caller.ask("POST", "/v1/versions", BODY, {"Idempotency-Key": f"k{number}"})
        assert answer.status_code == 429
        assert answer.headers["Retry-After"] == "30"
        error = first_error(answer)
        assert error["code"] == "acstor.tasks.too_many"
        assert "2 tasks that have not ended" in error["detail"]
        assert "task list" in error["hint"]
    assert rows(api) == known


def test_restores_count_with_versions(api: Setting) -> None:
    caller = bounded(api, 1)
    version = api.add_version()
    assert caller.ask("POST", "/v1/versions", BODY).status_code == 202
    wanted = {"restore": {"version_id": version, "volume_id": VOLUME}}
    assert caller.ask("POST", "/v1/restores", wanted).status_code == 429


@pytest.mark.parametrize("end", ["cancelled", "done"])
def test_task_that_ended_makes_room(api: Setting, end: str) -> None:
    caller = bounded(api, 1)
    task_id = caller.ask("POST", "/v1/versions", BODY).json["task"]["id"]
    if end == "cancelled":
        caller.ask("DELETE", f"/v1/tasks/{task_id}")
    else:
        _, lease = api.stores.tasks.take("w1", 60.0) or (None, None)
        assert lease is not None
        assert caller.ask("POST", "/v1/versions", BODY).status_code == 429
        api.stores.tasks.finish(lease, TaskEvent.FINISH)
    assert caller.ask("POST", "/v1/versions", BODY).status_code == 202


def test_repeated_request_finds_its_task_where_there_is_no_room(api: Setting) -> None:
    caller, key = bounded(api, 1), {"Idempotency-Key": "k1"}
    first = caller.ask("POST", "/v1/versions", BODY, key)
    again = caller.ask("POST", "/v1/versions", BODY, key)
    assert (again.status_code, again.json) == (202, first.json)
    other = caller.ask("POST", "/v1/versions", {"version": {"volume_id": VOLUME}}, key)
    assert other.status_code == 409


def test_refused_request_is_repeated_with_its_key(api: Setting) -> None:
    caller, key = bounded(api, 1), {"Idempotency-Key": "k1"}
    task_id = caller.ask("POST", "/v1/versions", BODY).json["task"]["id"]
    assert caller.ask("POST", "/v1/versions", BODY, key).status_code == 429
    caller.ask("DELETE", f"/v1/tasks/{task_id}")
    assert caller.ask("POST", "/v1/versions", BODY, key).status_code == 202


def test_tasks_of_acstor_and_of_others_take_no_place(api: Setting) -> None:
    for number in range(3):
        api.stores.tasks.create(own_task(api, number))
        theirs = dataclasses.replace(own_task(api, number + 10), project="p2", user="u")
        api.stores.tasks.create(theirs)
    assert bounded(api, 1).ask("POST", "/v1/versions", BODY).status_code == 202


def test_workers_are_told_of_what_is_queued_and_of_nothing_else(api: Setting) -> None:
    told: list[int] = []

    def announce() -> None:
        told.append(len(api.stores.tasks.page(TaskQuery())))

    caller, key = bounded(api, 1, announce_task=announce), {"Idempotency-Key": "k1"}
    assert caller.ask("POST", "/v1/versions", BODY, key).status_code == 202
    assert told == [1]
    caller.ask("POST", "/v1/versions", BODY, key)
    caller.ask("POST", "/v1/versions", BODY)
    assert told == [1]


def test_zero_bounds_nothing(api: Setting) -> None:
    caller = bounded(api, 0)
    assert {caller.ask("POST", "/v1/versions", BODY).status_code for _ in range(5)} == {202}


class Overtaken:
    """Store of tasks in which somebody else's task is queued right before ours."""

    def __init__(self, tasks: Any, overtake: Callable[[], None]) -> None:
        self._tasks = tasks
        self._overtake = overtake

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tasks, name)

    def create(self, new: NewTask) -> Task:
        """Queue one, and another before it."""
        self._overtake()
        created: Task = self._tasks.create(new)
        return created


def test_two_at_the_same_time_do_not_both_get_the_last_place(api: Setting) -> None:
    first = bounded(api, 1)
    answers = []

    def overtake() -> None:
        answers.append(first.ask("POST", "/v1/versions", BODY))

    tasks = Overtaken(api.stores.tasks, overtake)
    late = bounded(api, 1, stores=dataclasses.replace(api.stores, tasks=tasks))
    key = {"Idempotency-Key": "k1"}
    assert late.ask("POST", "/v1/versions", BODY, key).status_code == 429
    assert [answer.status_code for answer in answers] == [202]
    (left,) = api.stores.tasks.page(TaskQuery())
    assert left.id == answers[0].json["task"]["id"]
    api.stores.tasks.cancel(left.id)
    assert first.ask("POST", "/v1/versions", BODY, key).status_code == 202
