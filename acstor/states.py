"""State machines as tables.

Each long-lived state has a module of its own with an enum of states, an enum of events and the
table ``TRANSITIONS``; a pair that the table does not list is a programming error.
"""

import enum
from collections.abc import Callable, Mapping
from typing import TypeVar

State = TypeVar("State", bound=enum.Enum | None)
Event = TypeVar("Event", bound=enum.Enum)


class IllegalTransitionError(RuntimeError):
    """An event arrived in a state that has no transition for it: a programming error."""


class TransitionTable(dict[tuple[State, Event], State]):
    """The state after each event that may arrive in a state; None: the thing does not exist.

    :param transitions: by state and event, what follows.
    :param name: of the machine, for errors.
    :param error: makes what is raised for a pair that is not listed.
    """

    def __init__(
        self,
        transitions: Mapping[tuple[State, Event], State],
        *,
        name: str = "",
        error: Callable[[str], Exception] = IllegalTransitionError,
    ) -> None:
        super().__init__(transitions)
        self._name = f"{name} " if name else ""
        self._error = error

    def after(self, state: State, event: Event) -> State:
        """Return the state after ``event``.

        :raises IllegalTransitionError: for a pair that the table does not list, or what the table
            has instead.
        """
        try:
            return self[state, event]
        except KeyError:
            known = "absent" if state is None else state.value
            raise self._error(f"{event.value} in {self._name}state {known}") from None

    def allows(self, before: State, event: Event, after: State) -> bool:
        """Return whether ``event`` leads from one state to the other."""
        return (before, event) in self and self[before, event] is after
