"""Defaults, usage and limits over the API."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from oslo_limit import exception as limit_exception

from acstor import exception
from acstor.api.quotas import NAMES, VERSION_MIB, UnifiedLimits, UsageCounter, export_bytes
from acstor.repository.versions.record import DeltaCounts
from acstor.versions.database.tasks import NewTask, TaskKind
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import SERVER, Setting
from tests.unit.api.versions.test_versions import all_of


class MemoryEnforcer:
    """Double of oslo.limit's enforcer, with limits in memory."""

    def __init__(self, limits: dict[str, int], count: Callable[..., dict[str, int]]) -> None:
        self._limits = limits
        self._count = count

    def enforce(self, project: str, deltas: dict[str, int]) -> None:
        """Refuse what is too much, and what has no registered limit."""
        over = []
        for name, used in self._count(project, list(deltas)).items():
            limit = self._limits.get(name, 0)
            if limit != -1 and used + deltas[name] > limit:
                over.append(limit_exception.OverLimitInfo(name, limit, used, deltas[name]))
        if over:
            raise limit_exception.ProjectOverLimit(project, over)

    def get_project_limits(self, project: str, names: Sequence[str]) -> list[tuple[str, int]]:
        """Return the limits."""
        del project
        return [(name, self._limits.get(name, 0)) for name in names]


def limited(api: Setting, **limits: int) -> TestCaller:
    """Return a member whose project has limits."""
    named = {NAMES[name]: value for name, value in limits.items()}
    quotas = UnifiedLimits(
        lambda count: MemoryEnforcer(named, count), UsageCounter(api.stores), 60.0
    )
    return api.caller_of(api.with_quotas(quotas))


def test_defaults_are_set_by_managers(api: Setting) -> None:
    none: dict[str, Any] = {"version_on": [], "version_keep": {}, "on_delete": False}
    assert api.member.get("/v1/defaults").json["defaults"] == none
    wanted = {
        "version_on": ["resize", "shutdown"],
        "version_keep": {"daily": 14},
        "on_delete": True,
    }
    body = {"defaults": wanted}
    assert api.member.ask("PUT", "/v1/defaults", body).status_code == 403
    manager = api.member.as_role("manager")
    assert manager.ask("PUT", "/v1/defaults", body).json == body
    assert api.member.get("/v1/defaults").json == body
    assert api.stranger.get("/v1/defaults").json["defaults"] == none


@pytest.mark.parametrize(
    "wanted",
    [{"version_on": ["manual"]}, {"version_keep": {"daily": "x"}}, {"on_delete": None}, {"x": 1}],
)
def test_defaults_that_make_no_sense_are_refused(api: Setting, wanted: dict[str, Any]) -> None:
    fields = {"version_on": [], "version_keep": {}, "on_delete": False, **wanted}
    answer = api.member.as_role("manager").ask("PUT", "/v1/defaults", {"defaults": fields})
    assert answer.status_code == 400


def test_usage_has_what_the_project_has(api: Setting) -> None:
    api.add_version(delta=DeltaCounts(stored_bytes=5, shared_bytes=7))
    api.add_schedule()
    found = api.member.get("/v1/usage").json
    assert found["usage"] == {
        "versions": 1,
        "unique_bytes": 5,
        "shared_bytes": 7,
        "schedules": 1,
        "export_bytes": 0,
    }
    assert found["limits"] == {
        "versions": -1,
        "version_mib": -1,
        "schedules": -1,
        "export_mib": -1,
    }
    path = f"/v1/usage?project_id={api.project}"
    assert api.stranger.as_role("admin").get(path).json["usage"]["versions"] == 1
    assert api.stranger.get(path).status_code == 400


def test_reached_limit_takes_no_version_and_leaves_no_task(api: Setting) -> None:
    caller = limited(api, versions=2, version_mib=10)
    body = {"version": {"server_id": SERVER}}
    assert [caller.ask("POST", "/v1/versions", body).status_code for _ in range(3)] == [
        202,
        202,
        403,
    ]
    answer = caller.ask("POST", "/v1/versions", body)
    assert first_error(answer)["code"] == "acstor.quota.versions"
    states = [each["state"] for each in all_of(caller, "/v1/tasks", "tasks")]
    assert states == ["queued", "queued"]


def test_repeated_request_finds_its_task_though_the_limit_is_reached(api: Setting) -> None:
    body = {"version": {"server_id": SERVER}}
    key = {"Idempotency-Key": "k1"}
    first = limited(api, versions=2, version_mib=10).ask("POST", "/v1/versions", body, key)
    again = limited(api, versions=0, version_mib=0).ask("POST", "/v1/versions", body, key)
    assert again.json["task"] == first.json["task"]


def test_too_many_bytes_take_no_version_and_delete_none(api: Setting) -> None:
    one = api.add_version(delta=DeltaCounts(stored_bytes=(1 << 20) + 1))
    answer = limited(api, versions=9, version_mib=1).ask(
        "POST", "/v1/versions", {"version": {"server_id": SERVER}}
    )
    assert (answer.status_code, first_error(answer)["code"]) == (403, "acstor.quota.version_mib")
    assert VERSION_MIB in first_error(answer)["hint"]
    assert api.member.get(f"/v1/versions/{one}").status_code == 200


def test_limit_of_schedules(api: Setting) -> None:
    caller = limited(api, schedules=1)
    codes = [
        caller.ask(
            "POST", "/v1/schedules", {"schedule": {"name": name, "every": "day"}}
        ).status_code
        for name in "ab"
    ]
    assert codes == [201, 403]
    assert len(all_of(caller, "/v1/schedules", "schedules")) == 1


def test_exports_that_have_not_ended_are_bounded_by_the_size_of_their_disks(api: Setting) -> None:
    caller = limited(api, export_mib=5)
    ids = [api.add_version(size_bytes=(2 << 20) + 512) for _ in range(2)]
    answers = [
        caller.ask("POST", "/v1/exports", {"export": {"version_id": one}}) for one in [*ids, ids[0]]
    ]
    # Bytes are added before they are rounded up to MiB: twice 2 MiB and a sector are 5 MiB.
    assert [one.status_code for one in answers] == [202, 202, 429]
    assert int(answers[2].headers["retry-after"]) > 0
    error = first_error(answers[2])
    assert error["code"] == "acstor.quota.export_mib"
    assert "7 of 5 MiB" in error["detail"]
    assert "wait until exports have ended" in error["hint"]
    assert "acstor_export_mib" in error["hint"]
    tasks = all_of(caller, "/v1/tasks", "tasks")
    assert [each["state"] for each in tasks] == ["queued", "queued"]
    usage = caller.get("/v1/usage").json
    assert usage["usage"]["export_bytes"] == 2 * ((2 << 20) + 512)
    assert usage["limits"]["export_mib"] == 5
    # What has ended counts no more, and one that is asked for again is the same.
    api.stores.tasks.cancel(tasks[0]["id"])
    for _ in range(2):
        answer = caller.ask(
            "POST",
            "/v1/exports",
            {"export": {"version_id": ids[0]}},
            {"Idempotency-Key": "one"},
        )
        assert answer.status_code == 202


def test_disk_that_is_larger_than_the_limit_is_not_exported(api: Setting) -> None:
    one = api.add_version(size_bytes=9 << 20)
    body = {"export": {"version_id": one}}
    answer = limited(api, export_mib=8).ask("POST", "/v1/exports", body)
    # It would wait in vain.
    assert (answer.status_code, first_error(answer)["code"]) == (403, "acstor.quota.export_mib")
    assert "9 MiB" in first_error(answer)["detail"]
    assert limited(api, export_mib=-1).ask("POST", "/v1/exports", body).status_code == 202


def test_exports_of_others_and_other_tasks_count_nothing(api: Setting) -> None:
    caller = limited(api, export_mib=1)
    theirs = NewTask("t1", "another", TaskKind.EXPORT, "version/x", {"size_bytes": 1 << 40})
    of_before = NewTask("t2", api.project, TaskKind.EXPORT, "version/y", {})
    image = NewTask("t3", api.project, TaskKind.IMAGE, "version/z", {"size_bytes": 1 << 40})
    for task in (theirs, of_before, image):
        api.stores.tasks.create(task)
    body = {"export": {"version_id": api.add_version(size_bytes=1 << 20)}}
    assert caller.ask("POST", "/v1/exports", body).status_code == 202


def test_without_a_registered_limit_nothing_is_exported(api: Setting) -> None:
    body = {"export": {"version_id": api.add_version()}}
    assert limited(api).ask("POST", "/v1/exports", body).status_code == 403


def test_all_unfinished_exports_are_counted_however_many(
    api: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        task = NewTask(f"t{number}", api.project, TaskKind.EXPORT, "version/x", {"size_bytes": 10})
        api.stores.tasks.create(task)
    monkeypatch.setattr("acstor.api.quotas.PAGE_MAX", 2)
    assert export_bytes(api.stores, api.project) == 50


def test_without_registered_limits_all_is_refused(api: Setting) -> None:
    answer = limited(api).ask("POST", "/v1/versions", {"version": {"server_id": SERVER}})
    assert answer.status_code == 403


def test_limits_are_asked_for_anew_when_they_are_old(api: Setting) -> None:
    now, opened = [0.0], []

    def open_enforcer(count: Callable[..., dict[str, int]]) -> MemoryEnforcer:
        opened.append(now[0])
        return MemoryEnforcer({}, count)

    quotas = UnifiedLimits(open_enforcer, UsageCounter(api.stores), 60.0, lambda: now[0])
    for now[0] in (0.0, 59.0, 60.0, 119.0, 121.0):
        quotas.limits(api.project)
    assert opened == [0.0, 60.0, 121.0]


def test_keystone_that_is_away_lets_nothing_pass(api: Setting) -> None:
    def away(count: Callable[..., dict[str, int]]) -> None:
        raise limit_exception.SessionInitError("away")

    quotas = UnifiedLimits(away, UsageCounter(api.stores), 60.0)
    with pytest.raises(exception.UnavailableError):
        quotas.require(api.project, list(NAMES.values()))
    answer = api.caller_of(api.with_quotas(quotas)).get("/v1/usage")
    assert answer.status_code == 503
