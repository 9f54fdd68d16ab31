"""The states of a restore in place on its host: of the disks of one server, all of them or none.

::

               start           write             finish
   (absent) ----------> QUEUED --------> WRITING ---------> DONE
      ^                 |  ^  ^          |  |                |
      |           abort |  |  | start    |  | tear           | start
      |                 v  |  |  refuse  |  v                v
      |<--- discard -- FAILED | <--------' TORN            QUEUED
      |                       '------------ |
      '------- discard (from DONE; from TORN too, once the disk is gone)

From WRITING on the disk may be neither what it was nor the version: the state is written down
before the first byte. ``refuse`` is a process that says that it has written nothing; one that has
died says nothing, so what it leaves is TORN, and so is whatever is begun again after that until it
is DONE. A start that asks for another version begins anew: that is how a restore is taken back.
"""

import enum

from acstor import exception
from acstor.states import TransitionTable


class RestoreState(enum.StrEnum):
    """State of a restore on its host."""

    QUEUED = "queued"
    """It waits; this request has written nothing."""
    WRITING = "writing"
    """The disk is being written."""
    DONE = "done"
    """The disk is the version, durably."""
    FAILED = "failed"
    """The disk is what it was."""
    TORN = "torn"
    """The disk may be half written, and nobody writes: it must not be started."""


class RestoreEvent(enum.StrEnum):
    """Event in the life of a restore."""

    START = "start"
    """Somebody asks for it, or once more."""
    WRITE = "write"
    FINISH = "finish"
    REFUSE = "refuse"
    """It ended before anything was written, to a disk that was whole."""
    TEAR = "tear"
    """It ended, and something may be written."""
    ABORT = "abort"
    DISCARD = "discard"
    """The end of it was taken note of by those who asked for it."""


_S, _E = RestoreState, RestoreEvent

TRANSITIONS = TransitionTable[RestoreState | None, RestoreEvent](
    {
        (None, _E.START): _S.QUEUED,
        (_S.QUEUED, _E.START): _S.QUEUED,
        (_S.QUEUED, _E.WRITE): _S.WRITING,
        (_S.QUEUED, _E.ABORT): _S.FAILED,
        (_S.QUEUED, _E.TEAR): _S.TORN,
        (_S.WRITING, _E.FINISH): _S.DONE,
        (_S.WRITING, _E.REFUSE): _S.FAILED,
        (_S.WRITING, _E.TEAR): _S.TORN,
        (_S.DONE, _E.START): _S.QUEUED,
        (_S.DONE, _E.DISCARD): None,
        (_S.FAILED, _E.START): _S.QUEUED,
        (_S.FAILED, _E.DISCARD): None,
        (_S.TORN, _E.START): _S.QUEUED,
        (_S.TORN, _E.DISCARD): None,
    },
    name="restore",
    error=exception.InternalError,
)
"""Every change; None: the host knows of none."""

ENDED = frozenset({RestoreState.DONE, RestoreState.FAILED, RestoreState.TORN})
"""States in which nothing happens by itself any more."""
