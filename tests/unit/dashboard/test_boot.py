"""Boot of a version: its image, then a server with the user's own token."""

import types
from typing import Any

import pytest
from openstack_dashboard import api as services

from acstor.repository.versions.record import DiskKind, DiskName
from acstor.versions.database.tasks import TaskKind
from acstor_dashboard.connection import PageProxy
from acstorclient.v1.task import Task
from tests.unit.api.setting import IMAGE, SERVER
from tests.unit.dashboard.site import Site, text_of

PANEL = "/project/acstor_versions/"
LAUNCH = f"{PANEL}launch/"


@pytest.fixture
def version(site: Site) -> str:
    """A version of the server."""
    return site.setting.add_version(name="v", disk=DiskName(DiskKind.INSTANCE, SERVER, "vda"))


@pytest.fixture
def created(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Nova and Neutron; what they are asked to create."""
    site.services.append("network")
    thing = types.SimpleNamespace
    calls: list[Any] = []

    def create(request: Any, *given: Any, **named: Any) -> Any:
        calls.append((given, named))
        return thing(name=given[0])

    monkeypatch.setattr(services.nova, "flavor_list", lambda _: [thing(id="2", name="m1<b>")])
    monkeypatch.setattr(services.nova, "keypair_list", lambda _: [thing(name="laptop")])
    monkeypatch.setattr(
        services.neutron,
        "network_list_for_tenant",
        lambda request, project: [thing(id="net-1", name="private")],
    )
    monkeypatch.setattr(services.nova, "server_create", create)
    return calls


def test_image_is_made_as_a_task(site: Site, version: str) -> None:
    sent = site.post(f"{PANEL}{version}/boot/")
    assert sent["Location"].startswith("/project/acstor_tasks/")
    assert sent["X-Horizon-Location"] == sent["Location"]
    (task,) = site.setting.member.get("/v1/tasks").json["tasks"]
    assert task["kind"] == TaskKind.IMAGE
    assert LAUNCH not in text_of(site.get(sent["Location"]))


def done(task_id: str) -> Task:
    """Return the task that has made the image."""
    return Task.existing(
        id=task_id, kind="image", state="done", progress=1.0, result={"image_id": IMAGE}
    )


def test_image_that_is_there_leads_to_the_server(
    site: Site, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageProxy, "create_version_image", lambda self, version: done(version))
    assert site.post(f"{PANEL}{version}/boot/")["Location"] == f"{LAUNCH}?image_id={IMAGE}"


def test_task_that_is_done_leads_to_the_server(
    site: Site, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageProxy, "get_task", lambda self, task: done(task))
    text = text_of(site.get(f"/project/acstor_tasks/{version}/"))
    assert f"{LAUNCH}?image_id={IMAGE}" in text


def test_server_is_created_with_the_users_token(site: Site, created: list[Any]) -> None:
    form = text_of(site.get(LAUNCH, image_id=IMAGE))
    assert f'value="{IMAGE}"' in form
    assert "m1&amp;lt;b" in form, "Horizon escapes twice"
    assert "m1<b>" not in form
    fields = {"image_id": IMAGE, "name": "web-2", "flavor": "2"}
    sent = site.post(LAUNCH, **fields, networks=["net-1"], key_name="laptop")
    assert sent["Location"].startswith("/project/instances")
    (given, named) = created.pop()
    assert given[:5] == ("web-2", IMAGE, "2", "laptop", None)
    assert named == {"nics": [{"net-id": "net-1"}]}
    assert site.post(LAUNCH, **fields).status_code == 302
    assert created.pop()[1] == {"nics": "auto"}
    assert site.take_calls() == []


@pytest.mark.parametrize("changed", [{"image_id": "../x"}, {"flavor": "9"}, {"name": ""}])
def test_what_makes_no_sense_creates_nothing(
    site: Site, created: list[Any], changed: dict[str, str]
) -> None:
    sent = site.post(LAUNCH, **{"image_id": IMAGE, "name": "web-2", "flavor": "2", **changed})
    assert (sent.status_code, created) == (200, [])


def test_nova_that_refuses_is_told(
    site: Site, created: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from novaclient import exceptions

    def refuse(*given: Any, **named: Any) -> Any:
        raise exceptions.Forbidden(403, "Quota exceeded")

    monkeypatch.setattr(services.nova, "server_create", refuse)
    sent = site.post(LAUNCH, image_id=IMAGE, name="web-2", flavor="2")
    assert sent.status_code in (200, 302, 403)
    assert created == []
