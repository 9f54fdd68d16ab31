"""Panel of origins: members of the origin, for administrators."""

import re
from typing import Any

import pytest
import requests

from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.member_records import MembersRecord
from acstor.origin.replicated.members_status import MembersStatus, MemberStatus, write_status
from acstor.origin.replicated.membership import Membership, read_record
from acstor.origin.replicated.states import MemberEvent, MemberState
from acstor_dashboard.origins.views import row_of, summary
from acstorclient.v1.origin_member import OriginMember
from tests.unit.dashboard.site import Site, text_of

ORIGINS = "/admin/acstor_origins/"
DRAIN = f"{ORIGINS}members/ceph/drain/"
KEEP = f"{ORIGINS}members/ceph/keep/"


@pytest.fixture
def admin(site: Site) -> Site:
    """An administrator."""
    site.api.role = "admin"
    return site


@pytest.fixture
def membership(admin: Site) -> Membership:
    """Members of the API's origin: its store, and another one that is filled."""
    made = Membership("nfs", {"nfs": admin.setting.origin, "ceph": MemoryOrigin()})
    made.create()
    made.change("ceph", MemberEvent.FILLED)
    return made


def tell(site: Site, **members: MemberStatus) -> None:
    """Have the registrar that leads have seen members."""
    write_status(site.setting.origin, MembersStatus(1_000.0, "ctl1", 1_000.0, members))


def record(site: Site) -> MembersRecord:
    """Return the members as the home has them."""
    return read_record("nfs", site.setting.origin)


def test_origin_of_one_store_says_so(admin: Site) -> None:
    text = text_of(admin.get(ORIGINS))
    assert "The origin is one store and has no members." in text
    assert "data-acstor-refresh" not in text
    assert len(admin.take_calls()) == 1


def test_members_are_shown_as_the_registrar_saw_them(admin: Site, membership: Membership) -> None:
    tell(
        admin,
        nfs=MemberStatus(True, 0, 3 << 30, 0, None, ""),
        ceph=MemberStatus(False, 5 << 30, 0, 2, 61.4, "member <b>ceph did not answer"),
    )
    text = text_of(admin.get(ORIGINS)).replace("\xa0", " ")
    assert [call.path for call in admin.take_calls()] == ["/v1/origin/members"]
    (_, nfs, ceph) = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    assert "<td>Home</td>" in nfs
    assert "<td>3.0 GB</td>" in nfs
    assert "<a " not in nfs
    assert "<td>5.0 GB</td>" in ceph
    assert "2 behind, 61 s old" in ceph
    assert "member &lt;b&gt;ceph" in ceph
    assert DRAIN in ceph
    assert "<strong>Degraded</strong>" in text
    assert "ceph is away" in text
    assert "nfs alone has 3.0 GB" in text
    assert "ceph lacks 5.0 GB" in text
    assert 'data-acstor-refresh="10"' in text


def test_page_of_members_that_have_all_is_still(admin: Site, membership: Membership) -> None:
    whole = MemberStatus(True, 0, 0, 0, 1.0, "")
    tell(admin, nfs=whole, ceph=whole)
    text = text_of(admin.get(ORIGINS))
    assert "<strong>Healthy</strong>" in text
    assert "data-acstor-refresh" not in text


def test_member_is_drained_and_kept(admin: Site, membership: Membership) -> None:
    form = text_of(admin.get(DRAIN))
    assert "The copies that ceph would have got" in form
    assert admin.post(DRAIN).status_code == 302
    assert record(admin).members["ceph"].state is MemberState.DRAINING
    assert KEEP in text_of(admin.get(ORIGINS))
    assert admin.post(KEEP).status_code == 302
    assert record(admin).members["ceph"].state is MemberState.ACTIVE


@pytest.mark.parametrize(
    ("name", "words"),
    [("nfs", "home"), ("other", "acstor.origin_member.not_found"), ("{$7*7$}", "not_found")],
)
def test_member_that_cannot_be_drained_is_explained(
    admin: Site, membership: Membership, name: str, words: str
) -> None:
    sent = admin.post(f"{ORIGINS}members/{name}/drain/")
    assert sent.status_code == 200
    (errors,) = re.findall(r'<div class="alert alert-danger">(.*?)</div>', text_of(sent), re.S)
    assert words in errors
    assert "{$" not in errors


@pytest.mark.parametrize("role", ["nobody", "member", "manager"])
def test_only_administrators_see_them(admin: Site, membership: Membership, role: str) -> None:
    admin.api.role = role
    for path in (ORIGINS, DRAIN, KEEP):
        assert admin.get(path).status_code == 403
        assert admin.post(path).status_code == 403
    assert admin.take_calls() == []
    assert record(admin).members["ceph"].state is MemberState.ACTIVE


def test_page_stands_without_the_api(admin: Site) -> None:
    admin.api.error = requests.exceptions.ReadTimeout("late")
    page = admin.get(ORIGINS)
    assert page.status_code == 200
    assert text_of(page).count('data-acstor-failure="slow"') == 1
    assert "one store" not in text_of(page)


def member(name: str = "ceph", **fields: Any) -> OriginMember:
    """Return a member in use that has all."""
    whole = {"state": "active", "reachable": True, "owed_bytes": 0, "sole_bytes": 0, "seen_at": "x"}
    return OriginMember.existing(name=name, **{**whole, **fields})


@pytest.mark.parametrize(
    ("members", "word", "says"),
    [
        ([member()], "Healthy", []),
        ([member(home=True, reachable=False)], "Failing", ["the home, is away"]),
        ([member(reachable=False)], "Degraded", ["is away"]),
        ([member(sole_bytes=1)], "Degraded", ["alone has"]),
        ([member(owed_bytes=1)], "Degraded", ["lacks"]),
        ([member(owed_bytes=1, state="draining")], "Healthy", []),
        ([member(seen_at=None, reachable=None)], "Degraded", ["No registrar"]),
        ([member(state="failed", reachable=False, owed_bytes=9)], "Healthy", []),
    ],
)
def test_state_of_all_is_one_word_with_reasons(
    members: list[OriginMember], word: str, says: list[str]
) -> None:
    found = summary(members)
    assert found["word"] == word
    assert len(found["reasons"]) == len(says)
    assert all(part in reason for part, reason in zip(says, found["reasons"], strict=True))


@pytest.mark.parametrize("state", ["failed", "removed"])
def test_of_a_member_that_is_gone_only_the_state_is_shown(state: str) -> None:
    row = row_of(member(state=state, owed_bytes=9, sole_bytes=9, reachable=False))
    assert [row[name] for name in ("reachable", "owed", "sole", "refs")] == ["\N{EN DASH}"] * 4


def test_state_of_a_newer_api_is_shown_as_it_is() -> None:
    assert row_of(member(state="asleep"))["state"] == "asleep"
