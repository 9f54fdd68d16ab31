"""The contract of the API: examples that fit together, and what the client reads of each."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from openstack import fields, resource

from acstorclient.exception import Explanation
from acstorclient.v1 import cluster, host, image, origin_member, project, restore, schedule, task
from acstorclient.v1 import version as versions
from acstorclient.v1 import volume as volumes
from testbed.doubles.contract_api import Example, load_examples

RESOURCES: Mapping[str, type[resource.Resource]] = {
    "decision": cluster.Decision,
    "defaults": project.Defaults,
    "host": host.Host,
    "image": image.Image,
    "origin_member": origin_member.OriginMember,
    "pin": cluster.Pin,
    "preload": image.Preload,
    "preview": schedule.SchedulePreview,
    "restore": restore.Restore,
    "restore_preview": restore.RestorePreview,
    "ring": cluster.Ring,
    "schedule": schedule.Schedule,
    "task": task.Task,
    "version": versions.Version,
    "volume": volumes.Volume,
}
"""Classes of the client by the key under which a body has one."""
BARE = {"cluster", "diff", "file", "files", "limits", "links", "lock", "partitions", "usage"}
"""Keys of bodies that are no resources of the client."""
EXAMPLES = load_examples()
ERROR_FIELDS = {"request_id", "code", "status", "title", "detail", "hint", "links"}


def name_of(example: Example) -> str:
    """Return the name of an example in a report."""
    return f"{example.resource}: {example.name}"


def known_fields(kind: type[resource.Resource]) -> set[str]:
    """Return the names of the fields that a class reads of a body."""
    bodies = {component.name for _, component in kind._attributes_iterator((fields.Body,))}
    return bodies - ({"name"} if kind.__name__ in ("Ring", "Defaults") else set())


def told(example: Example) -> list[tuple[str, dict[str, Any]]]:
    """Return the resources in the answer of an example, each with its key."""
    if example.resource == "discovery":
        return []
    found = []
    for key, value in (example.response.get("body") or {}).items():
        if key in RESOURCES:
            found.append((key, value))
        elif key.removesuffix("s") in RESOURCES and isinstance(value, list):
            found += [(key.removesuffix("s"), each) for each in value]
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_the_client_knows_each_field(example: Example) -> None:
    if example.resource == "discovery" or example.response["status"] >= 400:
        return
    body = example.response.get("body") or {}
    plain = {key for key in body if key not in BARE | RESOURCES.keys()}
    assert {key.removesuffix("s") for key in plain} <= RESOURCES.keys()
    for key, value in told(example):
        assert set(value) <= known_fields(RESOURCES[key]), key


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_each_resource_has_the_same_fields_in_all_examples(kind: str) -> None:
    shapes = {
        frozenset(value) - {"group_id"} if kind == "task" else frozenset(value)
        for example in EXAMPLES
        for key, value in told(example)
        if key == kind
    }
    assert len(shapes) == 1


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_long_work_is_a_task_with_a_location(example: Example) -> None:
    body = example.response.get("body") or {}
    if example.response["status"] == 202 and example.request["method"] != "DELETE":
        assert example.response["headers"]["Location"] == f"/v1/tasks/{body['task']['id']}"
        assert body["task"]["state"] == "queued"


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_errors_have_code_and_hint(example: Example) -> None:
    if example.response["status"] < 400:
        return
    (error,) = example.response["body"]["errors"]
    assert set(error) == ERROR_FIELDS
    assert error["status"] == example.response["status"]
    assert re.fullmatch(r"acstor(\.[a-z_]+)+", error["code"])
    explanation = Explanation.from_body(error)
    assert explanation.hint
    assert explanation.text().startswith(f"{error['detail']} ({error['code']})")


def test_requests_are_distinct() -> None:
    seen = [
        (
            each.request["method"],
            each.request["path"],
            str(each.query),
            str(each.request.get("body")),
            str(each.request.get("headers")),
        )
        for each in EXAMPLES
    ]
    assert sorted(seen) == sorted(set(seen))


def test_every_task_that_begins_can_be_asked_for() -> None:
    begun = {
        (example.response.get("body") or {})["task"]["id"]
        for example in EXAMPLES
        if example.response["status"] == 202 and "task" in (example.response.get("body") or {})
    }
    shown = {
        example.request["path"].rpartition("/")[2]
        for example in EXAMPLES
        if example.request["method"] == "GET" and example.request["path"].startswith("/v1/tasks/")
    }
    assert begun <= shown
