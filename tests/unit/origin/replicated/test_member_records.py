"""The refs ``member`` and ``members``, byte for byte."""

import json
import re

import pytest

from acstor import exception
from acstor.origin.replicated import member_records
from acstor.origin.replicated.member_records import MemberEntry, MemberMark, MembersRecord
from acstor.origin.replicated.states import TRANSITIONS, MemberEvent, MemberState
from testbed.fixtures.documents import ROOT, SOURCE

GOLDEN = ROOT / "tests" / "golden" / "member-v1.json"
PAGE = SOURCE / "reference" / "state-machines" / "origin-member.rst"
GOLDEN_ALL = ROOT / "tests" / "golden" / "member-v1-all.json"
ORIGIN = "75d745ee-6122-4977-8a4e-8b187136749e"
MARK = MemberMark(ORIGIN, "nfs", "ceph", 17)
RECORD = MembersRecord(
    ORIGIN,
    "ceph",
    {
        "ceph": MemberEntry(4, MemberState.ACTIVE),
        "nfs": MemberEntry(17, MemberState.DRAINING),
        "old": MemberEntry(9, MemberState.REMOVED),
    },
)


def test_member_version_requires_update() -> None:
    assert member_records.MEMBER_VERSION == 1
    assert MARK.encode() == GOLDEN.read_bytes(), "bump MEMBER_VERSION"
    assert MemberMark.parse(GOLDEN.read_bytes()) == MARK
    assert RECORD.encode() == GOLDEN_ALL.read_bytes(), "bump MEMBER_VERSION"
    assert MembersRecord.parse(GOLDEN_ALL.read_bytes()) == RECORD


def changed(content: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(content), **fields}).encode()


def test_unknown_fields_are_ignored() -> None:
    assert MemberMark.parse(changed(MARK.encode(), more=1)) == MARK
    assert MembersRecord.parse(changed(RECORD.encode(), more=1)) == RECORD


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        changed(MARK.encode(), origin="x"),
        changed(MARK.encode(), origin=ORIGIN.upper()),
        changed(MARK.encode(), name="A"),
        changed(MARK.encode(), home=None),
        changed(MARK.encode(), generation=0),
        changed(MARK.encode(), generation=True),
        changed(MARK.encode(), generation="1"),
        b" " * (member_records.RECORD_SIZE_MAX + 1),
    ],
)
def test_malformed_mark_is_refused(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        MemberMark.parse(content)


@pytest.mark.parametrize(
    "content",
    [
        changed(RECORD.encode(), members=[]),
        changed(RECORD.encode(), members={"ceph": {"generation": 1, "state": "lost"}}),
        changed(RECORD.encode(), members={"ceph": []}),
        changed(RECORD.encode(), home="other"),
        changed(
            RECORD.encode(),
            members={f"m{number}": {"generation": 1, "state": "removed"} for number in range(257)},
        ),
    ],
)
def test_malformed_members_are_refused(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        MembersRecord.parse(content)


def test_records_of_a_newer_release_are_refused() -> None:
    with pytest.raises(exception.UnsupportedError):
        MemberMark.parse(changed(MARK.encode(), version=2))
    with pytest.raises(exception.UnsupportedError):
        MembersRecord.parse(changed(RECORD.encode(), version=2))


def test_fifth_member_is_refused_removed_ones_not_counted() -> None:
    record = RECORD
    for name in ("third", "fourth"):
        record = record.with_member(name, MemberEntry(1, MemberState.JOINING))
    with pytest.raises(exception.ExhaustedError):
        record.with_member("fifth", MemberEntry(1, MemberState.JOINING))


def test_page_has_the_transitions_of_the_table() -> None:
    rows = re.findall(r"^\| ``(.+?)`` +\| ``(.+?)`` +\| ``(.+?)`` +\|$", PAGE.read_text(), re.M)
    assert rows == [
        (state.value if state else "absent", event.value, after.value if after else "absent")
        for (state, event), after in TRANSITIONS.items()
    ]


def test_states_lead_to_removal_and_not_back() -> None:
    for state in MemberState:
        reachable = {state}
        while True:
            more = {TRANSITIONS[one, event] for one, event in TRANSITIONS if one in reachable}
            if more <= reachable:
                break
            reachable |= more  # type: ignore[arg-type]
        assert MemberState.REMOVED in reachable
    assert not [pair for pair in TRANSITIONS if pair[0] is MemberState.REMOVED]
    with pytest.raises(exception.ConflictError):
        TRANSITIONS.after(MemberState.FAILED, MemberEvent.KEEP)
