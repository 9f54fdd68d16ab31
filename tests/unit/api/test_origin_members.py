"""Members of the origin over the API."""

import pytest

from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.members_status import MembersStatus, MemberStatus, write_status
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.states import MemberEvent
from testbed.fixtures.api_callers import TestCaller, first_error
from tests.unit.api.setting import Setting

PATH = "/v1/origin/members"


@pytest.fixture
def admin(api: Setting) -> TestCaller:
    return api.member.as_role("admin")


@pytest.fixture
def membership(api: Setting) -> Membership:
    """Members of the API's origin: its store, and another one that is filled."""
    made = Membership("nfs", {"nfs": api.origin, "ceph": MemoryOrigin()})
    made.create()
    made.change("ceph", MemberEvent.FILLED)
    return made


def test_origin_of_one_store_has_no_members(admin: TestCaller) -> None:
    assert admin.get(PATH).json["origin_members"] == []
    answer = admin.get(f"{PATH}/nfs")
    assert (answer.status_code, first_error(answer)["code"]) == (
        404,
        "acstor.origin_member.not_found",
    )


def test_members_are_shown_as_the_registrar_saw_them(
    admin: TestCaller, api: Setting, membership: Membership
) -> None:
    (home, ceph) = admin.get(PATH).json["origin_members"]
    assert (home["name"], home["home"], home["state"]) == ("nfs", True, "active")
    assert (ceph["reachable"], ceph["owed_bytes"], ceph["seen_at"]) == (None, None, None)
    seen = MemberStatus(False, 5 << 30, 7, 2, 61.4, "member ceph did not answer")
    write_status(api.origin, MembersStatus(1_000.0, "ctl1", 1_000.0, {"ceph": seen}))
    shown = admin.get(f"{PATH}/ceph").json["origin_member"]
    assert shown["seen_at"] == "1970-01-01T00:16:40Z"
    assert (shown["reachable"], shown["owed_bytes"], shown["sole_bytes"]) == (False, 5 << 30, 7)
    assert (shown["refs_behind"], shown["refs_age_seconds"]) == (2, 61)
    assert shown["problem"] == "member ceph did not answer"


@pytest.mark.parametrize(
    ("power", "reachable", "problem"),
    [
        (PowerState.OFF, None, "power: off"),
        (PowerState.STUCK, None, "power: stuck"),
        (PowerState.CATCHING_UP, True, "power: catching-up"),
        (PowerState.ACTIVE, True, ""),
    ],
)
def test_member_that_sleeps_is_not_shown_as_lost(
    admin: TestCaller, api: Setting, membership: Membership,
    power: PowerState, reachable: bool | None, problem: str,
) -> None:  # fmt: skip
    seen = MemberStatus(reachable is True, 0, 0, 0, None, "", power)
    write_status(api.origin, MembersStatus(1_000.0, "ctl1", 1_000.0, {"ceph": seen}))
    shown = admin.get(f"{PATH}/ceph").json["origin_member"]
    assert (shown["reachable"], shown["problem"]) == (reachable, problem)


def test_member_is_drained_and_kept(admin: TestCaller, membership: Membership) -> None:
    for is_draining, state in ((True, "draining"), (True, "draining"), (False, "active")):
        wanted = {"origin_member": {"draining": is_draining}}
        answer = admin.ask("PATCH", f"{PATH}/ceph", wanted)
        assert (answer.status_code, answer.json["origin_member"]["state"]) == (200, state)
        assert admin.get(f"{PATH}/ceph").json == answer.json


def test_home_is_not_drained(admin: TestCaller, membership: Membership) -> None:
    answer = admin.ask("PATCH", f"{PATH}/nfs", {"origin_member": {"draining": True}})
    assert answer.status_code == 409
    assert "home" in first_error(answer)["detail"]
    unknown = admin.ask("PATCH", f"{PATH}/other", {"origin_member": {"draining": True}})
    assert unknown.status_code == 404


def test_only_administrators_see_members(admin: TestCaller, membership: Membership) -> None:
    for path in (PATH, f"{PATH}/ceph"):
        assert admin.as_role("manager").get(path).status_code == 403
    wanted = {"origin_member": {"draining": True}}
    assert admin.as_role("manager").ask("PATCH", f"{PATH}/ceph", wanted).status_code == 403
