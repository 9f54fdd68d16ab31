"""The states of a member, and what leads from one to another.

::

              join                filled                drain
    (absent) -------> JOINING ------------> ACTIVE <------------> DRAINING
                         |                    |        keep          |  |
                         | remove             | fail                 |  | remove
                         |                    v            fail      |  |
                         |                 FAILED <------------------'  |
                         |                    | remove                  |
                         v                    v                         |
                      REMOVED <---------------'<------------------------'

The name of a removed member is never given to another one.
"""

import enum

from acstor import exception
from acstor.states import TransitionTable


class MemberState(enum.StrEnum):
    """State of a member."""

    JOINING = "joining"
    """It is filled; nothing is assigned to it."""
    ACTIVE = "active"
    """In use."""
    DRAINING = "draining"
    """Nothing new is assigned to it; what it alone has is copied away."""
    FAILED = "failed"
    """An operator gave it up for lost."""
    REMOVED = "removed"
    """It was taken away."""


class MemberEvent(enum.StrEnum):
    """Event in the life of a member."""

    JOIN = "join"
    FILLED = "filled"
    """All that it shall have is in it."""
    DRAIN = "drain"
    KEEP = "keep"
    """The drain is given up."""
    FAIL = "fail"
    REMOVE = "remove"


_S, _E = MemberState, MemberEvent

TRANSITIONS = TransitionTable[MemberState | None, MemberEvent](
    {
        (None, _E.JOIN): _S.JOINING,
        (_S.JOINING, _E.FILLED): _S.ACTIVE,
        (_S.JOINING, _E.REMOVE): _S.REMOVED,
        (_S.ACTIVE, _E.DRAIN): _S.DRAINING,
        (_S.ACTIVE, _E.FAIL): _S.FAILED,
        (_S.DRAINING, _E.KEEP): _S.ACTIVE,
        (_S.DRAINING, _E.FAIL): _S.FAILED,
        (_S.DRAINING, _E.REMOVE): _S.REMOVED,
        (_S.FAILED, _E.REMOVE): _S.REMOVED,
    },
    name="member",
    error=exception.ConflictError,
)
"""Every change of a member's state; None: there is no such member."""


def state_after(state: MemberState | None, event: MemberEvent) -> MemberState:
    """Return the state of a member after an event.

    :param state: None: it is none yet.
    :raises ConflictError: when the state does not allow it.
    """
    after = TRANSITIONS.after(state, event)
    if after is None:
        raise exception.InternalError(f"{event.value} makes a member vanish")
    return after


USED = frozenset({MemberState.JOINING, MemberState.ACTIVE, MemberState.DRAINING})
"""States in which what a member has counts: without its answer nothing is *not found*."""
