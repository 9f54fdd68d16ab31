import itertools

import pytest

from acstor.states import IllegalTransitionError
from acstor.supervision.holder.states import (
    TRANSITIONS,
    HolderEvent,
    HolderState,
    next_state,
)


@pytest.mark.parametrize(("state", "event"), [*itertools.product(HolderState, HolderEvent)])
def test_every_pair_is_listed_or_refused(state: HolderState, event: HolderEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransitionError):
            next_state(state, event)


def test_stopped_is_final_for_a_process_that_stops() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] is HolderState.STOPPED]


@pytest.mark.parametrize(
    "state", [state for state in HolderState if state is not HolderState.STOPPED]
)
def test_every_state_can_be_stopped(state: HolderState) -> None:
    assert next_state(state, HolderEvent.STOP) in {HolderState.STOPPING, HolderState.STOPPED}
