"""The states of the data-plane process.

::

    restoring --started--> serving --stop--> leaving --stopped--> stopped
        |                  |  ^  |                ^
        |            drain |  |  '--disconnected--|
        |                  v  | undrain           |
        |                draining --stop----------|
        |                   '-------disconnected--|
        '--stop-----------------------------------'
"""

import enum

from acstor.states import TransitionTable


class ProcessState(enum.Enum):
    """State of the data-plane process."""

    RESTORING = "restoring"
    """Attaching what was attached before; nothing is served yet, requests wait in the kernel."""
    SERVING = "serving"
    """Guests and peers are served."""
    DRAINING = "draining"
    """Guests are served, peers are refused."""
    LEAVING = "leaving"
    """Stopping; the mount stays when the next process is to take it over."""
    STOPPED = "stopped"
    """All threads have ended."""


class ProcessEvent(enum.Enum):
    """Event of the data-plane process."""

    STARTED = "started"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    DISCONNECTED = "disconnected"
    """Somebody unmounted or aborted the file system."""
    STOP = "stop"
    STOPPED = "stopped"


_S, _E = ProcessState, ProcessEvent

TRANSITIONS = TransitionTable[ProcessState, ProcessEvent](
    {
        (_S.RESTORING, _E.STARTED): _S.SERVING,
        (_S.RESTORING, _E.STOP): _S.LEAVING,
        (_S.SERVING, _E.DRAIN): _S.DRAINING,
        (_S.SERVING, _E.UNDRAIN): _S.SERVING,
        (_S.SERVING, _E.DISCONNECTED): _S.LEAVING,
        (_S.SERVING, _E.STOP): _S.LEAVING,
        (_S.DRAINING, _E.DRAIN): _S.DRAINING,
        (_S.DRAINING, _E.UNDRAIN): _S.SERVING,
        (_S.DRAINING, _E.DISCONNECTED): _S.LEAVING,
        (_S.DRAINING, _E.STOP): _S.LEAVING,
        (_S.LEAVING, _E.STOPPED): _S.STOPPED,
    }
)

next_state = TRANSITIONS.after
