"""Panel of versions: what it shows, what it asks of the API, what it survives."""

import html
import json
import re
import uuid
from typing import Any

import pytest
import requests

from acstor.repository import layout
from acstor.repository.versions.record import DiskKind, DiskName
from acstor.repository.volumes.record import SnapshotRecord
from acstor.versions.database.tasks import TaskKind, TaskQuery
from tests.unit.api.setting import SERVER, VOLUME
from tests.unit.dashboard.site import Site, text_of

PANEL = "/project/acstor_versions/"
SERVER_DISK = DiskName(DiskKind.INSTANCE, SERVER, "vda")
VOLUME_DISK = DiskName(DiskKind.VOLUME, VOLUME, "")
NASTY = "<script>alert(1)</script>{$7*7$}&\"'"


def add(site: Site, count: int = 1, **fields: Any) -> list[str]:
    """Make versions of the server, a second apart, and return their ids."""
    found = []
    for number in range(count):
        site.setting.clock.now = site.setting.later(seconds=1)
        known = {"name": f"v{number}", "disk": SERVER_DISK, "created_at": site.setting.clock.now}
        found.append(site.setting.add_version(**{**known, **fields}))
    site.take_calls()
    return found


def pages(version: str) -> list[str]:
    """Return the paths of pages that show a version of the server."""
    one = [f"{version}/", f"{version}/delete/", f"{version}/compare/"]
    return ["", *one, f"servers/{SERVER}/"]


def shown(name: str) -> str:
    """Return a name as Horizon escapes it: its braces of Angular are others."""
    return html.escape(name).replace("{$", "{%").replace("$}", "%}")


def paths(site: Site) -> list[str]:
    """Return method and path of the calls since the last time."""
    return [f"{call.method} {call.path}" for call in site.take_calls()]


def test_list_is_two_calls_whatever_the_number_of_rows(site: Site) -> None:
    add(site, 25)
    page = site.get(PANEL)
    assert page.status_code == 200
    assert paths(site) == ["GET /v1/versions", "GET /v1/usage"]
    text = text_of(page)
    assert len(re.findall(r'<tr[^>]* data-object-id="', text)) == 20
    assert "v24" in text
    assert ">v4<" not in text


def test_pages_lead_on_and_back(site: Site) -> None:
    add(site, 45)
    seen: list[str] = []
    query = ""
    for _ in range(3):
        text = text_of(site.browser.get(f"{PANEL}{query}"))
        seen += re.findall(r"<td[^>]*>\s*(v\d+)\s*</td>", text)
        links = [html.unescape(each) for each in re.findall(r'href="(\?[^"]*marker=[^"]*)"', text)]
        query = links[-1]
    assert seen == [f"v{number}" for number in reversed(range(45))]
    back = text_of(site.browser.get(f"{PANEL}{query}"))
    assert re.findall(r"<td[^>]*>\s*(v\d+)\s*</td>", back)[0] == "v24"


def test_filter_is_the_apis(site: Site) -> None:
    add(site, 3)
    add(site, 1, name="in:v0,v1")
    field = "versions__filter__q"
    sent = site.post(PANEL, **{field: "in:v0,v1", f"{field}_field": "name"})
    assert sent.status_code == 302
    text = text_of(site.get(PANEL))
    (call, _usage) = site.take_calls()
    assert "name=eq%3Ain%3Av0%2Cv1" in call.query
    assert re.findall(r"<td[^>]*>\s*(v\d+|in:v0,v1)\s*</td>", text) == ["in:v0,v1"]


def test_filter_that_the_api_refuses_can_be_changed(site: Site) -> None:
    add(site)
    field = "versions__filter__q"
    assert site.post(PANEL, **{field: "maybe", f"{field}_field": "locked"}).status_code == 302
    refused = text_of(site.get(PANEL))
    assert 'data-acstor-failure="invalid"' in refused
    assert f'name="{field}"' in refused
    site.post(PANEL, **{field: "", f"{field}_field": "locked"})
    assert "data-acstor-failure" not in text_of(site.get(PANEL))


@pytest.mark.parametrize("query", ["prev_marker", "marker"])
def test_page_beside_a_version_that_is_gone_is_the_first(site: Site, query: str) -> None:
    add(site, 3)
    gone = "00000000-0000-4000-8000-000000000000"
    text = text_of(site.browser.get(PANEL, {query: gone}))
    assert "The list has changed" in text
    assert re.findall(r"<td[^>]*>\s*(v\d+)\s*</td>", text) == ["v2", "v1", "v0"]
    assert len(site.take_calls()) == 3


@pytest.mark.parametrize("content", [b"{}", b'{"diff": {"changed_bytes": "x"}}', b"[]"])
def test_difference_that_is_none_breaks_nothing(site: Site, content: bytes) -> None:
    from types import SimpleNamespace

    from openstack import exceptions

    from acstor_dashboard.versions import compare

    response = SimpleNamespace(json=lambda: json.loads(content), url="u")
    api: Any = SimpleNamespace(get=lambda path, params: response)
    with pytest.raises(exceptions.InvalidResponse):
        compare.fetch(api, "a", "b", 1)


@pytest.mark.parametrize("name", [NASTY, "{{ 7|add:7 }}", "x" * 255])
def test_names_are_shown_as_text(site: Site, name: str) -> None:
    (version,) = add(site, name=name, labels={"a": name} if len(name) < 200 else {})
    for path in (
        "",
        f"{version}/",
        f"{version}/delete/",
        f"{version}/compare/",
        f"servers/{SERVER}/",
    ):
        text = text_of(site.get(f"{PANEL}{path}"))
        body = text[text.index('<div class="acstor"') :]
        assert "<script>alert" not in text
        assert "{$7" not in text
        assert "14" not in re.findall(r">\s*14\s*<", body)
        assert (
            html.escape(name).replace("{$", "{%").replace("$}", "%}").replace("&#x27;", "&#x27;")
            in text
        )


def test_nothing_is_inline_and_angular_leaves_it_alone(site: Site) -> None:
    (version,) = add(site)
    for path in ("", f"{version}/", f"{version}/delete/", f"servers/{SERVER}/"):
        text = text_of(site.get(f"{PANEL}{path}"))
        body = text[text.index('<div class="acstor"') : text.index('<div id="footer"')]
        assert body.startswith('<div class="acstor" ng-non-bindable>')
        assert not re.search(r"<script|<style|\sstyle=|\son\w+=|javascript:", body)
        assert not re.search(r'(?:src|href)="(?:https?:)?//', body)


def test_timeline_has_the_versions_of_one_server(site: Site) -> None:
    add(site, 3)
    add(site, 2, disk=DiskName(DiskKind.INSTANCE, SERVER, "vdb"), name="second")
    add(site, 1, disk=VOLUME_DISK, name="data")
    text = text_of(site.get(f"{PANEL}servers/{SERVER}/"))
    assert paths(site) == ["GET /v1/versions"]
    svg = text[text.index("<svg") : text.index("</svg>")]
    assert svg.count("<circle") == 5
    assert "<title" in svg
    assert "<desc" in svg
    assert "vda" in svg
    assert "vdb" in svg
    assert "data" not in re.findall(r"<td[^>]*>\s*(\w+)\s*</td>", text)
    assert f"take/?server_id={SERVER}" in text
    text = text_of(site.get(f"{PANEL}volumes/{VOLUME}/"))
    assert text.count("<circle") == 1
    assert f"take/?volume_id={VOLUME}" in text


def test_timeline_of_many_is_one_call_more(site: Site) -> None:
    add(site, 30)
    text = text_of(site.get(f"{PANEL}servers/{SERVER}/"))
    assert paths(site) == ["GET /v1/versions", "GET /v1/versions"]
    assert text.count("<circle") == 30


def test_details_say_what_changed(site: Site) -> None:
    (first,) = add(site)
    (second,) = add(site, parent=first)
    page = text_of(site.get(f"{PANEL}{second}/"))
    assert paths(site) == [f"GET /v1/versions/{second}", f"GET /v1/versions/{second}/diff"]
    assert "Changed since the version before" in page
    assert f"{PANEL}{first}/" in page


def test_comparison_has_two_calls_and_a_picture(site: Site) -> None:
    first, second = add(site, 2)
    choice = text_of(site.get(f"{PANEL}{second}/compare/"))
    assert len(paths(site)) == 2
    assert f'value="{first}"' in choice
    page = text_of(site.get(f"{PANEL}{second}/compare/", against=first))
    assert len(paths(site)) == 2
    assert "of the disk differ" in page
    assert "<svg" in page


@pytest.mark.parametrize("role", ["nobody", "reader"])
def test_who_may_not_is_shown_nothing_of_it(site: Site, role: str) -> None:
    (version,) = add(site)
    site.api.role = role
    page = site.get(PANEL)
    assert page.status_code == (403 if role == "nobody" else 200)
    text = text_of(page)
    for path in ("take/", f"{version}/delete/", f"{version}/lock/", f"{version}/boot/"):
        assert f"{PANEL}{path}" not in text
        assert site.get(f"{PANEL}{path}").status_code == 403
        assert site.post(f"{PANEL}{path}").status_code == 403
    assert not [call for call in site.take_calls() if call.method != "GET"]


def test_panel_is_absent_where_the_region_has_no_api(site: Site) -> None:
    site.services = ["identity"]
    page = site.get(PANEL)
    assert page.status_code == 403
    assert site.take_calls() == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (requests.exceptions.ConnectionError("refused"), "down"),
        (requests.exceptions.ReadTimeout("late"), "slow"),
    ],
)
def test_pages_stand_without_the_api(site: Site, error: Exception, kind: str) -> None:
    (version,) = add(site)
    site.api.error = error
    for path in (
        "",
        f"{version}/",
        f"{version}/delete/",
        f"{version}/compare/",
        f"servers/{SERVER}/",
    ):
        page = site.get(f"{PANEL}{path}")
        text = text_of(page)
        assert page.status_code == 200, path
        assert text.count(f'data-acstor-failure="{kind}"') == 1, path
        assert "There are no items" not in text
        assert len(site.take_calls()) == 1
    sent = site.post(f"{PANEL}{version}/lock/", reason="r")
    assert sent.status_code == 200
    assert "ACStor&#x27;s API" in text_of(sent)


def test_an_older_api_is_told(site: Site) -> None:
    error = {"title": "t", "detail": "no such path", "code": "acstor.path.not_found"}
    site.api.answer = ("404 Not Found", json.dumps({"errors": [error]}).encode())
    text = text_of(site.get(PANEL))
    assert 'data-acstor-failure="other_release"' in text


def test_a_session_that_is_over_leads_to_the_login_and_back(site: Site) -> None:
    (version,) = add(site)
    site.api.answer = ("401 Unauthorized", b"{}")
    page = site.get(f"{PANEL}{version}/delete/")
    assert page.status_code == 302
    assert page["Location"].endswith(f"?next={PANEL}{version}/delete/")


def test_a_session_that_ends_in_a_form_leads_back_to_it(site: Site) -> None:
    (version,) = add(site)
    site.api.answer = ("401 Unauthorized", b"{}")
    path = f"{PANEL}{version}/lock/"
    sent = site.post(path, reason="r")
    assert sent.status_code == 302
    assert sent["Location"].endswith(f"?next={path}")
    headers = {"X-Requested-With": "XMLHttpRequest"}
    window = site.browser.post(path, {"reason": "r"}, headers=headers)
    assert window.status_code == 401
    assert window["X-Horizon-Location"].endswith(f"?next={path}")
    site.api.answer = None
    assert site.setting.member.get(f"/v1/versions/{version}").json["version"]["lock"] is None


def test_version_of_another_is_not_there(site: Site) -> None:
    (version,) = add(site, project="another")
    text = text_of(site.get(f"{PANEL}{version}/"))
    assert 'data-acstor-failure="gone"' in text


def test_every_form_is_a_page_and_a_window(site: Site) -> None:
    (version,) = add(site, disk=VOLUME_DISK)
    site.api.role = "manager"
    names = ["boot", "restore", "export", "edit", "lock", "unlock", "delete"]
    for path in ["take/", *(f"{version}/{name}/" for name in names)]:
        page, window = site.get(f"{PANEL}{path}"), site.get(f"{PANEL}{path}", is_ajax=True)
        assert (page.status_code, window.status_code) == (200, 200)
        assert "<html" in text_of(page)
        assert "<html" not in text_of(window)
        assert f'action="{PANEL}{path}"' in text_of(window)
        assert len(site.take_calls()) <= 2


def test_version_is_taken_as_a_task(site: Site) -> None:
    form = text_of(site.get(f"{PANEL}take/", server_id=SERVER))
    assert f'value="{SERVER}"' in form
    sent = site.post(
        f"{PANEL}take/",
        kind="server",
        owner=SERVER,
        name="before",
        consistency="crash",
        expires_at="2999-12-24 18:00",
    )
    assert sent.status_code == 302, text_of(sent)
    assert paths(site) == ["POST /v1/versions"]
    task = text_of(site.get(sent["Location"]))
    assert "Queued" in task
    assert 'data-acstor-refresh="3"' in task
    assert len(site.take_calls()) == 1


def test_form_that_is_sent_twice_begins_one_task(site: Site) -> None:
    form = text_of(site.get(f"{PANEL}take/", server_id=SERVER))
    (nonce,) = re.findall(r'name="nonce" value="([0-9a-f-]{36})"', form)
    fields = {"kind": "server", "owner": SERVER, "consistency": "best", "nonce": nonce}
    sent = [site.post(f"{PANEL}take/", **fields) for _ in range(2)]
    assert sent[0]["Location"] == sent[1]["Location"]
    other = site.post(f"{PANEL}take/", **fields, name="another")
    assert other["Location"] != sent[0]["Location"]
    assert len(site.setting.member.get("/v1/tasks").json["tasks"]) == 2


def test_name_of_a_server_is_looked_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from openstack_dashboard import api

    servers = [SimpleNamespace(id=SERVER, name="web-1")]
    monkeypatch.setattr(api.nova, "server_list", lambda *given, **named: (servers, False))
    path = f"{PANEL}take/"
    fields = {"kind": "server", "consistency": "best"}
    assert site.post(path, owner="web-1", **fields).status_code == 302
    assert "none of this name" in text_of(site.post(path, owner="web-2", **fields))
    servers.append(SimpleNamespace(id="other", name="web-1"))
    assert "Several have this name" in text_of(site.post(path, owner="web-1", **fields))
    monkeypatch.setattr(api.nova, "server_list", lambda *given, **named: 1 / 0)
    assert "give the ID" in text_of(site.post(path, owner="web-1", **fields))
    assert len([call for call in site.take_calls() if call.method == "POST"]) == 1


def test_lock_keeps_and_unlock_says_what_it_means(site: Site) -> None:
    (version,) = add(site)
    path = f"{PANEL}{version}/"
    assert "is required" in text_of(site.post(f"{path}lock/"))
    assert site.post(f"{path}lock/", reason="ransomware").status_code == 302
    shown = text_of(site.get(path))
    assert "ransomware" in shown
    assert f"{path}delete/" not in shown
    assert f"{path}unlock/" not in shown, "for managers"
    refused = text_of(site.post(f"{path}delete/"))
    assert "acstor.version.locked" in refused
    site.api.role = "manager"
    assert "can delete it" in text_of(site.get(f"{path}unlock/"))
    assert site.post(f"{path}unlock/").status_code == 302
    assert site.post(f"{path}delete/").status_code == 302
    assert 'data-acstor-failure="gone"' in text_of(site.get(path))
    again = text_of(site.post(f"{path}delete/"))
    assert "somebody may have deleted it" in again


def test_delete_says_what_is_lost(site: Site) -> None:
    (version,) = add(site, name="before-upgrade")
    text = text_of(site.get(f"{PANEL}{version}/delete/"))
    assert "The restore point before-upgrade of 2026-11-26" in text
    assert "that no other version holds" in text
    assert "Deleting is not erasing" in text


def test_name_and_expiry_change(site: Site) -> None:
    (version,) = add(site)
    path = f"{PANEL}{version}/edit/"
    assert site.post(path, name=NASTY, expires_at="2999-12-24 18:00").status_code == 302
    text = text_of(site.get(path))
    assert "2999-12-24 18:00:00" in text
    assert site.post(path, name="x", expires_at="").status_code == 302
    assert "2999" not in text_of(site.get(path))


def test_export_and_restore_are_tasks(site: Site) -> None:
    (version,) = add(site, disk=VOLUME_DISK)
    path = f"{PANEL}{version}/"
    text = text_of(site.get(f"{path}restore/"))
    assert "What was written since 2026-11-26" in text
    sent = site.post(f"{path}restore/", method="auto", scope="version", keep_current="on")
    assert sent.status_code == 302, text_of(sent)
    assert paths(site)[-2:] == [f"GET /v1/versions/{version}", "POST /v1/restores"]
    sent = site.post(f"{path}export/", name="golden", disk_format="raw")
    assert sent["Location"].startswith("/project/acstor_tasks/")


def test_disks_of_a_server_are_restored_as_a_set(site: Site) -> None:
    disks = [DiskName(DiskKind.INSTANCE, SERVER, device) for device in ("vda", "vdb")]
    group = str(uuid.UUID(int=90))
    versions = [add(site, disk=disk, group=group, group_size=2)[0] for disk in disks]
    path = f"{PANEL}{versions[0]}/restore/"
    assert "A virtual TPM stays" in text_of(site.get(path))
    wanted = {"method": "auto", "keep_current": "on", "keep_nvram": "on"}
    assert site.post(path, scope="group", **wanted).status_code == 302
    (task,) = site.setting.stores.tasks.page(TaskQuery(kinds=frozenset({TaskKind.RESTORE})))
    assert task.parameters["versions"] == sorted(versions)
    assert (task.parameters["restore_nvram"], task.parameters["group_id"]) == (False, group)


def test_snapshot_of_a_volume_is_shown_only(site: Site) -> None:
    snapshot, setting = str(uuid.UUID(int=300)), site.setting
    record = SnapshotRecord(VOLUME, 512, None, created_at="2026-11-26T11:00:00+00:00", name="s")
    setting.origin.swap_ref(layout.snapshot_ref(snapshot), None, record.encode())
    setting.refresh(snapshot)
    site.api.role = "manager"
    (version,) = add(site, disk=VOLUME_DISK)
    for one, is_shown in ((version, True), (snapshot, False)):
        text = text_of(site.get(f"{PANEL}{one}/"))
        assert ("Snapshot of the volume" in text) != is_shown
        for page in ("delete", "lock", "edit", "restore", "boot", "export"):
            assert (f"{one}/{page}/" in text) == is_shown, page


def test_what_the_api_cannot_restore_it_says(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from acstor.versions.database.schedule_store import TargetKind

    (version,) = add(site)
    backends = site.setting.backends
    object.__setattr__(backends, "restorable", frozenset({TargetKind.VOLUME}))
    sent = site.post(f"{PANEL}{version}/restore/", method="auto", scope="group")
    assert sent.status_code == 200
    assert "does not put a server back in place" in text_of(sent)
    assert "boot another server of the version" in text_of(sent)
