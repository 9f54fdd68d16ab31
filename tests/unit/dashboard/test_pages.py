"""Every page of every panel: it is there, in both languages, and fit for keyboard and reader."""

import re
from collections.abc import Iterator

import lxml.html
import pytest
from django import urls

from acstor.api.user_services import Kind, SeenThing
from acstor.cluster.member import Member
from acstor.repository.versions.record import DiskKind, DiskName
from tests.unit.api.setting import IMAGE, SERVER, VOLUME
from tests.unit.dashboard.site import Site, text_of

PANELS = {
    "project": ("acstor_versions", "acstor_schedules", "acstor_tasks"),
    "admin": (
        "acstor_cluster",
        "acstor_images",
        "acstor_decisions",
        "acstor_usage",
        "acstor_origins",
    ),
}
ELSEWHERE = {
    "acstor_versions:launch",
    "acstor_versions:file_content",
    "acstor_versions:file_archive",
}
"""Pages that ask Nova and Neutron, and downloads; test_boot.py and test_files.py have them."""


def names(dashboard: str, panel: str) -> list[str]:
    """Return the names of a panel's URLs."""
    resolver = urls.get_resolver()
    for part in ("horizon", dashboard, panel):
        resolver = resolver.namespace_dict[part][1]
    return sorted(name for name in resolver.reverse_dict if isinstance(name, str))


@pytest.fixture
def admin(site: Site) -> Site:
    """An administrator with one of everything."""
    site.api.role = "admin"
    disk = DiskName(DiskKind.INSTANCE, SERVER, "vda")
    site.ids = {
        "owner": SERVER,
        "version": site.setting.add_version(name="v", disk=disk),
        "schedule": site.setting.add_schedule(),
        "task": site.setting.add_task(),
        "target": VOLUME,
        "image": IMAGE,
        "preload": IMAGE,
        "host": "cmp-1",
        "member": "ceph",
    }
    site.setting.members = {
        "cmp-1": Member("cmp-1", "192.0.2.1:1", "cmp-1:1", 1 << 30, "0.1.0", topology="r1")
    }
    site.setting.user_services.seen[Kind.IMAGE] = [SeenThing(IMAGE, "i", 1 << 30)]
    site.setting.user_services.owners[IMAGE] = site.setting.project
    return site


def paths(site: Site, dashboard: str, panel: str) -> Iterator[str]:
    """Yield the paths of a panel's pages."""
    resolver = urls.get_resolver()
    for part in ("horizon", dashboard, panel):
        resolver = resolver.namespace_dict[part][1]
    for name in names(dashboard, panel):
        if f"{panel}:{name}" not in ELSEWHERE:
            wanted = resolver.reverse_dict.getlist(name)[0][0][0][1]
            kwargs = {key: site.ids[key] for key in wanted}
            yield urls.reverse(f"horizon:{dashboard}:{panel}:{name}", kwargs=kwargs)


ALL = [(dashboard, panel) for dashboard, panels in PANELS.items() for panel in panels]


@pytest.mark.parametrize(("dashboard", "panel"), ALL, ids=[panel for _dashboard, panel in ALL])
def test_every_page_is_there(admin: Site, dashboard: str, panel: str) -> None:
    found = list(paths(admin, dashboard, panel))
    assert found
    for path in found:
        page = admin.get(path)
        assert page.status_code == 200, path
        text = text_of(page)
        check_structure(text, path)
        assert not re.search(r"data-acstor-failure=\"(?!gone|invalid)", text), path


def check_structure(text: str, path: str) -> None:
    """Check what a reader of the screen needs, in the plug-in's part of a page."""
    (part,) = lxml.html.fromstring(text).xpath("//div[@class='acstor']")
    assert part.get("ng-non-bindable") is not None, path
    ids = part.xpath(".//@id")
    assert len(ids) == len(set(ids)), path
    for drawing in part.xpath(".//svg"):
        assert drawing.get("role") == "img", path
        named = drawing.get("aria-labelledby").split()
        assert set(named) <= set(drawing.xpath(".//title/@id | .//desc/@id")), path
    for table in part.xpath(".//table"):
        assert table.xpath("./caption"), path
    labelled = set(part.xpath(".//label/@for"))
    own = part.xpath(".//form[@method='get']//*[self::input[not(@type='hidden')] or self::select]")
    assert {control.get("id") for control in own} <= labelled, path
    for link in part.xpath(".//a[@href]"):
        assert link.text_content().strip() or link.get("title") or link.xpath(".//span"), path


@pytest.mark.parametrize("group", ["Versions", "ACStor"])
def test_panels_are_in_the_menu(admin: Site, group: str) -> None:
    text = text_of(admin.get("/project/acstor_versions/"))
    assert group in text
    for panel in PANELS["project"] if group == "Versions" else PANELS["admin"]:
        assert f"/{panel}/" in text
