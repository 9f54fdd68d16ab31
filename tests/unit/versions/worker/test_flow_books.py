"""Rows of flows: what taskflow's connection to them costs."""

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from taskflow.persistence.backends.impl_memory import MemoryBackend
from taskflow.persistence.backends.sqlalchemy import tables

from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import TaskKind
from acstor.versions.worker.flow_books import FlowBooks
from tests.unit.versions.flows.cloud import SERVER, Cloud, database_backend

TASK = "00000000-0000-0000-0000-000000000007"


def test_tables_are_described_once_for_all_rows_of_a_flow(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each description is one that SQLAlchemy compiles all statements for, again."""
    described: list[Any] = []
    fetch = tables.fetch

    def counted(metadata: Any) -> Any:
        described.append(metadata)
        return fetch(metadata)

    monkeypatch.setattr(tables, "fetch", counted)
    cloud = Cloud(tmp_path, database_backend())
    cloud.captures.devices[SERVER] = ("vda",)
    cloud.ask(TaskKind.CREATE, f"server/{SERVER}", kind="server", owner=SERVER)
    assert cloud.work().state is TaskState.DONE
    assert len(described) == 1


@pytest.mark.parametrize(
    "opened", [lambda: FlowBooks.of_database("sqlite://"), lambda: FlowBooks(MemoryBackend({}))]
)
def test_connection_that_one_has_closed_is_there_for_others(
    opened: Callable[[], FlowBooks],
) -> None:
    books = opened()
    books.upgrade()
    first, second = books.get_connection(), books.get_connection()
    first.close()
    flow = books.open(TASK, 1, "create")
    flow.state = "RUNNING"
    assert second.update_flow_details(flow).state == "RUNNING"
    assert books.open(TASK, 2, "create").state == "RUNNING"
