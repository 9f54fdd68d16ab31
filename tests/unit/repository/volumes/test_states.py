"""The states of a volume's record, and that their page says the same as the table."""

import re

import pytest

from acstor import exception
from acstor.repository.volumes import states
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.states import VolumeRecordEvent, VolumeRecordState
from testbed.fixtures.documents import SOURCE

PAGE = SOURCE / "reference" / "state-machines" / "volume-record.rst"
RECORDS: dict[VolumeRecordState | None, VolumeRecord | None] = {
    None: None,
    VolumeRecordState.AVAILABLE: VolumeRecord(512),
    VolumeRecordState.OWNED: VolumeRecord(512, owner="a"),
    VolumeRecordState.TAKING_OVER: VolumeRecord(512, owner="a", unsealed=1),
}


def test_page_has_the_transitions_of_the_table() -> None:
    rows = re.findall(r"^\| ``(.+?)`` +\| ``(.+?)`` +\| ``(.+?)`` +\|$", PAGE.read_text(), re.M)
    names: dict[VolumeRecordState | None, str] = {None: "absent"}
    names.update({state: state.value for state in VolumeRecordState})
    assert rows == [
        (names[state], event.value, names[following])
        for (state, event), following in states.TRANSITIONS.items()
    ]


def test_every_event_has_its_actor() -> None:
    assert (
        set(states.ACTORS) == set(VolumeRecordEvent) == {event for _, event in states.TRANSITIONS}
    )


def test_fields_give_the_state() -> None:
    for state, record in RECORDS.items():
        assert states.state_of(record) is state


@pytest.mark.parametrize("event", VolumeRecordEvent)
def test_only_listed_changes_are_made(event: VolumeRecordEvent) -> None:
    for before, record in RECORDS.items():
        for after, changed in RECORDS.items():
            is_listed = (before, event) in states.TRANSITIONS and (
                states.TRANSITIONS[before, event] is after
            )
            if is_listed:
                states.check_transition(record, event, changed)
            else:
                with pytest.raises(exception.InternalError, match=event.value):
                    states.check_transition(record, event, changed)
