"""A worker as the configuration puts it together, and what it misses."""

import contextlib
import pathlib
import threading

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.conf import loading
from acstor.rpc.worker_wake import TaskAnnouncements
from acstor.versions.database import opening, schema
from acstor.versions.worker import assembly
from acstor.versions.worker.metrics import WorkerMetrics
from acstor.versions.worker.service import WorkerService
from testbed.fixtures.conditions import wait_for

CONTENT = """\
[DEFAULT]
host = c1
transport_url = fake:/
[database]
connection = sqlite:///{folder}/acstor.sqlite
[worker]
flow_connection = sqlite:///{folder}/flows.sqlite
nova_notification_topics = versioned_notifications
[coordination]
backend_url = file://{folder}/coordination
[origin]
url = file://{folder}/origin
[keystone]
auth_type = password
auth_url = http://192.0.2.1/v3
username = acstor
password = secret
"""


def load(folder: pathlib.Path, content: str = CONTENT) -> cfg.ConfigOpts:
    path = folder / "acstor.conf"
    path.write_text(content.format(folder=folder))
    return loading.load("acstor-test", ["--config-file", str(path)])


def test_worker_is_put_together(tmp_path: pathlib.Path) -> None:
    conf = load(tmp_path)
    schema.upgrade(opening.open_database(conf))
    with contextlib.closing(assembly.open_books(conf)) as books:
        books.upgrade()
    with assembly.open_service(conf, WorkerMetrics()) as service:
        assert service.name.startswith("c1/")
        assert service.is_healthy()


def test_worker_that_is_told_of_a_task_looks_at_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = load(tmp_path, CONTENT.replace("fake:/", "kombu+memory:////"))
    schema.upgrade(opening.open_database(conf))
    with contextlib.closing(assembly.open_books(conf)) as books:
        books.upgrade()
    told = threading.Event()
    monkeypatch.setattr(WorkerService, "reconcile_soon", lambda service: told.set())
    tasks = TaskAnnouncements(conf)

    def is_told() -> bool:
        tasks.announce()  # again and again: what is told before the worker listens is lost
        return told.is_set()

    with assembly.open_service(conf, WorkerMetrics()):
        wait_for("the worker is told", is_told)
        tasks.stop(10)


def test_tables_have_to_be_there(tmp_path: pathlib.Path) -> None:
    conf = load(tmp_path)
    with (
        pytest.raises(exception.UnsupportedError, match="no tables"),
        assembly.open_service(conf, WorkerMetrics()),
    ):
        pass


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("flow_connection = sqlite:///{folder}/flows.sqlite", "", "is not set"),
        ("{folder}/flows.sqlite", "{folder}/acstor.sqlite", "the same database"),
    ],
)
def test_flows_have_a_database_of_their_own(
    tmp_path: pathlib.Path, before: str, after: str, message: str
) -> None:
    conf = load(tmp_path, CONTENT.replace(before, after))
    with pytest.raises(exception.ConfigurationError, match=message):
        assembly.open_books(conf)


def test_worker_needs_a_broker(tmp_path: pathlib.Path) -> None:
    conf = load(tmp_path, CONTENT.replace("transport_url = fake:/\n", ""))
    with (
        pytest.raises(exception.ConfigurationError, match="message transport"),
        assembly.open_service(conf, WorkerMetrics()),
    ):
        pass
