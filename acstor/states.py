"""State machines as tables: what every one of them needs.

Each long-lived state has a module of its own with an enum of states, an enum of events and the
table ``TRANSITIONS``; a pair that the table does not list is a programming error.
"""

import enum
from collections.abc import Mapping
from typing import TypeVar

State = TypeVar("State", bound=enum.Enum)
Event = TypeVar("Event", bound=enum.Enum)


class IllegalTransitionError(RuntimeError):
    """An event arrived in a state that has no transition for it: a programming error."""


def following(table: Mapping[tuple[State, Event], State], state: State, event: Event) -> State:
    """Return the state after ``event``.

    :raises IllegalTransitionError: for a pair that the table does not list.
    """
    try:
        return table[state, event]
    except KeyError:
        raise IllegalTransitionError(f"{event.value} in state {state.value}") from None
