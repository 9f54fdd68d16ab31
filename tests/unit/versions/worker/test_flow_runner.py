"""Ends of flows that go wrong in ways that no step is made for."""

import pathlib
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from acstor import exception
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import TaskKind
from acstor.versions.flows.step import Step
from acstor.versions.flows.work import Interrupted, Work
from acstor.versions.worker import flow_runner
from tests.unit.versions.flows.cloud import Cloud, Killed, KillSwitch, database_backend

DONE: list[str] = []
"""Steps of these tests, as they were done."""
FAULTS: dict[str, Callable[[], None]] = {}
"""Faults, by the step that they are in."""


def note(what: str) -> None:
    DONE.append(what)
    FAULTS.get(what, lambda: None)()


class First(Step):
    step: ClassVar[str] = "first"

    def act(self, work: Work) -> Any:
        note("first")
        return {"pair": (1, 2)}

    def undo(self, work: Work) -> None:
        note("undo first")


class Second(Step):
    step: ClassVar[str] = "second"

    def act(self, work: Work) -> Any:
        note("second")
        return work.result_of("first")

    def undo(self, work: Work) -> None:
        note("undo second")


class Finish(Step):
    step: ClassVar[str] = "finish"

    def act(self, work: Work) -> Any:
        note("finish")
        return work.result_of("second")


def steps() -> list[Step]:
    return [First(), Second(), Finish()]


@pytest.fixture
def cloud(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    DONE.clear()
    FAULTS.clear()
    monkeypatch.setattr(
        flow_runner.FlowRunner.__init__, "__defaults__", ({TaskKind.CREATE: f"{__name__}.steps"},)
    )
    found = Cloud(tmp_path, database_backend())
    found.ask(TaskKind.CREATE, "server/x")
    return found


def raises(error: BaseException) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


def test_steps_come_one_after_the_other(cloud: Cloud) -> None:
    task = cloud.work()
    assert DONE == ["first", "second", "finish"]
    assert (task.state, task.step) == (TaskState.DONE, "finish")
    assert task.result == {"pair": [1, 2]}


def test_failure_undoes_from_the_last_to_the_first(cloud: Cloud) -> None:
    FAULTS["finish"] = raises(exception.ExhaustedError("full", hint="make room"))
    task = cloud.work()
    assert DONE == ["first", "second", "finish", "undo second", "undo first"]
    assert task.state is TaskState.FAILED
    assert task.error is not None
    assert (task.error.code, task.error.hint) == ("acstor.exhausted", "make room")


def test_fault_of_the_program_is_an_end_too(cloud: Cloud) -> None:
    FAULTS["second"] = raises(KeyError("secret"))
    task = cloud.work()
    assert task.error is not None
    assert task.error.code == "acstor.internal"
    assert "secret" not in task.error.message
    assert DONE[-1] == "undo first"


def test_undoing_that_fails_stops_no_other(cloud: Cloud) -> None:
    FAULTS["finish"] = raises(exception.InvalidError("no"))
    FAULTS["undo second"] = raises(ValueError("undo"))
    task = cloud.work()
    assert DONE[-2:] == ["undo second", "undo first"]
    assert task.state is TaskState.FAILED
    assert cloud.books_left() == 0


def test_interrupted_flow_goes_on_where_it_was(cloud: Cloud) -> None:
    FAULTS["second"] = raises(Interrupted())
    with pytest.raises(Interrupted):
        cloud.work()
    assert cloud.task().state is TaskState.RUNNING
    del FAULTS["second"]
    cloud.clock.advance(minutes=1)
    assert cloud.work().state is TaskState.DONE
    assert DONE == ["first", "second", "second", "finish"]


def test_undoing_goes_on_after_a_death(cloud: Cloud) -> None:
    FAULTS["finish"] = raises(exception.InvalidError("no"))
    FAULTS["undo second"] = raises(Killed())
    with pytest.raises(Killed):
        cloud.work()
    assert cloud.task().state is TaskState.REVERTING
    del FAULTS["undo second"]
    cloud.clock.advance(minutes=5)
    assert cloud.work().state is TaskState.FAILED
    assert DONE[-2:] == ["undo second", "undo first"]
    assert DONE.count("finish") == 1


def test_task_that_kills_its_workers_fails(cloud: Cloud) -> None:
    FAULTS["second"] = raises(Killed())
    task = cloud.work_on()
    assert task.state is TaskState.FAILED
    assert task.epoch == flow_runner.TAKES_MAX + 1
    assert task.error is not None
    assert task.error.code == "acstor.task.workers_died"
    assert DONE[-1] == "undo first"


def test_task_whose_undoing_kills_ends(cloud: Cloud) -> None:
    FAULTS["second"] = FAULTS["undo first"] = raises(Killed())
    task = cloud.work_on()
    assert task.state is TaskState.FAILED
    assert task.epoch == flow_runner.REVERT_TAKES_MAX + 1
    assert cloud.books_left() == 0


def test_unknown_kind_ends_with_the_reason(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_runner.FlowRunner.__init__, "__defaults__", ({},))
    task = cloud.work()
    assert task.error is not None
    assert task.error.code == "acstor.unsupported"


def test_rows_that_cannot_be_written_interrupt(cloud: Cloud) -> None:
    """The engine would mark the flow as failed, with nothing undone."""
    found = cloud.books.get_connection

    def away() -> Any:
        connection = found()
        inner = connection._inner
        inner._inner = _Away()
        return connection

    cloud.books.get_connection = away  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        cloud.work()
    cloud.books.get_connection = found  # type: ignore[method-assign]
    cloud.clock.advance(minutes=1)
    assert cloud.work().state is TaskState.DONE
    assert DONE == ["first", "second", "finish"]


class _Away:
    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            if name != "close":
                raise OSError("the database is away")

        return call


def test_switch_counts(cloud: Cloud) -> None:
    assert isinstance(cloud.switch, KillSwitch)
    cloud.work()
    assert cloud.switch.calls > 5
