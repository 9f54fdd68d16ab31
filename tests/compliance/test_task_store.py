"""One suite for stores of tasks."""

import concurrent.futures
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from acstor import exception
from acstor.versions.database.engine import to_ms
from acstor.versions.database.opening import stores_of
from acstor.versions.database.task_states import TaskEvent, TaskState
from acstor.versions.database.tasks import (
    CHOSEN,
    Lease,
    NewTask,
    Position,
    Progress,
    TaskError,
    TaskKind,
    TaskQuery,
    TaskStore,
)
from testbed.doubles.faulty_database import FaultyDatabase, SetClock
from tests.compliance.databases import DATABASES, new_clock

ERROR = TaskError("acstor.unavailable", "host h1 is away", "start it")


def new_task(number: int, **fields: Any) -> NewTask:
    known = {
        "id": str(uuid.UUID(int=number)),
        "project": "p1",
        "kind": TaskKind.CREATE,
        "resource": f"server/{number}",
        "parameters": {"server_id": str(number)},
    }
    return NewTask(**{**known, **fields})


@pytest.fixture
def clock() -> SetClock:
    return new_clock()


@pytest.fixture(params=sorted(DATABASES))
def database(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, clock: SetClock
) -> Iterator[FaultyDatabase]:
    opened = DATABASES[request.param](tmp_path, clock)
    yield opened
    opened.close()


@pytest.fixture
def store(database: FaultyDatabase) -> TaskStore:
    return stores_of(database).tasks


def taken(store: TaskStore, owner: str = "w1") -> Lease:
    found = store.take(owner, 30)
    assert found is not None
    return found[1]


def test_created_task_is_queued(store: TaskStore, clock: SetClock) -> None:
    task = store.create(new_task(1, user="u", request="req-1"))
    assert (task.state, task.epoch, task.owner) == (TaskState.QUEUED, 0, None)
    assert (task.user, task.request) == ("u", "req-1")
    assert task.created_at == task.updated_at == clock.now
    assert store.get(task.id) == store.get(task.id, "p1") == task


def test_creating_twice_makes_one(store: TaskStore) -> None:
    assert store.create(new_task(1)) == store.create(new_task(1))
    with pytest.raises(exception.ConflictError):
        store.create(new_task(1, project="p2"))


def test_task_of_another_project_is_not_found(store: TaskStore) -> None:
    task = store.create(new_task(1))
    with pytest.raises(exception.NotFoundError, match=task.id):
        store.get(task.id, "p2")


def test_oldest_is_taken_first(store: TaskStore, clock: SetClock) -> None:
    for number in (2, 1):
        store.create(new_task(number))
        clock.advance(seconds=1)
    assert [taken(store).task_id[-1] for _ in range(2)] == ["2", "1"]
    assert store.take("w1", 30) is None


def order(store: TaskStore, count: int) -> list[str]:
    """Return the last digits of the ids of tasks as they are taken; none of them ends."""
    return [taken(store).task_id[-3:] for _ in range(count)]


def test_flood_of_a_project_delays_no_other(store: TaskStore, clock: SetClock) -> None:
    for number in range(0x100, 0x130):
        store.create(new_task(number, user="u"))
    clock.advance(hours=1)
    store.create(new_task(0x200, project="p2", user="u"))
    store.create(new_task(0x201, project="p2", user="u"))
    assert order(store, 5) == ["100", "200", "101", "201", "102"]


def test_project_with_the_fewest_tasks_at_work_is_served_first(
    store: TaskStore, clock: SetClock
) -> None:
    for number in range(0x100, 0x106):
        store.create(new_task(number, user="u"))
    leases = [taken(store) for _ in range(3)]
    clock.advance(seconds=1)
    for number in range(0x200, 0x206):
        store.create(new_task(number, project="p2", user="u"))
    assert order(store, 4) == ["200", "201", "202", "103"]
    for lease in leases:
        store.finish(lease, TaskEvent.FINISH)
    assert order(store, 2) == ["104", "105"]


def test_flood_of_a_schedule_delays_no_user_of_its_project(
    store: TaskStore, clock: SetClock
) -> None:
    for number in range(0x100, 0x130):
        store.create(new_task(number))
    clock.advance(hours=1)
    store.create(new_task(0x200, kind=TaskKind.RESTORE, user="u"))
    assert order(store, 3) == ["100", "200", "101"]


def test_flood_upon_one_resource_delays_no_other(store: TaskStore, clock: SetClock) -> None:
    for number in range(0x100, 0x130):
        store.create(new_task(number, resource="server/a", user="u"))
    clock.advance(hours=1)
    store.create(new_task(0x200, user="u"))
    assert order(store, 2) == ["100", "200"]
    assert store.take("w2", 30) is None


def test_worker_that_died_takes_no_turn(store: TaskStore, clock: SetClock) -> None:
    for number in range(0x100, 0x104):
        store.create(new_task(number, user="u"))
    first = [taken(store).task_id for _ in range(3)]
    clock.advance(seconds=30)
    store.create(new_task(0x200, project="p2", user="u"))
    assert order(store, 5) == ["100", "200", "101", "102", "103"]
    assert {store.get(task_id).epoch for task_id in first} == {2}


def test_task_is_not_taken_before_its_time(store: TaskStore, clock: SetClock) -> None:
    at = clock.now
    clock.advance(hours=-1)
    store.create(new_task(1, not_before=at))
    assert store.take("w1", 30) is None
    clock.advance(hours=1)
    assert taken(store).epoch == 1


def test_taken_task_runs_under_its_lease(store: TaskStore) -> None:
    store.create(new_task(1))
    found = store.take("w1", 30)
    assert found is not None
    task, lease = found
    assert (task.state, task.owner, task.epoch) == (TaskState.RUNNING, "w1", 1)
    assert lease == Lease(task.id, "w1", 1)


def test_lease_that_is_over_passes_to_another(store: TaskStore, clock: SetClock) -> None:
    store.create(new_task(1))
    first = taken(store)
    clock.advance(seconds=29)
    assert store.take("w2", 30) is None
    clock.advance(seconds=1)
    second = taken(store, "w2")
    assert second.epoch == 2
    for write in (
        lambda: store.renew(first, 30),
        lambda: store.report(first, Progress(step="late")),
        lambda: store.decide(first, {"method": "late"}),
        lambda: store.start_reverting(first, ERROR),
        lambda: store.finish(first, TaskEvent.FINISH, {}),
    ):
        with pytest.raises(exception.FencedError, match="w2 in epoch 2"):
            write()
    assert store.get(first.task_id).state is TaskState.RUNNING
    store.finish(second, TaskEvent.FINISH, {"version": "v"})


def test_renewed_lease_lasts(store: TaskStore, clock: SetClock) -> None:
    store.create(new_task(1))
    lease = taken(store)
    clock.advance(seconds=20)
    store.renew(lease, 30)
    clock.advance(seconds=20)
    assert store.take("w2", 30) is None


def test_worker_takes_its_own_task_anew_after_a_restart(store: TaskStore, clock: SetClock) -> None:
    store.create(new_task(1))
    taken(store)
    clock.advance(seconds=30)
    assert taken(store).epoch == 2


def test_released_task_is_taken_at_once(store: TaskStore) -> None:
    store.create(new_task(1))
    lease = taken(store)
    store.release(lease)
    assert store.get(lease.task_id).state is TaskState.RUNNING
    assert taken(store, "w2").epoch == 2


def test_released_task_waits_if_told(store: TaskStore, clock: SetClock) -> None:
    store.create(new_task(1))
    store.release(taken(store), delay_seconds=10)
    assert store.take("w2", 30) is None
    clock.advance(seconds=10)
    taken(store, "w2")


def test_one_task_of_a_resource_is_at_work(store: TaskStore, clock: SetClock) -> None:
    store.create(new_task(1, resource="server/a"))
    clock.advance(seconds=1)
    store.create(new_task(2, resource="server/a"))
    clock.advance(seconds=1)
    store.create(new_task(3, resource="server/b"))
    first = taken(store)
    assert taken(store).task_id[-1] == "3"
    assert store.take("w2", 30) is None
    store.start_reverting(first, ERROR)
    assert store.take("w2", 30) is None
    store.finish(first, TaskEvent.FAIL)
    assert taken(store, "w2").task_id[-1] == "2"


def test_finished_task_has_its_result(store: TaskStore, clock: SetClock) -> None:
    store.create(new_task(1))
    lease = taken(store)
    store.report(lease, Progress("capture", 0.5, 10, 20))
    store.report(lease, Progress(share=0.25))
    task = store.get(lease.task_id)
    assert (task.step, task.progress, task.bytes_done, task.bytes_total) == ("capture", 0.5, 10, 20)
    done = store.finish(lease, TaskEvent.FINISH, {"group_id": "g"})
    assert (done.state, done.progress, done.result) == (TaskState.DONE, 1.0, {"group_id": "g"})
    assert done.finished_at == clock.now
    assert store.finish(lease, TaskEvent.FINISH, {"group_id": "g"}) == done
    with pytest.raises(exception.FencedError, match="done"):
        store.start_reverting(lease, ERROR)
    clock.advance(days=1)
    assert store.take("w1", 30) is None


def test_choice_of_a_worker_is_beside_what_was_asked_for(store: TaskStore) -> None:
    asked = store.create(new_task(1))
    lease = taken(store)
    for method in ("rebuild", "in_place"):
        task = store.decide(lease, {"method": method})
        assert task.parameters == {**asked.parameters, CHOSEN: {"method": method}}
        assert store.get(lease.task_id) == task
    assert store.create(new_task(1)) == task, "asked for again"
    store.finish(lease, TaskEvent.FINISH, {})
    with pytest.raises(exception.FencedError, match="done"):
        store.decide(lease, {"method": "rebuild"})
    assert store.get(lease.task_id).parameters == task.parameters


def test_failed_task_keeps_its_first_error(store: TaskStore) -> None:
    store.create(new_task(1))
    lease = taken(store)
    assert store.start_reverting(lease, ERROR).state is TaskState.REVERTING
    assert store.start_reverting(lease, ERROR).state is TaskState.REVERTING
    failed = store.finish(lease, TaskEvent.FAIL)
    assert (failed.state, failed.error) == (TaskState.FAILED, ERROR)


def test_task_that_cannot_begin_fails(store: TaskStore) -> None:
    store.create(new_task(1))
    failed = store.finish(taken(store), TaskEvent.FAIL, error=ERROR)
    assert (failed.state, failed.error) == (TaskState.FAILED, ERROR)


def test_reverting_task_is_gone_on_with(store: TaskStore, clock: SetClock) -> None:
    store.create(new_task(1))
    store.start_reverting(taken(store), None)
    clock.advance(minutes=1)
    found = store.take("w2", 30)
    assert found is not None
    assert found[0].state is TaskState.REVERTING
    assert store.finish(found[1], TaskEvent.WITHDRAW).state is TaskState.CANCELLED


def test_queued_task_is_cancelled_at_once(store: TaskStore) -> None:
    task = store.cancel(store.create(new_task(1)).id)
    assert (task.state, task.finished_at is None) == (TaskState.CANCELLED, False)
    assert store.take("w1", 30) is None


def test_running_task_is_told_that_it_is_cancelled(store: TaskStore) -> None:
    store.create(new_task(1))
    lease = taken(store)
    assert store.cancel(lease.task_id).state is TaskState.RUNNING
    assert store.renew(lease, 30).is_cancelled
    store.finish(lease, TaskEvent.FINISH)
    assert store.cancel(lease.task_id).state is TaskState.DONE
    with pytest.raises(exception.NotFoundError):
        store.cancel(str(uuid.UUID(int=9)))


def test_unfinished_tasks_are_counted(store: TaskStore) -> None:
    for number in range(4):
        store.create(new_task(number, user="u"))
    store.create(new_task(4))
    store.create(new_task(5, project="p2", user="u"))
    store.cancel(new_task(3).id)
    store.finish(taken(store), TaskEvent.FINISH)
    store.start_reverting(taken(store), ERROR)
    assert store.unfinished("p1", are_asked_for=True) == 2
    assert store.unfinished("p1", are_asked_for=False) == 1
    assert store.unfinished("p3", are_asked_for=True) == 0


def test_forgotten_task_is_as_if_nobody_had_asked(store: TaskStore) -> None:
    task = store.create(new_task(1))
    for _ in range(2):
        store.forget(task.id)
        with pytest.raises(exception.NotFoundError):
            store.get(task.id)
    assert store.create(new_task(1)).state is TaskState.QUEUED


def test_task_that_was_taken_is_cancelled_and_not_forgotten(store: TaskStore) -> None:
    store.create(new_task(1))
    lease = taken(store)
    store.forget(lease.task_id)
    assert store.renew(lease, 30).is_cancelled


def test_pages_go_on_behind_a_row_that_is_gone(store: TaskStore, clock: SetClock) -> None:
    for number in range(5):
        store.create(new_task(number, project="p1" if number % 2 else "p2"))
        clock.advance(seconds=1)
    page = store.page(TaskQuery(limit=2))
    assert [task.id[-1] for task in page] == ["4", "3"]
    after = Position(to_ms(page[-1].created_at), page[-1].id)
    assert [task.id[-1] for task in store.page(TaskQuery(after=after))] == ["2", "1", "0"]
    ascending = store.page(TaskQuery(after=after, is_descending=False))
    assert [task.id[-1] for task in ascending] == ["4"]
    assert [task.id[-1] for task in store.page(TaskQuery(project="p1"))] == ["3", "1"]
    queued = TaskQuery(states=frozenset({TaskState.QUEUED}), resource="server/2")
    assert [task.id[-1] for task in store.page(queued)] == ["2"]
    assert store.page(TaskQuery(kinds=frozenset({TaskKind.RESTORE}))) == []
    with pytest.raises(exception.InvalidError, match="limit 0"):
        store.page(TaskQuery(limit=0))


def test_ended_tasks_are_kept_for_a_while(store: TaskStore, clock: SetClock) -> None:
    for number in range(3):
        store.create(new_task(number))
    store.cancel(new_task(0).id)
    clock.advance(days=20)
    store.cancel(new_task(1).id)
    clock.advance(days=11)
    store.purge()
    assert {task.id[-1] for task in store.page(TaskQuery())} == {"1", "2"}


def test_nonsense_is_refused(store: TaskStore) -> None:
    with pytest.raises(exception.InvalidError, match="resource"):
        store.create(new_task(1, resource=""))
    with pytest.raises(exception.InvalidError, match="no JSON"):
        store.create(new_task(1, parameters={"a": object()}))
    with pytest.raises(exception.InvalidError, match="longer"):
        store.create(new_task(1, parameters={"a": "x" * 70_000}))


def test_two_workers_never_have_the_same_task(tmp_path: pathlib.Path) -> None:
    clock = new_clock()
    stores = [stores_of(DATABASES["file"](tmp_path, clock)).tasks for _ in range(2)]
    for number in range(20):
        stores[0].create(new_task(number, resource=f"server/{number % 10}"))

    def work(number: int) -> list[Lease]:
        found = []
        while (one := stores[number].take(f"w{number}", 30)) is not None:
            found.append(one[1])
        return found

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        leases = [lease for found in pool.map(work, range(2)) for lease in found]
    assert len(leases) == len({lease.task_id for lease in leases}) == 10
    assert {lease.epoch for lease in leases} == {1}
