"""Tabs and row actions in Horizon's pages of servers and volumes, on the Horizon that is there."""

import importlib
import logging
import pathlib
import re
import types
from typing import Any

import pytest
import requests
from django.conf import settings
from django.test import RequestFactory
from horizon import tables as horizon_tables
from horizon import tabs as horizon_tabs

import acstor_dashboard
from acstor.repository.versions.record import DiskKind, DiskName
from acstor_dashboard.services import row_actions, tabs
from tests.unit.api.setting import SERVER, VOLUME
from tests.unit.dashboard.site import Site, text_of

DASHBOARDS = "openstack_dashboard.dashboards"
DURABILITY = f"/project/acstor_versions/volumes/{VOLUME}/durability/"


def table_of(module: str, name: str) -> Any:
    """Return a class of Horizon's."""
    return getattr(importlib.import_module(f"{DASHBOARDS}.{module}"), name)


@pytest.mark.parametrize(
    ("module", "name", "actions"),
    row_actions.TABLES,
    ids=[f"{module}.{name}" for module, name, _actions in row_actions.TABLES],
)
def test_rows_have_the_actions_once(module: str, name: str, actions: Any) -> None:
    table = table_of(module, name)
    row_actions.extend_tables()
    names = [action.name for action in table._meta.row_actions]
    for action in actions:
        assert names.count(action.name) == 1
        assert isinstance(table.base_actions[action.name], action)
    assert len(names) > len(actions)


def test_tables_of_another_release_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone = (("project.gone", "T", ()), ("project.instances.tables", "Gone", ()))
    monkeypatch.setattr(row_actions, "TABLES", gone)
    with caplog.at_level(logging.WARNING):
        row_actions.extend_tables()
    assert caplog.text.count("get no actions of ACStor") == 2


class Rows(horizon_tables.DataTable):  # type: ignore[misc] # Horizon has no types
    """A table of another panel."""

    class Meta:
        """Options."""

        name = "rows"
        row_actions = ()


row_actions.extend(
    Rows, (row_actions.ServerVersions, row_actions.TakeOfServer, row_actions.VolumeDurability)
)


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("nobody", []),
        ("reader", ["acstor_versions"]),
        ("member", ["acstor_versions", "acstor_take"]),
        ("manager", ["acstor_versions", "acstor_take", "acstor_durability"]),
    ],
)
def test_actions_are_shown_to_who_may(site: Site, role: str, names: list[str]) -> None:
    site.api.role = role
    server = types.SimpleNamespace(id=SERVER, name="web-1")
    assert [action.name for action in Rows(request_of(site)).get_row_actions(server)] == names
    site.services = ["compute"]
    assert Rows(request_of(site)).get_row_actions(server) == []
    assert site.take_calls() == [], "rows are polled"


def test_actions_lead_to_the_server(site: Site) -> None:
    server = types.SimpleNamespace(id=SERVER, name="web-1")
    links = {
        action.name: action.get_link_url(server)
        for action in Rows(request_of(site)).get_row_actions(server)
    }
    assert links == {
        "acstor_versions": f"/project/acstor_versions/servers/{SERVER}/",
        "acstor_take": f"/project/acstor_versions/take/?server_id={SERVER}",
    }


def request_of(site: Site) -> Any:
    """Return a request of the site's user."""
    request = RequestFactory().get("/")
    request.user = site.user(request)
    request.horizon = {"async_messages": []}
    request.session = {}
    return request


@pytest.mark.parametrize("group", sorted(settings.HORIZON_CONFIG["extra_tabs"]))
def test_tabs_are_those_that_horizon_has(
    site: Site, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openstack_dashboard.api.neutron.is_extension_supported", lambda *_: True)
    module, _dot, name = group.rpartition(".")
    group_class = getattr(importlib.import_module(module), name)
    assert issubclass(group_class, horizon_tabs.TabGroup)
    kwargs = {
        "instance": types.SimpleNamespace(id=SERVER, name="web-1"),
        "volume": types.SimpleNamespace(id=VOLUME, name="data", group_id=None),
        "snapshots": [],
    }
    shown = group_class(request_of(site), **kwargs)
    (tab,) = [each for each in shown.get_tabs() if isinstance(each, tabs.VersionsTab)]
    assert tab.render() == "", "it is asked for when somebody opens it"
    assert site.take_calls() == []


def tab_of(site: Site, kind: type[tabs.VersionsTab]) -> str:
    """Return a tab that somebody has opened."""

    class Group(horizon_tabs.TabGroup):  # type: ignore[misc] # Horizon has no types
        slug = "group"
        tabs = (kind,)

    server = types.SimpleNamespace(id=SERVER, name="web-1")
    volume = types.SimpleNamespace(id=VOLUME, name="data")
    group = Group(request_of(site), instance=server, volume=volume)
    (tab,) = group.get_tabs()
    return str(tab.render())


def test_tab_of_a_server_has_its_versions(site: Site) -> None:
    disk = DiskName(DiskKind.INSTANCE, SERVER, "vda")
    for name in ("before<b>", "{$7*7$}"):
        site.setting.add_version(name=name, disk=disk)
    text = tab_of(site, tabs.ServerTab)
    assert len(site.take_calls()) == 1
    assert text.count("<circle") == 2
    assert "before&lt;b&gt;" in text
    assert "{$7" not in text
    assert f"take/?server_id={SERVER}" in text


def test_tab_of_an_administrator_has_those_of_any_project(site: Site) -> None:
    disk = DiskName(DiskKind.INSTANCE, SERVER, "vda")
    site.setting.add_version(name="others", disk=disk, project="another")
    assert "others" not in tab_of(site, tabs.ServerTab)
    site.api.role = "admin"
    text = tab_of(site, tabs.AdminServerTab)
    assert "others" in text
    assert "take/?" not in text


def test_tab_of_a_foreign_volume_says_so(site: Site) -> None:
    text = tab_of(site, tabs.VolumeTab)
    assert len(site.take_calls()) == 2
    assert "does not serve this volume" in text
    assert 'role="alert"' not in text


def test_tabs_stand_without_the_api(site: Site) -> None:
    site.api.error = requests.exceptions.ConnectionError("refused")
    for kind in (tabs.ServerTab, tabs.VolumeTab):
        assert 'data-acstor-failure="down"' in tab_of(site, kind)


def test_every_page_of_horizon_loads_little_more() -> None:
    folder = pathlib.Path(acstor_dashboard.__file__).parent / "static"
    files = [path for path in folder.rglob("*") if path.is_file()]
    named = {*settings.HORIZON_CONFIG["js_files"], *settings.HORIZON_CONFIG["scss_files"]}
    assert {str(path.relative_to(folder)) for path in files} <= named
    assert sum(path.stat().st_size for path in files) < 30_000
    for path in files:
        assert not re.search(r"innerHTML|eval\(|https?://|#[0-9a-f]{3,6};", path.read_text())


def test_durability_is_changed_by_a_manager(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from acstor_dashboard.connection import PageProxy
    from acstorclient.v1.volume import Volume

    assert site.get(DURABILITY).status_code == 403
    site.api.role = "manager"
    assert 'data-acstor-failure="gone"' in text_of(site.get(DURABILITY)), "not ACStor's"
    shown = Volume.existing(
        id=VOLUME,
        durability="write-back",
        interval_seconds=30,
        recovery_point={"at": "2026-11-26T12:00:00Z", "age_seconds": 12},
        dirty_bytes=1 << 20,
    )
    changes = []
    monkeypatch.setattr(PageProxy, "get_volume", lambda self, volume: shown)
    monkeypatch.setattr(
        PageProxy, "update_volume", lambda self, volume, **fields: changes.append(fields)
    )
    text = text_of(site.get(DURABILITY))
    assert "12 s ago" in text
    assert "1.0" in text
    sent = site.post(DURABILITY, durability="write-through", interval_seconds="10")
    assert sent.status_code == 302
    assert changes == [{"durability": "write-through", "interval_seconds": 10.0}]
