"""Isolation of projects over every route; tokens of the system pass none.

Written by hand: schemathesis looks with one identity.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from falcon import testing

from acstor.api import policies
from acstor.api.policies import base
from acstor.api.routes import Route
from acstor.api.user_services import Kind, SeenThing
from acstor.repository import layout
from acstor.repository.volumes.record import VolumeRecord
from acstor.versions.database.tasks import NewTask, TaskKind
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import IMAGE, SERVER, VOLUME, Setting

BODIES: dict[str, Any] = {
    "versions:create": {"version": {"server_id": SERVER}},
    "versions:update": {"version": {"name": "mine"}},
    "versions:create_image": {},
    "versions:lock": {"lock": {"reason": "mine"}},
    "schedules:create": {"schedule": {"name": "theirs", "every": "day"}},
    "schedules:update": {"schedule": {"name": "mine"}},
    "schedules:add_target": {"target": {"type": "server"}},
    "restores:create": {"restore": {"version_id": "<version_id>", "server_id": SERVER}},
    "exports:create": {"export": {"version_id": "<version_id>"}},
    "volumes:update": {"volume": {"durability": "write-back", "interval_seconds": 10}},
    "preloads:create": {"preload": {"hosts": "all"}},
    "hosts:update": {"host": {"draining": True}},
    "origin_members:update": {"origin_member": {"draining": True}},
    "pins:create": {"pin": {"host": "cmp-1", "weight": 0.5}},
    "defaults:set": {"defaults": {"version_on": [], "version_keep": {}, "on_delete": False}},
}
"""Body of each operation that has one."""


class Things:
    """Things of one project, by the names in paths."""

    def __init__(self, api: Setting) -> None:
        self.api = api
        self.ids = {
            "version_id": api.add_version(),
            "schedule_id": api.add_schedule(),
            "task_id": api.add_task(),
            "target_id": SERVER,
            "image_id": IMAGE,
            "volume_id": VOLUME,
            "member": "nfs",
        }
        api.user_services.owners[IMAGE] = api.project
        api.user_services.seen[Kind.IMAGE] = [SeenThing(IMAGE, "debian-12", 1)]
        api.user_services.seen[Kind.VOLUME] = [SeenThing(VOLUME, "data", 1 << 30)]
        api.origin.swap_ref(layout.volume_ref(VOLUME), None, VolumeRecord(1 << 30).encode())
        restore = {"version_id": self.ids["version_id"], "server_id": SERVER}
        made = api.member.ask("POST", "/v1/restores", {"restore": restore})
        preload = NewTask(str(uuid.uuid4()), api.project, TaskKind.PRELOAD, f"image/{IMAGE}", {})
        self.ids["preload_id"] = api.stores.tasks.create(preload).id
        self.ids["restore_id"] = made.json["task"]["id"]

    def ask(self, caller: TestCaller, route: Route, method: str, rule: str) -> testing.Result:
        """Send a request that names the things."""
        body: Any = BODIES.get(rule)
        if rule in ("restores:create", "exports:create"):
            ((key, fields),) = body.items()
            body = {key: {**fields, "version_id": self.ids["version_id"]}}
        against, path = f"?against={self.ids['version_id']}", "?path=/"
        queries = {
            "versions:diff": against,
            "versions:file_diff": against,
            "versions:file_content": path,
            "versions:file_archive": path,
            "restores:preview": f"?server_id={SERVER}",
        }
        query = queries.get(rule, "")
        return caller.ask(method, route.path.format(host="cmp-1", **self.ids) + query, body)


def operations(routes: list[Route]) -> Iterator[tuple[Route, str, str]]:
    """Yield route, method and rule of each operation."""
    for route in routes:
        for method, operation in route.operations():
            yield route, method, operation.rule


def test_each_operation_has_one_rule_and_each_rule_an_operation(api: Setting) -> None:
    served = {
        (f"acstor:{rule}", method, route.path) for route, method, rule in operations(api.routes)
    }
    documented = {
        (rule.name, each["method"], each["path"])
        for rule in policies.list_rules()
        if hasattr(rule, "operations")
        for each in rule.operations
    }
    assert served == documented
    bodies = [rule for rule, method, _ in served if method != "HEAD"]
    assert len(set(bodies)) == len(bodies)


def test_each_operation_with_a_body_is_tried(api: Setting) -> None:
    with_body = {
        operation.rule
        for route in api.routes
        for _, operation in route.operations()
        if operation.body is not None
    }
    assert with_body == set(BODIES)


@pytest.mark.parametrize("role", ["reader", "manager"])
def test_things_of_another_project_are_not_found(api: Setting, role: str) -> None:
    things = Things(api)
    stranger = api.stranger.as_role(role)
    tried = 0
    for route, method, rule in operations(api.routes):
        if "{" not in route.path or "{host}" in route.path:
            continue
        answer = things.ask(stranger, route, method, rule)
        wanted = policies.role_of(f"acstor:{rule}")
        is_refused = wanted == "admin" or (role == "reader" and wanted != "reader")
        assert answer.status_code == (403 if is_refused else 404), (method, route.path, answer.text)
        tried += 1
    assert tried >= 14


def test_lists_of_another_project_are_empty(api: Setting) -> None:
    Things(api)
    for path in ("versions", "schedules", "tasks", "restores", "images", "volumes"):
        assert api.stranger.get(f"/v1/{path}").json[path] == []


def test_things_are_as_they_were_after_a_stranger_tried_everything(api: Setting) -> None:
    things = Things(api)
    paths = [route.path for route in api.routes if "/{" in route.path and "host" not in route.path]
    seen = {path: api.member.get(path.format(**things.ids)).content for path in paths}
    for route, method, rule in operations(api.routes):
        things.ask(api.stranger, route, method, rule)
    assert {path: api.member.get(path.format(**things.ids)).content for path in paths} == seen


@pytest.mark.parametrize("is_of_system", [True, False])
def test_tokens_without_project_pass_nowhere(api: Setting, is_of_system: bool) -> None:
    things = Things(api)
    caller = TestCaller(api.app, None, "admin", is_of_system)
    for route, method, rule in operations(api.routes):
        answer = things.ask(caller, route, method, rule)
        assert answer.status_code == 403, (method, route.path)
        if method != "HEAD":
            assert first_error(answer)["code"] == "acstor.forbidden.scope"


def test_each_rule_is_for_projects_only() -> None:
    for rule in policies.list_rules():
        assert rule.scope_types == ["project"], rule.name


def test_role_of_each_rule_is_known() -> None:
    for rule in policies.list_rules():
        if hasattr(rule, "operations"):
            assert policies.role_of(rule.name) in base.ROLES.values()
