"""Notifications of Nova that become tasks."""

import pathlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.versions.database.opening import Stores, stores_of
from acstor.versions.database.project_settings import ProjectDefaults
from acstor.versions.database.tasks import TaskKind, TaskQuery
from acstor.versions.lifecycle.own_tasks import EVENTS_SHARE, OwnTasks
from acstor.versions.lifecycle.server_events import ATTEMPTS_MAX, EVENTS, ServerEvents, event_of
from acstor.versions.lifecycle.server_requests import ServerRequests
from acstor.versions.retention import Policy
from tests.compliance.databases import DATABASES, new_clock

SERVER, IMAGE = (str(uuid.UUID(int=number)) for number in (70, 80))


def payload(**fields: Any) -> dict[str, Any]:
    known = {
        "uuid": SERVER,
        "tenant_id": "p1",
        "host": "Compute-1",
        "image_uuid": IMAGE,
        "request_id": "req-1",
        "metadata": {"acstor:version_on": "shutdown", "acstor:version_keep": "last=3"},
        "flavor": {"nova_object.data": {"extra_specs": {}}},
    }
    return {"nova_object.name": "x", "nova_object.data": {**known, **fields}}


class Glance:
    def __init__(self) -> None:
        self.properties: Mapping[str, str] = {}
        self.asked: list[str] = []
        self.error: Exception | None = None

    def __call__(self, image_id: str) -> Mapping[str, str]:
        self.asked.append(image_id)
        if self.error is not None:
            raise self.error
        return self.properties


@pytest.fixture
def stores(tmp_path: pathlib.Path) -> Stores:
    return stores_of(DATABASES["memory"](tmp_path, new_clock()))


@pytest.fixture
def glance() -> Glance:
    return Glance()


class Later:
    """Calls that wait, made when the test says so."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.calls: list[Callable[[], None]] = []
        self.is_full = False

    def __call__(self, seconds: float, call: Callable[[], None]) -> bool:
        if not self.is_full:
            self.delays.append(seconds)
            self.calls.append(call)
        return not self.is_full

    def run(self) -> None:
        """Make the next call."""
        self.calls.pop(0)()


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def events(stores: Stores, glance: Glance, later: Later) -> ServerEvents:
    return ServerEvents(stores, ServerRequests(stores, glance), OwnTasks(stores.tasks, 2), later)


def tasks(stores: Stores) -> list[Mapping[str, Any]]:
    return [task.parameters for task in stores.tasks.page(TaskQuery())]


def test_stopped_server_that_asks_has_a_version(
    events: ServerEvents, stores: Stores, glance: Glance
) -> None:
    events.hear("instance.power_off.end", payload())
    (task,) = stores.tasks.page(TaskQuery())
    assert (task.kind, task.resource, task.project) == (
        TaskKind.CREATE,
        f"server/{SERVER}",
        "p1",
    )
    assert task.parameters["trigger"] == "shutdown"
    assert (task.parameters["host"], task.parameters["base_image"]) == ("compute-1", IMAGE)
    assert task.parameters["keep"] == {"last": 3}
    assert glance.asked == []


def test_notification_that_comes_twice_makes_one(events: ServerEvents, stores: Stores) -> None:
    for request in ("req-1", "req-1", "req-2"):
        events.hear("instance.power_off.end", payload(request_id=request))
    assert len(tasks(stores)) == 2


def test_flood_of_a_project_is_bounded_and_told(
    events: ServerEvents, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(9):
        events.hear("instance.power_off.end", payload(request_id=f"req-{number}"))
    assert len(tasks(stores)) == 2 * EVENTS_SHARE
    assert "project p1 has too many tasks" in caplog.text
    assert "own_tasks_max" in caplog.text


def test_nobody_asked_and_nothing_is_taken(events: ServerEvents, stores: Stores) -> None:
    for event in EVENTS:
        events.hear(event, payload(metadata={}))
    assert tasks(stores) == []


def test_image_and_project_are_asked_last(
    events: ServerEvents, stores: Stores, glance: Glance
) -> None:
    stores.defaults.put("p1", ProjectDefaults(frozenset({Trigger.RESIZE}), Policy(daily=1)))
    glance.properties = {"acstor_version_keep": "weekly=2"}
    events.hear("instance.resize.start", payload(metadata={}))
    (task,) = tasks(stores)
    assert (task["trigger"], task["keep"]) == ("resize", {"weekly": 2})
    assert glance.asked == [IMAGE]


def test_flavor_asks_too(events: ServerEvents, stores: Stores) -> None:
    specs = {"acstor:version_on": "delete", "acstor:version_keep": "none"}
    flavor = {"nova_object.data": {"extra_specs": specs}}
    events.hear("instance.delete.start", payload(metadata={}, flavor=flavor))
    (task,) = tasks(stores)
    assert (task["trigger"], task["keep"]) == ("delete", {})


def test_service_that_is_away_ends_nothing(
    events: ServerEvents, stores: Stores, glance: Glance
) -> None:
    glance.error = exception.UnavailableError("away")
    events.hear("instance.resize.start", payload(metadata={}))
    assert tasks(stores) == []
    glance.error = KeyError("odd")
    events.hear("instance.resize.start", payload(metadata={}))


def test_event_is_taken_once_what_it_needs_is_back(
    events: ServerEvents, stores: Stores, glance: Glance, later: Later
) -> None:
    glance.properties = {"acstor_version_on": "resize"}
    glance.error = exception.UnavailableError("away")
    events.hear("instance.resize.start", payload(metadata={}))
    later.run()
    assert tasks(stores) == []
    glance.error = None
    later.run()
    assert len(tasks(stores)) == 1
    assert not later.calls


def test_event_is_given_up_in_the_end_and_told(
    events: ServerEvents, glance: Glance, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    glance.error = exception.DeadlineError("slow")
    events.hear("instance.resize.start", payload(metadata={}))
    while later.calls:
        assert "no version of server" not in caplog.text
        later.run()
    assert len(later.delays) == ATTEMPTS_MAX - 1
    assert 300 < sum(later.delays) < 1200
    assert f"no version of server {SERVER} is taken at resize" in caplog.text


def test_flood_while_glance_is_away_is_told(
    events: ServerEvents, glance: Glance, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    glance.error = exception.UnavailableError("away")
    later.is_full = True
    events.hear("instance.resize.start", payload(metadata={}))
    assert "no version of server" in caplog.text


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        5,
        {},
        {"nova_object.data": 5},
        payload(uuid="x"),
        payload(host=None),
        payload(tenant_id=5),
    ],
)
def test_nonsense_tells_of_nothing(nonsense: object) -> None:
    assert event_of("instance.power_off.end", nonsense) is None
    assert event_of("instance.create.end", payload()) is None
