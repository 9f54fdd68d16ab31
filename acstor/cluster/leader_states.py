"""The states of a leader, such as a policy service.

::

    standby --elected--> claiming --claimed--> leading
       ^ ^                  |  |                |  |
       | '------lost--------'  |                |  |
       | '------lost---------------------------'   |
       |                       | conflict          | overtaken
       |                       v                   v
       '--lost--------------- deposed <------------'
                                |
                                '--elected (again, or still after a while)--> claiming
    each --stop--> stopped
"""

import enum

from acstor.states import TransitionTable


class LeaderState(enum.Enum):
    """State of a service that may lead."""

    STANDBY = "standby"
    """Another one leads, or nobody can; it follows, and decides nothing."""
    CLAIMING = "claiming"
    """It holds the lock and has not raised the term yet."""
    LEADING = "leading"
    """The decision in force bears its term; it may change it."""
    DEPOSED = "deposed"
    """Somebody else wrote the decision: it changes nothing until it is elected again, or has held
    the lock for a while without anybody leading."""
    STOPPED = "stopped"
    """It has given the lock back."""


class LeaderEvent(enum.Enum):
    """Event in the life of such a service."""

    ELECTED = "elected"
    """It holds the lock."""
    CLAIMED = "claimed"
    """Its term is in force."""
    CONFLICT = "conflict"
    """The decision was changed while it raised the term."""
    OVERTAKEN = "overtaken"
    """The decision in force bears another term, or was changed under its write."""
    LOST = "lost"
    """It does not hold the lock any more."""
    STOP = "stop"


_S, _E = LeaderState, LeaderEvent

TRANSITIONS = TransitionTable[LeaderState, LeaderEvent](
    {
        (_S.STANDBY, _E.ELECTED): _S.CLAIMING,
        (_S.STANDBY, _E.LOST): _S.STANDBY,
        (_S.STANDBY, _E.STOP): _S.STOPPED,
        (_S.CLAIMING, _E.ELECTED): _S.CLAIMING,  # the origin was away
        (_S.CLAIMING, _E.CLAIMED): _S.LEADING,
        (_S.CLAIMING, _E.CONFLICT): _S.DEPOSED,
        (_S.CLAIMING, _E.LOST): _S.STANDBY,
        (_S.CLAIMING, _E.STOP): _S.STOPPED,
        (_S.LEADING, _E.OVERTAKEN): _S.DEPOSED,
        (_S.LEADING, _E.LOST): _S.STANDBY,
        (_S.LEADING, _E.STOP): _S.STOPPED,
        (_S.DEPOSED, _E.ELECTED): _S.CLAIMING,
        (_S.DEPOSED, _E.LOST): _S.STANDBY,
        (_S.DEPOSED, _E.STOP): _S.STOPPED,
    }
)

next_state = TRANSITIONS.after
