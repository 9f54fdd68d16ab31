"""The states of a volume on one host.

::

    closed --open--> opening --served--> serving <--freeze/thaw--> frozen
      ^                | | |               |  ^                      |
      |<-----failed,---' | '--followed--.  |  | served               |
      |     given up     |              |  |  |                      |
      |                  |              v  v  |                      |
      |                  |           standby -'  (handed over: back) |
      |                fenced           |  |                         |
      |                  |              |  |                         |
      |                  v              |  |                         |
      |               fenced <----------|--'-------------------------|
      |                  |              |                            |
      |                  | close        | close                      | close
      |                  v              v                            v
      '----closed,--- closing <--------------------------------------'
           given up
                         '--served (opened again)--> serving
"""

import enum

from acstor.control.protocol import LocalVolumeState
from acstor.states import TransitionTable


class LocalVolumeEvent(enum.Enum):
    """Event of a volume on one host."""

    OPEN = "open"
    SERVED = "served"
    """This host owns it and clients are served."""
    FOLLOWED = "followed"
    """The owner serves it through this host."""
    FAILED = "failed"
    """It could not be opened; what was to be its local log is gone."""
    GIVEN_UP = "given up"
    """An operator had its local log put aside."""
    HANDED_OVER = "handed over"
    """It was released to the host that its guest moves to."""
    FREEZE = "freeze"
    THAW = "thaw"
    FENCED = "fenced"
    """Another host owns it: seen in the ref, or at the next object of the log."""
    CLOSE = "close"
    CLOSED = "closed"
    """All of it is on the origin and nobody owns it, or another host does."""


_S, _E = LocalVolumeState, LocalVolumeEvent

TRANSITIONS = TransitionTable[LocalVolumeState, LocalVolumeEvent](
    {
        (_S.CLOSED, _E.OPEN): _S.OPENING,
        (_S.OPENING, _E.SERVED): _S.SERVING,
        (_S.OPENING, _E.FOLLOWED): _S.STANDBY,
        (_S.OPENING, _E.FENCED): _S.FENCED,
        (_S.OPENING, _E.FAILED): _S.CLOSED,
        (_S.OPENING, _E.GIVEN_UP): _S.CLOSED,
        (_S.STANDBY, _E.SERVED): _S.SERVING,
        (_S.STANDBY, _E.FENCED): _S.FENCED,
        (_S.STANDBY, _E.CLOSE): _S.CLOSING,
        (_S.SERVING, _E.HANDED_OVER): _S.STANDBY,
        (_S.SERVING, _E.FREEZE): _S.FROZEN,
        (_S.SERVING, _E.THAW): _S.SERVING,
        (_S.SERVING, _E.FENCED): _S.FENCED,
        (_S.SERVING, _E.CLOSE): _S.CLOSING,
        (_S.FROZEN, _E.FREEZE): _S.FROZEN,
        (_S.FROZEN, _E.THAW): _S.SERVING,
        (_S.FROZEN, _E.FENCED): _S.FENCED,
        (_S.FROZEN, _E.CLOSE): _S.CLOSING,
        (_S.FENCED, _E.FENCED): _S.FENCED,
        (_S.FENCED, _E.CLOSE): _S.CLOSING,
        (_S.CLOSING, _E.CLOSE): _S.CLOSING,
        (_S.CLOSING, _E.SERVED): _S.SERVING,
        (_S.CLOSING, _E.FENCED): _S.FENCED,
        (_S.CLOSING, _E.CLOSED): _S.CLOSED,
        (_S.CLOSING, _E.GIVEN_UP): _S.CLOSED,
    }
)

next_state = TRANSITIONS.after
