"""The states of a preload as an agent admitted it.

The data plane's own job (``PreloadState`` of the admin protocol) ends with its process; an admitted
preload outlives processes: whenever its job is gone it waits, and the agent starts the job again.

::

    waiting <--wait--.--resume--> running <--resume--. .--yield--> yielding
       |              '----wait---------|--------------'---------------|
       |                                |                              |
       '--finish--> done                |                              |
       '--finish_late--> missed    (each event ends any of the three   |
       '--fail--> failed            active states the same way)        |
       '--stop--> stopped
"""

import enum

from acstor.states import TransitionTable


class AdmittedPreloadState(enum.StrEnum):
    """State of an admitted preload."""

    WAITING = "waiting"
    """Nothing is fetched: the data plane, the image or the origin is away, or others go first."""
    RUNNING = "running"
    YIELDING = "yielding"
    """Reads of guests go first."""
    DONE = "done"
    """Everything is in the chunk store, before the deadline if there is one."""
    MISSED = "missed"
    """Everything is in the chunk store, but the deadline was over."""
    FAILED = "failed"
    """It cannot be done any more."""
    STOPPED = "stopped"
    """Somebody stopped it."""

    @property
    def has_ended(self) -> bool:
        """True if nothing will be fetched any more."""
        return self not in ACTIVE


class AdmittedPreloadEvent(enum.StrEnum):
    """Event in the life of an admitted preload."""

    RESUME = "resume"
    """The data plane fetches."""
    YIELD = "yield"
    """The data plane lets guests go first."""
    WAIT = "wait"
    """There is no job of the data plane, or it cannot go on for now."""
    FINISH = "finish"
    FINISH_LATE = "finish_late"
    """The preload has finished, and it was seen after the deadline."""
    FAIL = "fail"
    STOP = "stop"


_S, _E = AdmittedPreloadState, AdmittedPreloadEvent

ACTIVE = frozenset({_S.WAITING, _S.RUNNING, _S.YIELDING})

TRANSITIONS = TransitionTable[AdmittedPreloadState, AdmittedPreloadEvent](
    {
        (_S.WAITING, _E.RESUME): _S.RUNNING,
        (_S.WAITING, _E.YIELD): _S.YIELDING,
        (_S.WAITING, _E.WAIT): _S.WAITING,
        (_S.WAITING, _E.FINISH): _S.DONE,
        (_S.WAITING, _E.FINISH_LATE): _S.MISSED,
        (_S.WAITING, _E.FAIL): _S.FAILED,
        (_S.WAITING, _E.STOP): _S.STOPPED,
        (_S.RUNNING, _E.RESUME): _S.RUNNING,
        (_S.RUNNING, _E.YIELD): _S.YIELDING,
        (_S.RUNNING, _E.WAIT): _S.WAITING,
        (_S.RUNNING, _E.FINISH): _S.DONE,
        (_S.RUNNING, _E.FINISH_LATE): _S.MISSED,
        (_S.RUNNING, _E.FAIL): _S.FAILED,
        (_S.RUNNING, _E.STOP): _S.STOPPED,
        (_S.YIELDING, _E.RESUME): _S.RUNNING,
        (_S.YIELDING, _E.YIELD): _S.YIELDING,
        (_S.YIELDING, _E.WAIT): _S.WAITING,
        (_S.YIELDING, _E.FINISH): _S.DONE,
        (_S.YIELDING, _E.FINISH_LATE): _S.MISSED,
        (_S.YIELDING, _E.FAIL): _S.FAILED,
        (_S.YIELDING, _E.STOP): _S.STOPPED,
        # A pin is kept until somebody stops it, also after everything has been brought.
        (_S.DONE, _E.STOP): _S.STOPPED,
        (_S.MISSED, _E.STOP): _S.STOPPED,
        (_S.DONE, _E.FAIL): _S.FAILED,
        (_S.MISSED, _E.FAIL): _S.FAILED,
    }
)

next_state = TRANSITIONS.after
