"""The ref ``members-status``, byte for byte."""

import dataclasses
import json

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated import members_status
from acstor.origin.replicated.members_status import (
    STATUS_REF,
    MembersStatus,
    MemberStatus,
    PowerStatus,
    read_status,
    write_status,
)
from acstor.origin.replicated.power.states import PowerState
from testbed.fixtures.documents import ROOT

GOLDEN = ROOT / "tests" / "golden" / "members-status-v1.json"
STATUS = MembersStatus(
    1_700_000_000.5,
    "controller/17-ab12",
    1_700_000_000.0,
    {
        "ceph": MemberStatus(True, 0, 0, 0, None),
        "nfs": MemberStatus(False, 5 << 30, 1 << 20, 3, 61.5, "member nfs did not answer"),
    },
)


def test_status_version_requires_update() -> None:
    assert members_status.STATUS_VERSION == 1
    assert STATUS.encode() == GOLDEN.read_bytes(), "bump STATUS_VERSION"
    assert MembersStatus.parse(GOLDEN.read_bytes()) == STATUS


def test_later_status_takes_the_place_of_the_former() -> None:
    home = MemoryOrigin()
    assert read_status(home) is None
    write_status(home, MembersStatus(1.0, "first", None, {}))
    write_status(home, STATUS)
    assert read_status(home) == STATUS


def test_unknown_fields_are_ignored_and_other_versions_refused() -> None:
    fields = json.loads(GOLDEN.read_bytes())
    assert MembersStatus.parse(json.dumps({**fields, "more": 1}).encode()) == STATUS
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        MembersStatus.parse(json.dumps({**fields, "version": 2}).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("updated_at", "now"),
        ("updated_at", True),
        ("leader", 7),
        ("leader", "x" * 501),
        ("members", []),
        ("members", {"Not A Name": {}}),
        ("members", {"nfs": {"is_reachable": True, "owed_bytes": -1}}),
    ],
)
def test_nonsense_is_refused(field: str, value: object) -> None:
    fields = json.loads(GOLDEN.read_bytes())
    with pytest.raises(exception.CorruptError, match="malformed"):
        MembersStatus.parse(json.dumps({**fields, field: value}).encode())
    home = MemoryOrigin()
    home.swap_ref(STATUS_REF, None, b"\xff")
    with pytest.raises(exception.CorruptError):
        read_status(home)
    with pytest.raises(exception.CorruptError):
        MembersStatus.parse(b" " * (members_status.STATUS_SIZE_MAX + 1))


def test_status_of_sleepers_and_their_budget_is_read_as_it_was_written() -> None:
    power = PowerStatus("budget", "file /run/power", "watts", 350.5, 12.0, "", "near sleeps")
    sleeper = MemberStatus(False, 0, 0, 0, None, "", PowerState.OFF)
    status = dataclasses.replace(STATUS, members={"near": sleeper}, power=power)
    assert MembersStatus.parse(status.encode()) == status
    unknown = dataclasses.replace(power, budget=None, age_seconds=None, error="away")
    status = dataclasses.replace(status, power=unknown)
    assert MembersStatus.parse(status.encode()) == status
    fields = json.loads(status.encode())
    shown = fields["power"]
    wrong: list[object] = [{**shown, "budget": -1}, {**shown, "unit": 7}, []]
    for malformed in wrong:
        with pytest.raises(exception.CorruptError):
            MembersStatus.parse(json.dumps({**fields, "power": malformed}).encode())
