"""The ref ``member-power``, byte for byte, and the states in it."""

import json
import re

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.power import record as module
from acstor.origin.replicated.power.record import (
    ALL_AWAKE,
    POWER_REF,
    Desired,
    PowerEntry,
    PowerRecord,
    read_power,
    swap_power,
)
from acstor.origin.replicated.power.states import (
    ASKED,
    FILLED,
    SETTLED,
    SYNCHRONISED,
    TRANSITIONS,
    UNTOUCHED,
    PowerEvent,
    PowerState,
)
from testbed.fixtures.documents import ROOT, SOURCE

GOLDEN = ROOT / "tests" / "golden" / "member-power-v1.json"
PAGE = SOURCE / "reference" / "state-machines" / "member-power.rst"
RECORD = PowerRecord(
    {
        "ceph": PowerEntry(PowerState.OFF, 1_700_000_000.5, desired=Desired.ASLEEP),
        "nfs": PowerEntry(
            PowerState.STUCK, 1_700_000_100.0, 3, "ctl1/17-ab12/00ff", None, "it does not answer"
        ),
    }
)


def test_power_version_requires_update() -> None:
    assert module.POWER_VERSION == 1
    assert RECORD.encode() == GOLDEN.read_bytes(), "bump POWER_VERSION"
    assert PowerRecord.parse(GOLDEN.read_bytes()) == RECORD


def test_home_without_the_ref_has_all_awake() -> None:
    home = MemoryOrigin()
    assert read_power(home) == (ALL_AWAKE, None)
    assert ALL_AWAKE.state("any") is PowerState.ACTIVE
    token = swap_power(home, None, RECORD)
    assert read_power(home) == (RECORD, token)
    with pytest.raises(exception.ConflictError):
        swap_power(home, None, ALL_AWAKE)
    assert RECORD.without({"nfs"}).members.keys() == {"ceph"}


def test_unknown_fields_are_ignored_and_other_versions_refused() -> None:
    fields = json.loads(GOLDEN.read_bytes())
    assert PowerRecord.parse(json.dumps({**fields, "more": 1}).encode()) == RECORD
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        PowerRecord.parse(json.dumps({**fields, "version": 2}).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "dozing"),
        ("state", None),
        ("since", "now"),
        ("since", -1),
        ("attempts", True),
        ("attempt", 7),
        ("attempt", "x" * 301),
        ("desired", "maybe"),
        ("alarm", None),
    ],
)
def test_malformed_entries_are_refused(field: str, value: object) -> None:
    fields = json.loads(GOLDEN.read_bytes())
    fields["members"]["nfs"][field] = value
    with pytest.raises(exception.CorruptError, match=POWER_REF):
        PowerRecord.parse(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"version": 1, "members": []}', b" " * (1 << 17)]
)
def test_malformed_records_are_refused(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        PowerRecord.parse(content)


def test_page_lists_exactly_the_transitions() -> None:
    rows = re.findall(
        r"^\| ``([\w-]+)`` +\| ``([\w -]+)`` +\| ``([\w-]+)`` +\|$", PAGE.read_text(), re.M
    )
    assert {(before, event): after for before, event, after in rows} == {
        (before.value, event.value): after.value for (before, event), after in TRANSITIONS.items()
    }


def test_every_state_is_reached_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(PowerState)
    assert {before for before, _ in TRANSITIONS} == set(PowerState)
    assert {event for _, event in TRANSITIONS} == set(PowerEvent)


def test_states_in_which_a_member_may_be_off_are_asked_for_nothing() -> None:
    maybe_off = {PowerState.SWITCHING_OFF, PowerState.OFF, PowerState.WAKING, PowerState.STUCK}
    assert not maybe_off & (ASKED | FILLED | SYNCHRONISED)
    assert maybe_off > UNTOUCHED
    assert PowerState.ACTIVE in SETTLED & ASKED & FILLED


def test_change_of_state_forgets_attempts_and_keeps_what_operators_said() -> None:
    entry = RECORD.entry("nfs").after(PowerEvent.WAKE, 5.0, "")
    assert entry == PowerEntry(PowerState.WAKING, 5.0)
    with pytest.raises(exception.ConflictError, match="sleep in power state off"):
        RECORD.entry("ceph").after(PowerEvent.SLEEP, 5.0)
