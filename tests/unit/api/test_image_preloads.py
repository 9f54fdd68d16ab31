"""Preloads over the API: tasks, for administrators."""

import pytest

from acstor.api.user_services import Kind, SeenThing
from acstor.versions.database.task_states import TaskState
from acstor.versions.database.tasks import TaskKind
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import IMAGE, Setting

PATH = f"/v1/images/{IMAGE}/preloads"
OTHER = IMAGE.replace("6d", "7d")


@pytest.fixture
def admin(api: Setting) -> TestCaller:
    """Return an administrator who sees an image."""
    api.user_services.owners[IMAGE] = api.project
    api.user_services.seen[Kind.IMAGE] = [SeenThing(IMAGE, "debian-12", 1)]
    return api.member.as_role("admin")


def begin(admin: TestCaller, **wanted: object) -> str:
    answer = admin.ask("POST", PATH, {"preload": wanted})
    assert answer.status_code == 202, answer.text
    return str(answer.json["task"]["id"])


def test_preload_is_a_task(admin: TestCaller, api: Setting) -> None:
    task = api.stores.tasks.get(begin(admin, hosts=["cmp-1"], rate_mib=200))
    assert (task.kind, task.resource) == (TaskKind.PRELOAD, f"image/{IMAGE}")
    assert task.parameters == {"image": IMAGE, "hosts": ["cmp-1"], "rate_mib": 200}
    task = api.stores.tasks.get(begin(admin))
    assert task.parameters == {"image": IMAGE, "hosts": "all", "rate_mib": None}


def test_list_has_those_of_the_image_in_pages(admin: TestCaller) -> None:
    made = [begin(admin, rate_mib=number + 1) for number in range(3)]
    found, path = [], f"{PATH}?limit=2"
    for _ in range(3):
        body = admin.get(path).json
        found += [each["id"] for each in body["preloads"]]
        if not body["links"]:
            break
        path = "/v1/" + body["links"][0]["href"].partition("/v1/")[2]
    assert sorted(found) == sorted(made)
    assert admin.get(f"/v1/images/{OTHER}/preloads").json["preloads"] == []


def test_preload_is_stopped_by_cancelling_it(admin: TestCaller, api: Setting) -> None:
    made = begin(admin)
    assert admin.ask("DELETE", f"/v1/images/{OTHER}/preloads/{made}").status_code == 404
    assert admin.ask("DELETE", f"{PATH}/{made}").status_code == 204
    assert api.stores.tasks.get(made).state is TaskState.CANCELLED
    assert admin.ask("DELETE", f"{PATH}/{made}").status_code == 204
    answer = admin.ask("DELETE", f"{PATH}/{api.add_task()}")
    assert (answer.status_code, first_error(answer)["code"]) == (404, "acstor.preload.not_found")


def test_image_that_nobody_sees_is_not_preloaded(admin: TestCaller) -> None:
    answer = admin.ask("POST", f"/v1/images/{OTHER}/preloads", {"preload": {}})
    assert (answer.status_code, first_error(answer)["code"]) == (404, "acstor.image.not_found")


@pytest.mark.parametrize(
    "wanted", [{"hosts": []}, {"hosts": "some"}, {"hosts": ["a", "a"]}, {"rate_mib": 0}, {"x": 1}]
)
def test_nonsense_is_refused(admin: TestCaller, wanted: object) -> None:
    assert admin.ask("POST", PATH, {"preload": wanted}).status_code == 400


def test_only_administrators_preload(admin: TestCaller) -> None:
    manager = admin.as_role("manager")
    assert manager.ask("POST", PATH, {"preload": {}}).status_code == 403
    assert manager.get(PATH).status_code == 403
