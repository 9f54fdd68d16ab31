"""Schedules over the API."""

from typing import Any

import pytest

from acstor.repository.versions.record import DiskKind, DiskName, Trigger
from testbed.fixtures.api_callers import first_error
from tests.unit.api.setting import SERVER, VOLUME, Setting
from tests.unit.api.versions.test_versions import all_of
from tests.unit.repository.versions.records import HOUR, NOON


def test_schedule_is_made_shown_changed_and_deleted(api: Setting) -> None:
    wanted = {
        "name": "nightly",
        "every": "day",
        "at": "02:30",
        "timezone": "Europe/Berlin",
        "window_minutes": 60,
        "keep": {"last": 3, "daily": 14, "within": "3d"},
        "enabled": True,
    }
    made = api.member.ask("POST", "/v1/schedules", {"schedule": wanted})
    assert made.status_code == 201
    shown = made.json["schedule"]
    assert {name: shown[name] for name in wanted} == wanted
    assert (shown["targets"], shown["next_run_at"], shown["on"]) == ([], None, None)
    path = f"/v1/schedules/{shown['id']}"
    assert api.member.get(path).json["schedule"] == shown
    changed = api.member.ask("PATCH", path, {"schedule": {"enabled": False, "keep": {"last": 1}}})
    assert changed.json["schedule"] == {**shown, "enabled": False, "keep": {"last": 1}}
    assert api.member.ask("DELETE", path).status_code == 204
    assert first_error(api.member.get(path))["code"] == "acstor.schedule.not_found"


def test_lists_by_name_state_and_target(api: Setting) -> None:
    one, two = api.add_schedule(), api.add_schedule(name="weekly", enabled=False)
    path = f"/v1/schedules/{two}/targets/{SERVER}"
    assert api.member.ask("PUT", path, {"target": {"type": "server"}}).status_code == 204
    for query, ids in (
        ("", {one, two}),
        ("?name=nightly", {one}),
        ("?name=none", set()),
        ("?enabled=false", {two}),
        (f"?target_id={SERVER}", {two}),
        ("?limit=1", {one, two}),
        ("?limit=1&enabled=false", {two}),
    ):
        found = all_of(api.member, f"/v1/schedules{query}", "schedules")
        assert {each["id"] for each in found} == ids, query


def test_name_is_unique_in_a_project(api: Setting) -> None:
    api.add_schedule()
    answer = api.member.ask(
        "POST", "/v1/schedules", {"schedule": {"name": "nightly", "every": "day"}}
    )
    assert answer.status_code == 409
    body = {"schedule": {"name": "nightly", "every": "day"}}
    assert api.stranger.ask("POST", "/v1/schedules", body).status_code == 201


def test_repeated_request_makes_one_schedule(api: Setting) -> None:
    body = {"schedule": {"name": "nightly", "every": "day"}}
    answers = [
        api.member.ask("POST", "/v1/schedules", body, {"Idempotency-Key": "k"}) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json == answers[1].json


@pytest.mark.parametrize(
    "fields",
    [
        {"every": "year"},
        {"every": "week"},
        {"every": "day", "on": 3},
        {"every": "month", "on": 32},
        {"every": "day", "at": "24:00"},
        {"every": "day", "timezone": "Mars/Base"},
        {"every": "hour", "window_minutes": 60},
        {"every": "day", "keep": {"daily": -2}},
        {"every": "day", "keep": {"within": "3w"}},
        {"every": "day", "keep": {"secondly": 1}},
        {"every": "day", "name": ""},
    ],
)
def test_schedule_that_makes_no_sense_is_refused(api: Setting, fields: dict[str, Any]) -> None:
    body = {"schedule": {"name": "n", **fields}}
    answer = api.member.ask("POST", "/v1/schedules", body)
    assert answer.status_code == 400
    assert first_error(answer)["hint"]


def test_weekly_becomes_monthly_and_daily(api: Setting) -> None:
    path = f"/v1/schedules/{api.add_schedule(every='week', on=7)}"
    for wanted, on in (({"every": "month", "on": 31}, 31), ({"every": "day"}, None)):
        answer = api.member.ask("PATCH", path, {"schedule": wanted})
        assert (answer.status_code, answer.json["schedule"]["on"]) == (200, on)


def test_hourly_schedule_has_a_window_of_less_than_an_hour(api: Setting) -> None:
    path = f"/v1/schedules/{api.add_schedule(every='hour')}"
    assert api.member.get(path).json["schedule"]["window_minutes"] == 59


def test_targets_are_the_own_projects(api: Setting) -> None:
    schedule = api.add_schedule()
    path = f"/v1/schedules/{schedule}/targets"
    for target, kind in ((SERVER, "server"), (VOLUME, "volume"), (SERVER, "server")):
        body = {"target": {"type": kind}}
        assert api.member.ask("PUT", f"{path}/{target}", body).status_code == 204
    api.user_services.owners[SERVER] = "other"
    body = {"target": {"type": "server"}}
    answer = api.member.ask("PUT", f"{path}/{SERVER}", body)
    assert (answer.status_code, first_error(answer)["code"]) == (400, "acstor.server.unknown")
    shown = api.member.get(f"/v1/schedules/{schedule}").json["schedule"]
    assert {each["id"] for each in shown["targets"]} == {SERVER, VOLUME}
    assert shown["next_run_at"] > "2026-11-26T12:00:00Z"
    assert api.member.ask("DELETE", f"{path}/{VOLUME}").status_code == 204
    shown = api.member.get(f"/v1/schedules/{schedule}").json["schedule"]
    assert shown["targets"] == [{"id": SERVER, "type": "server"}]


def test_preview_says_of_each_version_why_it_stays(api: Setting) -> None:
    schedule = api.add_schedule(keep={"last": 2}, window_minutes=0, at="02:00")
    path = f"/v1/schedules/{schedule}"
    api.member.ask("PUT", f"{path}/targets/{SERVER}", {"target": {"type": "server"}})
    disk = DiskName(DiskKind.INSTANCE, SERVER, "vda")
    ids = [
        api.add_version(
            disk=disk,
            trigger=Trigger.SCHEDULE,
            schedule=schedule,
            created_at=NOON - days * 24 * HOUR,
        )
        for days in range(3)
    ]
    others = [
        api.add_version(disk=disk),
        api.add_version(disk=disk, trigger=Trigger.SCHEDULE, schedule="another"),
    ]
    api.add_version(disk=disk, is_captured=True)
    preview = api.member.get(f"{path}/preview").json["preview"]
    assert [run["starts_at"] for run in preview["runs"]][:2] == [
        "2026-11-27T02:00:00Z",
        "2026-11-28T02:00:00Z",
    ]
    assert {run["target_id"] for run in preview["runs"]} == {SERVER}
    fates = {each["id"]: each for each in preview["versions"]}
    assert set(fates) == {*ids, *others}
    assert [fates[each]["kept"] for each in ids] == [True, True, False]
    assert [fates[each]["removed_after"] for each in ids] == [
        "2026-11-28T02:00:00Z",
        "2026-11-27T02:00:00Z",
        None,
    ]
    assert [fates[each]["reasons"] for each in others] == [["taken for another reason"]] * 2


def test_preview_of_a_target_without_versions_has_its_runs(api: Setting) -> None:
    path = f"/v1/schedules/{api.add_schedule()}"
    assert api.member.get(f"{path}/preview").json["preview"] == {"runs": [], "versions": []}
    api.member.ask("PUT", f"{path}/targets/{SERVER}", {"target": {"type": "server"}})
    preview = api.member.get(f"{path}/preview").json["preview"]
    assert len(preview["runs"]) == 7
    assert preview["versions"] == []
    api.member.ask("PATCH", path, {"schedule": {"enabled": False}})
    assert api.member.get(f"{path}/preview").json["preview"]["runs"] == []
