"""Power states of a member, and what leads from one to another.

::

                 sleep               emptied                      switched off
    ACTIVE ----------> QUIESCING ------------> SWITCHING_OFF ----------------> OFF
     ^  |  <----------    wake                      |                           |
     |  | found off                                 | wake, given up            | wake
     |  '--------------------------------> WAKING <-'---------------------------'
     |                                      |  ^  |
     |               answers                |  |  | given up
     |                  .-------------------'  |  v
     '--- CATCHING_UP <-'<----- answers ------ STUCK
       caught up                        wake --'

The state is in the home (:mod:`.record`), changes by a swap there, and outlives who leads. It says
nothing of the member's own state (acstor/origin/replicated/states.py), which stays ACTIVE.
"""

import enum

from acstor import exception
from acstor.states import TransitionTable


class PowerState(enum.StrEnum):
    """Power state of a member."""

    ACTIVE = "active"
    """On, and in use."""
    QUIESCING = "quiescing"
    """Nothing new is put there; what it alone has is copied away; it is asked last."""
    SWITCHING_OFF = "switching-off"
    """Nobody asks it any more; it is about to be off."""
    OFF = "off"
    WAKING = "waking"
    """It is switched on, and has not answered yet."""
    CATCHING_UP = "catching-up"
    """It answers; it gets what it lacks and loses what was deleted meanwhile. Not asked yet."""
    STUCK = "stuck"
    """It did not wake, or is refused: an operator is needed."""


class PowerEvent(enum.StrEnum):
    """Event in the sleep of a member."""

    SLEEP = "sleep"
    EMPTIED = "emptied"
    """Every object of it is in a member that stays on."""
    SWITCHED_OFF = "switched off"
    WAKE = "wake"
    FOUND_OFF = "found off"
    """It was woken lately, does not answer, and its machine is off."""
    ANSWERS = "answers"
    CAUGHT_UP = "caught up"
    GIVEN_UP = "given up"
    """All attempts failed."""


_S, _E = PowerState, PowerEvent

TRANSITIONS = TransitionTable[PowerState, PowerEvent](
    {
        (_S.ACTIVE, _E.SLEEP): _S.QUIESCING,
        (_S.ACTIVE, _E.FOUND_OFF): _S.WAKING,
        (_S.QUIESCING, _E.EMPTIED): _S.SWITCHING_OFF,
        (_S.QUIESCING, _E.WAKE): _S.ACTIVE,
        (_S.SWITCHING_OFF, _E.SWITCHED_OFF): _S.OFF,
        (_S.SWITCHING_OFF, _E.WAKE): _S.WAKING,
        (_S.SWITCHING_OFF, _E.GIVEN_UP): _S.WAKING,
        (_S.OFF, _E.WAKE): _S.WAKING,
        (_S.WAKING, _E.ANSWERS): _S.CATCHING_UP,
        (_S.WAKING, _E.GIVEN_UP): _S.STUCK,
        (_S.CATCHING_UP, _E.CAUGHT_UP): _S.ACTIVE,
        (_S.STUCK, _E.ANSWERS): _S.CATCHING_UP,
        (_S.STUCK, _E.WAKE): _S.WAKING,
    },
    name="power",
    error=exception.ConflictError,
)
"""Every change of a member's power state."""

ASKED = frozenset({PowerState.ACTIVE, PowerState.QUIESCING})
"""States in which reads, listings and deletions ask a member."""
FILLED = frozenset({PowerState.ACTIVE, PowerState.CATCHING_UP})
"""States in which a member gets copies of what it lacks."""
SYNCHRONISED = ASKED | FILLED
"""States in which the process that leads compares a member with the others."""
UNTOUCHED = frozenset({PowerState.SWITCHING_OFF, PowerState.OFF})
"""States in which nobody touches a member's store: a mount of what is off hangs."""
SETTLED = frozenset({PowerState.ACTIVE, PowerState.OFF, PowerState.STUCK})
"""States that last: nothing is under way."""
