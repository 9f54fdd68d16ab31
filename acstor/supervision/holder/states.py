"""The states of a holder.

::

    starting --ready--> running --child_exited--> waiting --restart_due--> starting
       |                   |
       |                   '--replace--> replacing --child_exited--> waiting
       |--child_exited--> waiting
       '--(stop from any of these)--> stopping --child_exited--> stopped
    waiting --stop--> stopped
"""

import enum

from acstor.states import TransitionTable


class HolderState(enum.Enum):
    """State of the holder."""

    STARTING = "starting"
    """The process runs and has not said that it is ready."""
    RUNNING = "running"
    """The process is ready."""
    REPLACING = "replacing"
    """The process was asked to leave for its successor."""
    WAITING = "waiting"
    """No process runs; the next start is due at a known time, often at once."""
    STOPPING = "stopping"
    """The process was asked to leave for good."""
    STOPPED = "stopped"
    """Nothing runs and nothing is kept any more."""


class HolderEvent(enum.Enum):
    """Event in the life of a holder."""

    READY = "ready"
    REPLACE = "replace"
    CHILD_EXITED = "child_exited"
    RESTART_DUE = "restart_due"
    STOP = "stop"


_S, _E = HolderState, HolderEvent

TRANSITIONS = TransitionTable[HolderState, HolderEvent](
    {
        (_S.STARTING, _E.READY): _S.RUNNING,
        (_S.STARTING, _E.REPLACE): _S.REPLACING,
        (_S.STARTING, _E.CHILD_EXITED): _S.WAITING,
        (_S.STARTING, _E.STOP): _S.STOPPING,
        (_S.RUNNING, _E.READY): _S.RUNNING,
        (_S.RUNNING, _E.REPLACE): _S.REPLACING,
        (_S.RUNNING, _E.CHILD_EXITED): _S.WAITING,
        (_S.RUNNING, _E.STOP): _S.STOPPING,
        (_S.REPLACING, _E.READY): _S.REPLACING,
        (_S.REPLACING, _E.REPLACE): _S.REPLACING,
        (_S.REPLACING, _E.CHILD_EXITED): _S.WAITING,
        (_S.REPLACING, _E.STOP): _S.STOPPING,
        (_S.WAITING, _E.READY): _S.WAITING,  # a datagram of the process that is gone
        (_S.WAITING, _E.REPLACE): _S.WAITING,
        (_S.WAITING, _E.RESTART_DUE): _S.STARTING,
        (_S.WAITING, _E.STOP): _S.STOPPED,
        (_S.STOPPING, _E.READY): _S.STOPPING,
        (_S.STOPPING, _E.REPLACE): _S.STOPPING,
        (_S.STOPPING, _E.STOP): _S.STOPPING,
        (_S.STOPPING, _E.CHILD_EXITED): _S.STOPPED,
    }
)

next_state = TRANSITIONS.after
