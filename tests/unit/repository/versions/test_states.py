"""The states of a version's record, and that their page says the same as the table."""

import re

import pytest

from acstor import exception
from acstor.repository.versions import states
from acstor.repository.versions.states import VersionEvent, VersionState
from testbed.fixtures.documents import SOURCE

PAGE = SOURCE / "reference" / "state-machines" / "version.rst"


def test_page_has_the_transitions_of_the_table() -> None:
    rows = re.findall(r"^\| ``(.+?)`` +\| ``(.+?)`` +\| ``(.+?)`` +\|$", PAGE.read_text(), re.M)
    names: dict[VersionState | None, str] = {None: "absent"}
    names.update({state: state.value for state in VersionState})
    assert rows == [
        (names[state], event.value, names[following])
        for (state, event), following in states.TRANSITIONS.items()
    ]


def test_every_event_has_its_actor() -> None:
    assert set(states.ACTORS) == set(VersionEvent) == {event for _, event in states.TRANSITIONS}


def test_every_state_is_reached_and_left() -> None:
    for state in VersionState:
        assert any(following is state for following in states.TRANSITIONS.values())
        assert any(before is state for before, _ in states.TRANSITIONS)


@pytest.mark.parametrize("event", VersionEvent)
def test_only_listed_changes_are_made(event: VersionEvent) -> None:
    for before in (None, *VersionState):
        for after in (None, *VersionState):
            if states.TRANSITIONS.allows(before, event, after):
                states.check_transition(before, event, after)
            else:
                with pytest.raises(exception.InternalError, match=event.value):
                    states.check_transition(before, event, after)
