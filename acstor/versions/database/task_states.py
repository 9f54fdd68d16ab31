r"""The states of a task, and the events that change them.

::

             create           take             finish
   (absent) --------> QUEUED ------> RUNNING ----------> DONE
                        |            ^  |  \
                 cancel |            '--'   \ fail
                        |            take    \------------.
                        v               |                 v
                    CANCELLED           | revert        FAILED
                        ^               v                 ^
                        '---------- REVERTING ------------'
                          withdraw   ^  |      fail
                                     '--' take

``take`` is a worker's: the first, or one that goes on where another has died. A running task that
is cancelled is reverted by its worker, then ``withdraw`` ends it. Every path leads to an end.
"""

import enum

from acstor import exception
from acstor.states import TransitionTable


class TaskState(enum.StrEnum):
    """State of a task."""

    QUEUED = "queued"
    """No worker has taken it yet."""
    RUNNING = "running"
    """A worker is at it, or another goes on once the lease of one that died is over."""
    REVERTING = "reverting"
    """It failed or was cancelled; what it did is being undone."""
    DONE = "done"
    """It has its result."""
    FAILED = "failed"
    """It has an error, and nothing of it is left."""
    CANCELLED = "cancelled"
    """Somebody cancelled it, and nothing of it is left."""


class TaskEvent(enum.StrEnum):
    """Event in the life of a task."""

    CREATE = "create"
    """Somebody asks for it."""
    TAKE = "take"
    """A worker takes its lease."""
    FINISH = "finish"
    """All of it is done."""
    REVERT = "revert"
    """A step failed, or it was cancelled: undoing begins."""
    FAIL = "fail"
    """It failed and is undone, or there was nothing to undo."""
    CANCEL = "cancel"
    """Somebody cancels it before it began."""
    WITHDRAW = "withdraw"
    """It was cancelled and is undone."""


_S, _E = TaskState, TaskEvent

TRANSITIONS = TransitionTable[TaskState | None, TaskEvent](
    {
        (None, _E.CREATE): _S.QUEUED,
        (_S.QUEUED, _E.TAKE): _S.RUNNING,
        (_S.QUEUED, _E.CANCEL): _S.CANCELLED,
        (_S.RUNNING, _E.TAKE): _S.RUNNING,
        (_S.RUNNING, _E.FINISH): _S.DONE,
        (_S.RUNNING, _E.FAIL): _S.FAILED,
        (_S.RUNNING, _E.REVERT): _S.REVERTING,
        (_S.REVERTING, _E.TAKE): _S.REVERTING,
        (_S.REVERTING, _E.FAIL): _S.FAILED,
        (_S.REVERTING, _E.WITHDRAW): _S.CANCELLED,
    },
    name="task",
    error=exception.InternalError,
)
"""Every change of a task's state; None: there is no task."""

ACTIVE = frozenset({TaskState.RUNNING, TaskState.REVERTING})
"""States in which a task holds its resource."""
UNFINISHED = frozenset({TaskState.QUEUED, *ACTIVE})
"""States that a task leaves."""
FINISHED = frozenset(TaskState) - UNFINISHED
"""Ends."""


def states_before(event: TaskEvent) -> frozenset[TaskState]:
    """Return the states in which an event may arrive."""
    return frozenset(before for before, one in TRANSITIONS if one is event and before is not None)
