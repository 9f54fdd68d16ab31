"""Panels for administrators: cluster, images, decisions, usage."""

import re
from typing import Any

import pytest
import requests

from acstor.api.user_services import Kind, SeenThing
from acstor.cluster.member import Member
from acstor.cluster.ring.decision import DECISION_REF, Decision
from acstor.cluster.ring.published_ring import RING_REF
from acstor.native import RingHost, build_ring
from acstor.telemetry.host_state_details import DiskHealth
from acstor.telemetry.host_states import HostState
from acstor.versions.database.tasks import NewTask, TaskKind
from acstor_dashboard.cluster import flow
from acstor_dashboard.cluster.views import summary
from tests.unit.api.setting import IMAGE
from tests.unit.dashboard.site import Site, text_of

CLUSTER = "/admin/acstor_cluster/"
IMAGES = "/admin/acstor_images/"
DECISIONS = "/admin/acstor_decisions/"
USAGE = "/admin/acstor_usage/"
PAGES = [CLUSTER, IMAGES, DECISIONS, USAGE]


def member(name: str) -> Member:
    """Return a host that is alive."""
    return Member(
        name=name,
        peer_address="192.0.2.1:9470",
        metrics_address=f"{name}.example:9471",
        capacity_bytes=200 << 30,
        release="0.1.0",
        topology="pod-1/rack-2",
    )


def tell(site: Site, host: str, **fields: Any) -> None:
    """Have a host tell its state."""
    known = {"host": host, "sequence": 1, "release": "0.1.0", "is_up": True, "is_draining": False}
    site.setting.watch.note(HostState(**{**known, **fields}).to_message())


@pytest.fixture
def admin(site: Site) -> Site:
    """An administrator of a cluster of two hosts, and one that is gone."""
    site.api.role = "admin"
    site.setting.members = {name: member(name) for name in ("cmp-1", "cmp-2")}
    hosts = [RingHost(f"cmp-{number}", f"192.0.2.{number}:1", 100) for number in (1, 2, 3)]
    site.setting.origin.swap_ref(RING_REF, None, build_ring(hosts, 64).encode())
    return site


def test_cluster_is_one_call_with_a_picture(admin: Site) -> None:
    tell(admin, "cmp-1", moved_in=100e6, moved_out=10e6, load=0.9, coverage={IMAGE: 1.0})
    tell(admin, "cmp-2", moved_in=0.0, moved_out=60e6, disk=DiskHealth(is_healthy=True, wear=0.2))
    page = admin.get(CLUSTER)
    assert page.status_code == 200
    assert len(admin.take_calls()) == 1
    text = text_of(page)
    svg = text[text.index('<svg class="acstor-flow"') : text.index("</svg>")]
    assert "cmp-1" in svg
    assert 'fill-opacity="0.3"' in svg, "a busy host is pale"
    assert "1 host sends no heartbeat: cmp-3" in text
    assert "Degraded" in text
    plain = text.replace("\xa0", " ")
    assert "At most 66.8 MB/s of it come from other hosts." in plain
    assert "At least 28.6 MB/s of it come from the origin." in plain


def test_cluster_that_has_not_changed_is_not_sent_again(admin: Site) -> None:
    text = text_of(admin.get(CLUSTER))
    (etag,) = re.findall(r'data-acstor-etag="&quot;([0-9a-f]+)&quot;"', text)
    same = admin.browser.get(CLUSTER, headers={"If-None-Match": f'"{etag}"'})
    assert (same.status_code, same.content) == (304, b"")
    tell(admin, "cmp-1", load=0.5)
    fresh = admin.browser.get(CLUSTER, headers={"If-None-Match": f'"{etag}"'})
    assert fresh.status_code == 200
    assert len(admin.take_calls()) == 3
    assert admin.browser.get(CLUSTER, headers={"If-None-Match": "\"'<"}).status_code == 200


def test_thousand_hosts_are_pages(admin: Site) -> None:
    names = [f"cmp-{number:04}" for number in range(1000)]
    admin.setting.members = {name: member(name) for name in names}
    tell(admin, "cmp-0777", moved_in=1e9, load=1.0)
    text = text_of(admin.get(CLUSTER))
    assert text.count("pod-1/rack-2") == 50
    assert len(admin.take_calls()) == 1
    busiest = text_of(admin.get(CLUSTER, order="load"))
    assert busiest.index("<td>cmp-0777</td>") < busiest.index("<td>cmp-0000</td>")
    assert "<td>cmp-0777</td>" in text_of(admin.get(CLUSTER, name="0777"))
    for page in ("0", "-1", "99999999999", "x", "2"):
        assert admin.get(CLUSTER, page=page).status_code == 200


def test_names_of_hosts_are_shown_as_text(admin: Site) -> None:
    text = text_of(admin.get(CLUSTER, name="<script>{$7*7$}"))
    assert "<script>{" not in text
    assert "{$7" not in text
    assert "There are no such hosts." in text


def test_host_is_drained_and_given_back(admin: Site) -> None:
    path = f"{CLUSTER}hosts/cmp-1/"
    assert f"{path}drain/" in text_of(admin.get(CLUSTER))
    assert "The share of cmp-1" in text_of(admin.get(f"{path}drain/"))
    assert admin.post(f"{path}drain/").status_code == 302
    assert admin.setting.deployment.is_drain_wanted("cmp-1")
    assert admin.post(f"{path}undrain/").status_code == 302
    assert not admin.setting.deployment.is_drain_wanted("cmp-1")
    assert "acstor.host.not_found" in text_of(admin.post(f"{CLUSTER}hosts/cmp-9/drain/"))


def host(name: str, received: int | None, sent: int | None, load: float | None = None) -> Any:
    """Return a host of the live state."""
    return {
        "name": name,
        "state": "serving",
        "load": load,
        "moved_in_bytes_per_second": received,
        "moved_out_bytes_per_second": sent,
    }


def test_picture_of_silence_has_no_arrow() -> None:
    for hosts in ([], [host("a", None, None)], [host("a", 0, 0)]):
        picture = flow.draw(hosts)
        assert (picture.arrows, picture.receivers, picture.senders) == ([], [], [])
        assert picture.height > 0


def test_picture_of_a_storm_shows_the_busiest_and_the_rest() -> None:
    hosts = [host(f"h{number:03}", 1000 + number, 500) for number in range(100)]
    picture = flow.draw(hosts)
    assert [bar.name for bar in picture.receivers] == [
        *(f"h{number:03}" for number in range(99, 91, -1)),
        "92 others",
    ]
    among, origin = picture.arrows
    assert among.thickness == flow.ARROW_MAX * 50_000 // 104_950
    assert origin.thickness == flow.ARROW_MAX * 54_950 // 104_950
    assert all(bar.x + bar.width <= flow.WIDTH for bar in (*picture.receivers, *picture.senders))


def test_picture_of_pushes_claims_nothing_of_the_origin() -> None:
    (arrow,) = flow.draw([host("a", 10, 0), host("b", 0, 500)]).arrows
    assert arrow.thickness == flow.ARROW_MAX


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "Healthy"),
        ({"state": "gone"}, "Degraded"),
        ({"is_up": False}, "Failing"),
        ({"disk": {"is_healthy": False}}, "Failing"),
    ],
)
def test_state_of_all_is_one_word(fields: Any, word: str) -> None:
    found = summary([{**host("a", 0, 0), **fields}], 3)
    assert found["word"] == word
    assert bool(found["reasons"]) == (word != "Healthy")


def add_images(site: Site, count: int) -> list[str]:
    """Have Glance show images."""
    ids = [IMAGE, *(f"00000000-0000-4000-8000-{number:012}" for number in range(count - 1))]
    site.setting.user_services.seen[Kind.IMAGE] = [
        SeenThing(image_id, f"i{number}<b>", 1 << 30) for number, image_id in enumerate(ids)
    ]
    site.setting.user_services.owners.update(dict.fromkeys(ids, site.setting.project))
    return ids


def test_images_are_pages_of_glance(admin: Site) -> None:
    add_images(admin, 30)
    text = text_of(admin.get(IMAGES))
    assert len(admin.take_calls()) == 1
    assert len(re.findall(r'data-object-id="', text)) == 20
    assert "i0&lt;b&gt;" in text
    (query,) = set(re.findall(r'href="(\?images_marker=[^"]*|\?marker=[^"]*)"', text))
    text = text_of(admin.browser.get(f"{IMAGES}{query}"))
    assert len(re.findall(r'data-object-id="', text)) == 10


def test_image_is_preloaded_with_progress(admin: Site) -> None:
    add_images(admin, 1)
    path = f"{IMAGES}{IMAGE}/"
    page = text_of(admin.get(path))
    assert len(admin.take_calls()) == 2
    assert "data-acstor-refresh" not in page
    sent = admin.post(f"{path}preload/", hosts="cmp-1, cmp-2\ncmp-1", rate_mib="200")
    assert sent.status_code == 302, text_of(sent)
    page = text_of(admin.get(path))
    assert 'data-acstor-refresh="3"' in page
    assert "cmp-1, cmp-2" in page
    assert "<progress" in page
    (stop,) = re.findall(rf'href="({path}preloads/[^"]*/stop/)"', page)
    assert admin.post(stop).status_code == 302
    assert "Cancelled" in text_of(admin.get(path))
    many = " ".join(f"h{number}" for number in range(201))
    assert "At most 200 hosts" in text_of(admin.post(f"{path}preload/", hosts=many))


def test_decision_in_force_is_explained(admin: Site) -> None:
    assert "There is no decision yet." in text_of(admin.get(DECISIONS))
    weights = {f"cmp-{number:03}": 10_000 for number in range(250)} | {"cmp-1": 5_000}
    decision = Decision(4, 112, "ctl-1", 1_000, "headroom", weights, reason="busy <uplink>")
    admin.setting.origin.swap_ref(DECISION_REF, None, decision.encode())
    admin.take_calls()
    page = text_of(admin.get(DECISIONS))
    assert len(admin.take_calls()) == 2
    assert "busy &lt;uplink&gt;" in page
    assert page.index("<td>cmp-1</td>") < page.index("<td>cmp-000</td>")
    assert page.count("<td>1</td>") == 99
    assert "<td>cmp-249</td>" in text_of(admin.get(DECISIONS, page="3"))


def test_weight_is_pinned_and_given_back(admin: Site) -> None:
    assert admin.post(f"{DECISIONS}pins/create/", host="cmp-2", weight="0.5").status_code == 302
    page = text_of(admin.get(DECISIONS))
    assert f"{DECISIONS}pins/cmp-2/delete/" in page
    assert "<td>0.5</td>" in page
    assert admin.post(f"{DECISIONS}pins/cmp-2/delete/").status_code == 302
    assert admin.setting.deployment.pins().weights == {}
    for weight in ("0", "101", "x"):
        sent = admin.post(f"{DECISIONS}pins/create/", host="cmp-2", weight=weight)
        assert sent.status_code == 200


def test_usage_of_a_project_is_shown(admin: Site) -> None:
    one = admin.setting.add_version(project="another")
    size = {"size_bytes": 3 << 30}
    task = NewTask("t1", "another", TaskKind.EXPORT, f"version/{one}", size)
    admin.setting.stores.tasks.create(task)
    admin.take_calls()
    page = text_of(admin.get(USAGE, project="another"))
    (call,) = admin.take_calls()
    assert call.query == "project_id=another"
    assert re.search(r"Versions</th><td>1<", page)
    assert re.search(r"Being exported</th><td>3.0.GB<", page)


@pytest.mark.parametrize("role", ["nobody", "member", "manager"])
def test_only_administrators_see_them(admin: Site, role: str) -> None:
    admin.api.role = role
    forms = [
        f"{CLUSTER}hosts/cmp-1/drain/",
        f"{IMAGES}{IMAGE}/preload/",
        f"{DECISIONS}pins/create/",
    ]
    for path in [*PAGES, *forms]:
        assert admin.get(path).status_code == 403, path
        assert admin.post(path).status_code == 403, path
    assert admin.take_calls() == []


def test_pages_stand_without_the_api(admin: Site) -> None:
    admin.api.error = requests.exceptions.ReadTimeout("late")
    for path in [*PAGES, f"{IMAGES}{IMAGE}/"]:
        page = admin.get(path)
        assert page.status_code == 200
        assert text_of(page).count('data-acstor-failure="slow"') == 1, path
        assert len(admin.take_calls()) == 1


def test_nothing_is_inline(admin: Site) -> None:
    tell(admin, "cmp-1", moved_in=100e6, moved_out=10e6)
    for path in PAGES:
        text = text_of(admin.get(path))
        body = text[text.index('<div class="acstor"') : text.index('<div id="footer"')]
        assert not re.search(r"<script|<style|\sstyle=|\son\w+=|javascript:", body), path
