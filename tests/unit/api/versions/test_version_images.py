"""Images of versions and exports over the API: tasks of the caller's project."""

import pytest

from acstor.versions.database.tasks import TaskKind
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import Setting

KINDS = {
    ("PUT", "image"): TaskKind.IMAGE,
    ("DELETE", "image"): TaskKind.IMAGE_REMOVE,
    ("POST", "exports"): TaskKind.EXPORT,
}


def ask(caller: TestCaller, method: str, what: str, version_id: str) -> tuple[int, str, dict]:  # type: ignore[type-arg]
    path = "/v1/exports" if what == "exports" else f"/v1/versions/{version_id}/image"
    body = {"export": {"version_id": version_id}} if what == "exports" else {}
    answer = caller.ask(method, path, None if method == "DELETE" else body)
    return answer.status_code, answer.headers.get("location", ""), answer.json


@pytest.mark.parametrize(("method", "what"), list(KINDS))
def test_each_is_a_task(api: Setting, method: str, what: str) -> None:
    version_id = api.add_version()
    status, location, body = ask(api.member, method, what, version_id)
    assert (status, location) == (202, f"/v1/tasks/{body['task']['id']}")
    task = api.stores.tasks.get(body["task"]["id"])
    assert (task.kind, task.resource) == (KINDS[(method, what)], f"version/{version_id}")
    assert task.parameters["version_id"] == version_id
    assert task.project == api.project


@pytest.mark.parametrize(("method", "what"), list(KINDS))
def test_administrator_makes_none_of_another_project(api: Setting, method: str, what: str) -> None:
    version_id = api.add_version()
    status, _, body = ask(api.stranger.as_role("admin"), method, what, version_id)
    assert (status, body["errors"][0]["code"]) == (404, "acstor.version.not_found")


def test_capture_has_none_yet(api: Setting) -> None:
    version_id = api.add_version(is_captured=True)
    for method, what in KINDS:
        status, _, body = ask(api.member, method, what, version_id)
        assert (status, body["errors"][0]["code"]) == (409, "acstor.version.not_committed")


def test_export_has_format_and_name(api: Setting) -> None:
    version_id = api.add_version()
    wanted = {"version_id": version_id, "disk_format": "raw", "name": "golden"}
    answer = api.member.ask("POST", "/v1/exports", {"export": wanted})
    size = {"size_bytes": api.versions.get(version_id).record.size_bytes}
    assert api.stores.tasks.get(answer.json["task"]["id"]).parameters == wanted | size
    answer = api.member.ask("POST", "/v1/exports", {"export": {**wanted, "disk_format": "vhd"}})
    assert first_error(answer)["code"] == "acstor.body.invalid"
