"""Versions over the API."""

import datetime
import urllib.parse
import uuid
from typing import Any

import pytest

from acstor import exception
from acstor.repository.versions.locks import Lock
from acstor.repository.versions.record import Consistency, Trigger
from acstor.versions.database.tasks import TaskKind
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import SERVER, VOLUME, Setting
from tests.unit.repository.versions.records import HOUR, NOON


def all_of(caller: TestCaller, path: str, key: str = "versions") -> list[dict[str, Any]]:
    """Return the items of all pages of a list."""
    found: list[dict[str, Any]] = []
    for _ in range(100):
        answer = caller.get(path)
        assert answer.status_code == 200, answer.text
        found += answer.json[key]
        links = answer.json["links"]
        if not links:
            return found
        link = urllib.parse.urlsplit(links[0]["href"])
        path = f"{link.path}?{link.query}"
    raise AssertionError("pages without end")


def test_version_is_shown_as_its_record_is(api: Setting) -> None:
    group = str(uuid.uuid4())
    one = api.add_version(
        name="before", group=group, labels={"ticket": "4711"}, lock=Lock("ransomware")
    )
    found = api.member.get(f"/v1/versions/{one}").json["version"]
    assert (found["id"], found["name"], found["group_id"]) == (one, "before", group)
    assert (found["state"], found["restorable"]) == ("committed", True)
    assert found["created_at"] == "2026-11-26T12:00:00Z"
    assert found["lock"] == {"reason": "ransomware", "until": None}
    assert found["metadata"] == {"ticket": "4711"}
    assert "host" not in found


def test_only_administrators_see_hosts(api: Setting) -> None:
    one = api.add_version(is_captured=True)
    found = api.member.as_role("admin").get(f"/v1/versions/{one}").json["version"]
    assert (found["host"], found["restorable"]) == ("h1", False)


def test_list_has_the_own_project_only(api: Setting) -> None:
    mine, other = api.add_version(), api.add_version(project=api.stranger.project)
    assert [each["id"] for each in all_of(api.member, "/v1/versions")] == [mine]
    admin = api.member.as_role("admin")
    assert [each["id"] for each in all_of(admin, "/v1/versions")] == [mine]
    everything = all_of(admin, "/v1/versions?all_projects=true")
    assert {each["id"] for each in everything} == {mine, other}
    named = all_of(admin, f"/v1/versions?project_id={api.stranger.project}")
    assert [each["id"] for each in named] == [other]
    for query in ("all_projects=true", f"project_id={api.stranger.project}"):
        answer = api.member.get(f"/v1/versions?{query}")
        assert (answer.status_code, first_error(answer)["code"]) == (
            400,
            "acstor.query.not_admin",
        )


@pytest.mark.parametrize("order", ["", "&sort_dir=asc", "&sort_key=name", "&sort_key=size_bytes"])
def test_pages_have_every_version_once(api: Setting, order: str) -> None:
    ids = {
        api.add_version(name=f"n{number % 3}", created_at=NOON - number % 4 * HOUR)
        for number in range(11)
    }
    found = [each["id"] for each in all_of(api.member, f"/v1/versions?limit=3{order}")]
    assert len(found) == len(ids)
    assert set(found) == ids


def test_list_goes_on_where_its_last_item_was(api: Setting) -> None:
    for number in range(4):
        api.add_version(created_at=NOON - number * HOUR, name=f"n{number}")
    first = api.member.get("/v1/versions?limit=2").json
    last = first["versions"][-1]["id"]
    api.member.ask("DELETE", f"/v1/versions/{last}")
    link = urllib.parse.urlsplit(first["links"][0]["href"])
    rest = api.member.get(f"{link.path}?{link.query}").json["versions"]
    assert [each["name"] for each in rest] == ["n2", "n3"]


def test_id_is_a_marker_too(api: Setting) -> None:
    ids = [api.add_version(created_at=NOON - number * HOUR) for number in range(3)]
    found = api.member.get(f"/v1/versions?marker={ids[0]}").json["versions"]
    assert [each["id"] for each in found] == ids[1:]


@pytest.mark.parametrize("marker", ["x", "bnVsbA", str(uuid.UUID(int=7)), "WyJhIiwgMWUxMDBd"])
def test_marker_that_is_none_is_refused(api: Setting, marker: str) -> None:
    answer = api.member.get(f"/v1/versions?marker={marker}")
    assert (answer.status_code, first_error(answer)["code"]) == (400, "acstor.marker.invalid")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("name=a", "a"),
        ("name=neq:a", "bc"),
        ("name=in:a,b", "ab"),
        ("name=nin:a,b", "c"),
        ("trigger=schedule", "b"),
        ("consistency=fs", "c"),
        ("locked=true", "a"),
        ("locked=false", "bc"),
        ("created_at=gte:2026-11-26T11:00:00Z", "ab"),
        ("created_at=gte:2026-11-26T10:00:00Z&created_at=lt:2026-11-26T12:00:00Z", "bc"),
        ("created_at=gt:2026-11-26T12:30:00%2B01:00", "a"),
    ],
)
def test_filters(api: Setting, query: str, names: str) -> None:
    api.add_version(name="a", lock=Lock("kept"))
    api.add_version(name="b", trigger=Trigger.SCHEDULE, created_at=NOON - HOUR)
    api.add_version(name="c", consistency=Consistency.FS, created_at=NOON - 2 * HOUR)
    found = all_of(api.member, f"/v1/versions?{query}")
    assert "".join(sorted(each["name"] for each in found)) == names


@pytest.mark.parametrize(
    "query",
    [
        "locked=2",
        "locked=gt:true",
        "created_at=noon",
        "created_at=gte:2026-11-26T11:00:00",
        "color=red",
        "limit=0",
        "limit=1001",
        "sort_key=color",
        "sort_dir=up",
    ],
)
def test_query_that_makes_no_sense_is_refused(api: Setting, query: str) -> None:
    assert api.member.get(f"/v1/versions?{query}").status_code == 400


@pytest.mark.parametrize(("key", "owner"), [("server", SERVER), ("volume", VOLUME)])
def test_taking_a_version_is_a_task(api: Setting, key: str, owner: str) -> None:
    body = {f"{key}_id": owner, "name": "before", "metadata": {"ticket": "4711"}}
    answer = api.member.ask("POST", "/v1/versions", {"version": body})
    shown = answer.json["task"]
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/v1/tasks/{shown['id']}"
    assert (shown["state"], shown["group_id"]) == ("queued", shown["id"])
    task = api.stores.tasks.get(shown["id"], api.project)
    assert (task.kind, task.resource) == (TaskKind.CREATE, f"{key}/{owner}")
    assert task.user == "user-of-member"
    assert dict(task.parameters) == {
        "kind": key,
        "owner": owner,
        "name": "before",
        "consistency": "best",
        "expires_at": None,
        "trigger": "manual",
        "labels": {"ticket": "4711"},
    }


def test_repeated_request_queues_one_task(api: Setting) -> None:
    body = {"version": {"server_id": SERVER}}
    key = {"Idempotency-Key": "k1"}
    answers = [api.member.ask("POST", "/v1/versions", body, key) for _ in range(3)]
    assert len({answer.json["task"]["id"] for answer in answers}) == 1
    assert len(all_of(api.member, "/v1/tasks", "tasks")) == 1
    other = api.member.ask("POST", "/v1/versions", {"version": {"volume_id": VOLUME}}, key)
    assert other.status_code == 409


def test_server_of_another_project_is_none(api: Setting) -> None:
    answer = api.stranger.ask("POST", "/v1/versions", {"version": {"server_id": SERVER}})
    assert (answer.status_code, first_error(answer)["code"]) == (400, "acstor.server.unknown")
    assert not all_of(api.stranger, "/v1/tasks", "tasks")


def test_nova_that_does_not_answer_is_told(api: Setting) -> None:
    api.user_services.error = exception.UnavailableError("Nova is away")
    answer = api.member.ask("POST", "/v1/versions", {"version": {"server_id": SERVER}})
    assert answer.status_code == 503


@pytest.mark.parametrize(
    "version",
    [
        {},
        {"server_id": SERVER, "volume_id": VOLUME},
        {"server_id": "x"},
        {"server_id": SERVER, "consistency": "perfect"},
        {"server_id": SERVER, "expires_at": "2026-11-26T11:00:00Z"},
        {"server_id": SERVER, "expires_at": "tomorrow"},
        {"server_id": SERVER, "metadata": {"a": 1}},
        {"server_id": SERVER, "name": "n" * 256},
    ],
)
def test_nonsense_takes_no_version(api: Setting, version: dict[str, Any]) -> None:
    answer = api.member.ask("POST", "/v1/versions", {"version": version})
    assert answer.status_code == 400
    assert first_error(answer)["hint"]


def test_name_expiry_and_metadata_are_changed(api: Setting) -> None:
    one = api.add_version(labels={"a": "1", "b": "2"})
    wanted = {"name": "good", "expires_at": "2027-01-01T00:00:00Z", "metadata": {"b": "3"}}
    answer = api.member.ask("PATCH", f"/v1/versions/{one}", {"version": wanted})
    assert answer.status_code == 200
    for found in (answer.json["version"], api.member.get(f"/v1/versions/{one}").json["version"]):
        assert {name: found[name] for name in wanted} == wanted
    answer = api.member.ask("PATCH", f"/v1/versions/{one}", {"version": {"expires_at": None}})
    assert answer.json["version"]["expires_at"] is None
    assert answer.json["version"]["name"] == "good"


def test_locked_version_is_neither_deleted_nor_shortened(api: Setting) -> None:
    one = api.add_version()
    path = f"/v1/versions/{one}"
    lock = {"reason": "ransomware", "until": "2026-12-26T12:00:00Z"}
    answer = api.member.ask("PUT", f"{path}/lock", {"lock": lock})
    assert (answer.status_code, answer.json["version"]["lock"]) == (200, lock)
    for method, target, body in (
        ("DELETE", path, None),
        ("PATCH", path, {"version": {"expires_at": "2026-11-27T00:00:00Z"}}),
        ("PUT", f"{path}/lock", {"lock": {"until": "2026-11-27T00:00:00Z"}}),
    ):
        answer = api.member.ask(method, target, body)
        assert (answer.status_code, first_error(answer)["code"]) == (409, "acstor.version.locked")
    assert api.member.ask("DELETE", f"{path}/lock").status_code == 403
    assert api.member.as_role("manager").ask("DELETE", f"{path}/lock").status_code == 204
    assert api.member.ask("DELETE", path).status_code == 204
    assert api.member.get(path).status_code == 404


def test_version_in_use_is_condemned(api: Setting) -> None:
    one = api.add_version()
    api.versions.begin_use(one, "image/1")
    answer = api.member.ask("DELETE", f"/v1/versions/{one}")
    assert (answer.status_code, answer.json["version"]["state"]) == (202, "condemned")
    assert api.member.get(f"/v1/versions/{one}").status_code == 404
    assert not all_of(api.member, "/v1/versions")


def test_capture_is_not_deleted_under_its_task(api: Setting) -> None:
    one = api.add_version(is_captured=True)
    assert api.member.ask("DELETE", f"/v1/versions/{one}").status_code == 409


def test_version_that_was_deleted_elsewhere_leaves_the_list(api: Setting) -> None:
    one = api.add_version()
    api.versions.delete(one)
    answer = api.member.ask("PATCH", f"/v1/versions/{one}", {"version": {"name": "x"}})
    assert (answer.status_code, first_error(answer)["code"]) == (404, "acstor.version.not_found")
    assert not all_of(api.member, "/v1/versions")


def test_lock_in_the_past_is_refused(api: Setting) -> None:
    one = api.add_version()
    over = (NOON - datetime.timedelta(seconds=1)).isoformat()
    answer = api.member.ask("PUT", f"/v1/versions/{one}/lock", {"lock": {"until": over}})
    assert (answer.status_code, first_error(answer)["code"]) == (400, "acstor.time.over")
