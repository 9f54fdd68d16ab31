"""The states of a capture on its host: of all disks of one moment.

::

               start         hold          commit            finish
   (absent) ----------> QUEUED          HELD --------> COMMITTING --------> COMMITTED
       ^        read | ^ start |         ^ ^              |                     |
       |             v |       |         | '-- put off ---'                     |
       |           READING ----|- hold --'                                      |
       |              | fail   | abort, fail (from QUEUED, READING, HELD,       |
       |              v        v         COMMITTING too)                        |
       |             FAILED, ABORTED                                            |
       '---------------- discard (from COMMITTED, too) -------------------------'

``put_off`` is what the end of a process in mid-commit is, too: it is begun again. One that ends in
mid-reading is a failure, because the moment is over.
"""

import enum

from acstor import exception
from acstor.states import TransitionTable


class CaptureState(enum.StrEnum):
    """State of a capture on its host."""

    QUEUED = "queued"
    """It waits: for another of a disk of the same owner, or for those of other owners."""
    READING = "reading"
    """The disks are being read into the host's folder of captures."""
    HELD = "held"
    """All of it is on this host, and no part of its versions is a restore point: it waits for
    others to be compared with, or for the origin."""
    COMMITTING = "committing"
    """It is being stored in the origin."""
    COMMITTED = "committed"
    """Its versions are restore points; of its content nothing is on the host any more."""
    FAILED = "failed"
    """Nothing of it is left but the reason."""
    ABORTED = "aborted"
    """Somebody gave it up; nothing of it is left."""


class CaptureEvent(enum.StrEnum):
    """Event in the life of a capture."""

    START = "start"
    """Somebody asks for it, or once more for one that came to nothing."""
    READ = "read"
    HOLD = "hold"
    """All disks are read."""
    COMMIT = "commit"
    PUT_OFF = "put_off"
    """The origin cannot be reached, or who stored it was ended."""
    FINISH = "finish"
    FAIL = "fail"
    ABORT = "abort"
    DISCARD = "discard"
    """The end of it was taken note of by those who asked for it."""


_S, _E = CaptureState, CaptureEvent

TRANSITIONS = TransitionTable[CaptureState | None, CaptureEvent](
    {
        (None, _E.START): _S.QUEUED,
        (_S.QUEUED, _E.READ): _S.READING,
        (_S.QUEUED, _E.FAIL): _S.FAILED,
        (_S.QUEUED, _E.ABORT): _S.ABORTED,
        (_S.READING, _E.HOLD): _S.HELD,
        (_S.READING, _E.FAIL): _S.FAILED,
        (_S.READING, _E.ABORT): _S.ABORTED,
        (_S.HELD, _E.COMMIT): _S.COMMITTING,
        (_S.HELD, _E.FAIL): _S.FAILED,
        (_S.HELD, _E.ABORT): _S.ABORTED,
        (_S.COMMITTING, _E.PUT_OFF): _S.HELD,
        (_S.COMMITTING, _E.FINISH): _S.COMMITTED,
        (_S.COMMITTING, _E.FAIL): _S.FAILED,
        (_S.COMMITTING, _E.ABORT): _S.ABORTED,
        (_S.COMMITTED, _E.DISCARD): None,
        (_S.FAILED, _E.START): _S.QUEUED,
        (_S.FAILED, _E.DISCARD): None,
        (_S.ABORTED, _E.START): _S.QUEUED,
        (_S.ABORTED, _E.DISCARD): None,
    },
    name="capture",
    error=exception.InternalError,
)
"""Every change; None: the host knows of none."""

ENDED = frozenset({CaptureState.COMMITTED, CaptureState.FAILED, CaptureState.ABORTED})
"""States in which nothing happens by itself any more."""
