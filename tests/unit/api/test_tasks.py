"""Tasks and restores over the API."""

import uuid
from typing import Any

import pytest

from acstor.api import microversions
from acstor.repository.versions.record import DiskKind, DiskName
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.task_states import TaskEvent
from acstor.versions.database.tasks import Progress, TaskError, TaskKind
from testbed.fixtures.api_callers import first_error
from tests.unit.api.setting import SERVER, VOLUME, Setting
from tests.unit.api.versions.test_versions import all_of


def test_task_tells_its_progress_and_its_end(api: Setting) -> None:
    task_id = api.add_task()
    taken = api.stores.tasks.take("w1", 60.0)
    assert taken is not None
    _, lease = taken
    api.stores.tasks.report(lease, Progress("commit", 0.42, 42, 100))
    shown = api.member.get(f"/v1/tasks/{task_id}").json["task"]
    assert (shown["state"], shown["step"], shown["progress"]) == ("running", "commit", 0.42)
    assert (shown["bytes_done"], shown["bytes_total"]) == (42, 100)
    error = TaskError("acstor.capture.agent_silent", "no answer", "take it with crash")
    api.stores.tasks.finish(lease, TaskEvent.FAIL, error=error)
    shown = api.member.get(f"/v1/tasks/{task_id}").json["task"]
    assert shown["state"] == "failed"
    assert shown["error"] == {
        "code": "acstor.capture.agent_silent",
        "title": "The task create failed",
        "detail": "no answer",
        "hint": "take it with crash",
    }
    assert shown["finished_at"] == "2026-11-26T12:00:00Z"


def test_task_is_cancelled(api: Setting) -> None:
    path = f"/v1/tasks/{api.add_task()}"
    assert api.member.as_role("reader").ask("DELETE", path).status_code == 403
    for _ in range(2):
        answer = api.member.ask("DELETE", path)
        assert (answer.status_code, answer.json["task"]["state"]) == (202, "cancelled")


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 2),
        ("?state=queued", 1),
        ("?state=in:queued,cancelled", 2),
        ("?state=done", 0),
        ("?kind=create", 2),
        ("?kind=restore", 0),
        (f"?server_id={SERVER}", 2),
        (f"?volume_id={VOLUME}", 0),
        ("?limit=1", 2),
    ],
)
def test_lists(api: Setting, query: str, count: int) -> None:
    api.member.ask("DELETE", f"/v1/tasks/{api.add_task()}")
    api.add_task()
    assert len(all_of(api.member, f"/v1/tasks{query}", "tasks")) == count


@pytest.mark.parametrize(
    "query", ["state=pending", "kind=magic", f"server_id={SERVER}&volume_id={VOLUME}"]
)
def test_query_that_makes_no_sense_is_refused(api: Setting, query: str) -> None:
    assert api.member.get(f"/v1/tasks?{query}").status_code == 400


def test_restore_is_a_task(api: Setting) -> None:
    one = api.add_version()
    wanted = {"version_id": one, "server_id": SERVER, "method": "auto"}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted})
    assert answer.status_code == 202
    task_id = answer.json["task"]["id"]
    assert answer.headers["Location"] == f"/v1/tasks/{task_id}"
    shown = api.member.get(f"/v1/restores/{task_id}").json["restore"]
    assert (shown["version_id"], shown["server_id"], shown["task_id"]) == (one, SERVER, task_id)
    assert (shown["method"], shown["keep_current"], shown["reason"]) == ("auto", True, None)
    assert all_of(api.member, "/v1/restores", "restores") == [shown]
    found = all_of(api.member, f"/v1/restores?server_id={SERVER}&state=queued", "restores")
    assert found == [shown]
    _, lease = api.stores.tasks.take("w1", 60.0) or (None, None)
    assert lease is not None
    chosen = {"method": "in_place", "reason": "7 bytes are moved, by a rebuild 9"}
    api.stores.tasks.decide(lease, chosen)
    shown = api.member.get(f"/v1/restores/{task_id}").json["restore"]
    assert {name: shown[name] for name in chosen} == chosen
    assert (shown["state"], shown["bytes_moved"]) == ("running", None)
    result = {"method": "rebuild", "reason": "nothing is lost", "bytes_moved": 7}
    api.stores.tasks.finish(lease, TaskEvent.FINISH, result=result)
    shown = api.member.get(f"/v1/restores/{task_id}").json["restore"]
    assert {name: shown[name] for name in result} == result


def test_restore_of_a_group_has_all_its_versions(api: Setting) -> None:
    group = str(uuid.uuid4())
    disk = DiskName(DiskKind.VOLUME, VOLUME)
    ids = sorted(api.add_version(group=group, group_size=2, disk=disk) for _ in range(2))
    answer = api.member.ask(
        "POST", "/v1/restores", {"restore": {"group_id": group, "volume_id": VOLUME}}
    )
    task = api.stores.tasks.get(answer.json["task"]["id"])
    assert task.parameters["versions"] == ids


def test_server_is_restored_by_a_rebuild_of_one_version(api: Setting) -> None:
    group = str(uuid.uuid4())
    one, _ = (api.add_version(group=group, group_size=2) for _ in range(2))
    refused = [
        ({"group_id": group, "server_id": SERVER}, "one"),
        (
            {
                "version_id": one,
                "server_id": SERVER,
                "method": "in_place",
                "keep_current": False,
            },
            "rebuild",
        ),
    ]
    for fields, text in refused:
        answer = api.member.ask("POST", "/v1/restores", {"restore": fields})
        assert (answer.status_code, first_error(answer)["code"]) == (400, "acstor.unsupported")
        assert text in first_error(answer)["hint"]
    wanted = {"version_id": one, "server_id": SERVER, "method": "rebuild", "keep_current": False}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted})
    task = api.stores.tasks.get(answer.json["task"]["id"])
    assert (task.resource, task.parameters["kind"]) == (f"server/{SERVER}", "server")
    assert (task.parameters["method"], task.parameters["keep_current"]) == ("rebuild", False)


def test_server_is_restored_in_place(api: Setting) -> None:
    wanted = {"version_id": api.add_version(), "server_id": SERVER, "method": "in_place"}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted})
    task = api.stores.tasks.get(answer.json["task"]["id"])
    assert (task.parameters["method"], task.parameters["keep_current"]) == ("in_place", True)


NEWEST = {microversions.HEADER: "acstor latest"}


def set_of(api: Setting, count: int = 2) -> tuple[str, list[str]]:
    """Add versions of the disks of a server of one moment; return their group and ids."""
    group, names = str(uuid.uuid4()), ("vda", "vdb")[:count]
    disks = [DiskName(DiskKind.INSTANCE, SERVER, name) for name in names]
    return group, [api.add_version(group=group, group_size=2, disk=disk) for disk in disks]


def test_disks_of_a_server_are_restored_as_a_set(api: Setting) -> None:
    group, ids = set_of(api)
    wanted = {"group_id": group, "server_id": SERVER}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted}, headers=NEWEST)
    parameters = api.stores.tasks.get(task_id := answer.json["task"]["id"]).parameters
    assert (parameters["versions"], parameters["version_id"]) == (sorted(ids), None)
    assert (parameters["restore_nvram"], parameters["disks"]) == (True, None)
    shown = api.member.ask("GET", f"/v1/restores/{task_id}", headers=NEWEST).json["restore"]
    assert (shown["version_ids"], shown["restore_nvram"]) == (sorted(ids), True)
    assert "version_ids" not in api.member.get(f"/v1/restores/{task_id}").json["restore"]


@pytest.mark.parametrize("is_group", [True, False])
def test_disks_are_named_of_the_moment_of_a_version(api: Setting, is_group: bool) -> None:
    group, ids = set_of(api)
    subject = {"group_id": group} if is_group else {"version_id": ids[0]}
    wanted = {**subject, "server_id": SERVER, "disks": ["vdb"], "restore_nvram": False}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted}, headers=NEWEST)
    parameters = api.stores.tasks.get(answer.json["task"]["id"]).parameters
    assert (parameters["versions"], parameters["disks"]) == ([ids[1]], ["vdb"])
    assert parameters["restore_nvram"] is False


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"method": "rebuild"}, "root disk alone"),
        ({"keep_current": False}, "leave keep_current out"),
        ({"disks": ["vdc"]}, "no version of disk vdc"),
        ({"disks": ["../vda"]}, "does not match"),
        ({"disks": []}, "non-empty"),
    ],
)
def test_set_that_makes_no_sense_is_refused(
    api: Setting, fields: dict[str, Any], text: str
) -> None:
    group, _ = set_of(api)
    wanted = {"group_id": group, "server_id": SERVER, **fields}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted}, headers=NEWEST)
    assert answer.status_code == 400
    assert text in str(first_error(answer))


def test_group_of_which_a_version_is_missing_is_restored_by_name_only(api: Setting) -> None:
    group, _ = set_of(api, count=1)
    wanted: dict[str, Any] = {"group_id": group, "server_id": SERVER}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted}, headers=NEWEST)
    assert "of 2 disks" in first_error(answer)["detail"]
    wanted["disks"] = ["vda"]
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted}, headers=NEWEST)
    assert answer.status_code == 202


def test_older_microversion_restores_the_last_version_of_a_group_as_it_did(api: Setting) -> None:
    """It cannot name disks, and the worker takes no version but the root disk's."""
    group, ids = set_of(api, count=1)
    wanted = {"group_id": group, "server_id": SERVER}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted})
    assert answer.status_code == 202, answer.text
    parameters = api.stores.tasks.get(answer.json["task"]["id"]).parameters
    assert (parameters["versions"], parameters["version_id"]) == (ids, ids[0])


def test_older_microversion_restores_one_disk_and_leaves_the_variables(api: Setting) -> None:
    _, ids = set_of(api)
    wanted: dict[str, Any] = {"version_id": ids[0], "server_id": SERVER}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted})
    parameters = api.stores.tasks.get(answer.json["task"]["id"]).parameters
    assert parameters["restore_nvram"] is False
    for later in ({"disks": ["vda"]}, {"restore_nvram": True}):
        answer = api.member.ask("POST", "/v1/restores", {"restore": {**wanted, **later}})
        assert answer.status_code == 400


def test_restore_of_a_volume_from_a_group_has_its_version(api: Setting) -> None:
    group = str(uuid.uuid4())
    disks = (DiskName(DiskKind.VOLUME, VOLUME), DiskName(DiskKind.VOLUME, SERVER))
    one, _ = (api.add_version(group=group, group_size=2, disk=disk) for disk in disks)
    wanted = {"group_id": group, "volume_id": VOLUME, "keep_current": False}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted})
    parameters = api.stores.tasks.get(answer.json["task"]["id"]).parameters
    assert (parameters["versions"], parameters["version_id"]) == ([one], one)
    assert (parameters["owner"], parameters["keep_current"]) == (VOLUME, False)


def test_restore_that_no_worker_does_is_refused(api: Setting) -> None:
    version = api.add_version()
    caller = api.caller_of(api.with_quotas(api.backends.quotas, restorable=[TargetKind.VOLUME]))
    wanted = {"version_id": version, "server_id": SERVER}
    answer = caller.ask("POST", "/v1/restores", {"restore": wanted})
    assert (answer.status_code, answer.json["errors"][0]["code"]) == (400, "acstor.unsupported")
    assert "boot another server" in answer.json["errors"][0]["hint"]
    assert all_of(api.member, "/v1/tasks", "tasks") == []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"version_id": str(uuid.UUID(int=1))},
        {"version_id": str(uuid.UUID(int=1)), "server_id": SERVER},
        {"group_id": str(uuid.UUID(int=1)), "server_id": SERVER},
        {"version_id": str(uuid.UUID(int=1)), "server_id": SERVER, "volume_id": VOLUME},
    ],
)
def test_restore_that_makes_no_sense_is_refused(api: Setting, fields: dict[str, Any]) -> None:
    answer = api.member.ask("POST", "/v1/restores", {"restore": fields})
    assert answer.status_code == 400


def test_capture_is_no_restore_point(api: Setting) -> None:
    one = api.add_version(is_captured=True)
    wanted = {"version_id": one, "server_id": SERVER}
    answer = api.member.ask("POST", "/v1/restores", {"restore": wanted})
    assert (answer.status_code, first_error(answer)["code"]) == (
        409,
        "acstor.version.not_committed",
    )


def test_version_of_another_project_is_not_restored(api: Setting) -> None:
    one = api.add_version(project=api.stranger.project)
    wanted = {"version_id": one, "server_id": SERVER}
    for caller in (api.member, api.member.as_role("admin")):
        answer = caller.ask("POST", "/v1/restores", {"restore": wanted})
        assert (answer.status_code, first_error(answer)["code"]) == (400, "acstor.version.unknown")


def test_task_that_no_worker_can_do_is_not_queued(api: Setting) -> None:
    one = api.add_version()
    caller = api.caller_of(api.with_quotas(api.backends.quotas, frozenset({TaskKind.CREATE})))
    wanted = {"version_id": one, "server_id": SERVER}
    answer = caller.ask("POST", "/v1/restores", {"restore": wanted})
    assert (answer.status_code, first_error(answer)["code"]) == (400, "acstor.unsupported")
    assert not all_of(api.member, "/v1/tasks", "tasks")
