"""The states of the local file of one image on one host.

::

    waiting --begin--> writing --written--> verifying --verified--> ready --link--> linked
       ^                  |                     |                     ^               |
       |---------fail-----'                     |                     '----unlink-----'
       '---------fail---------------------------'
    ready, linked --drop, damage--> unlinking --removed--> (absent)
    waiting, writing, verifying --drop--> unlinking
    (a finished file that nobody knows) --find--> unlinking

A kill leaves a partial file, which is removed at the next start, or a finished one, which is
compared again unless the record says that it was.
"""

import enum

from acstor.states import TransitionTable


class LocalFileState(enum.StrEnum):
    """State of an image's local file."""

    WAITING = "waiting"
    """There is no file yet: something is in the way, or others go first."""
    WRITING = "writing"
    """A partial file is being written from the image's file in the mount."""
    VERIFYING = "verifying"
    """The disk's copy, also that of a process before, is read and compared."""
    READY = "ready"
    """The file is finished; the image's link leads elsewhere, or to nowhere yet."""
    LINKED = "linked"
    """The image's link leads to the file: guests start from it."""
    UNLINKING = "unlinking"
    """The file is to go as soon as no link leads to it."""


class LocalFileEvent(enum.StrEnum):
    """Event in the life of a local file."""

    WANT = "want"
    """The image is to have a local file."""
    FIND = "find"
    """A finished file is there of which nobody knows what it is of."""
    BEGIN = "begin"
    WRITTEN = "written"
    """All of it is on the disk."""
    VERIFIED = "verified"
    """The disk's copy is the image."""
    FAIL = "fail"
    """It could not be written, or is not the image; what there is of it was removed."""
    LINK = "link"
    """A link leads to it."""
    UNLINK = "unlink"
    """No link leads to it any more, or not yet."""
    DAMAGE = "damage"
    """It is not the image any more, or is gone."""
    DROP = "drop"
    """The image is to have no local file any more, or not this one."""
    REMOVED = "removed"
    """The file is gone."""


_S, _E = LocalFileState, LocalFileEvent

TRANSITIONS = TransitionTable[LocalFileState | None, LocalFileEvent](
    {
        (None, _E.WANT): _S.WAITING,
        (None, _E.FIND): _S.UNLINKING,
        (_S.WAITING, _E.BEGIN): _S.WRITING,
        (_S.WAITING, _E.DROP): _S.UNLINKING,
        (_S.WRITING, _E.WRITTEN): _S.VERIFYING,
        (_S.WRITING, _E.FAIL): _S.WAITING,
        (_S.WRITING, _E.DROP): _S.UNLINKING,
        (_S.VERIFYING, _E.VERIFIED): _S.READY,
        (_S.VERIFYING, _E.FAIL): _S.WAITING,
        (_S.VERIFYING, _E.DROP): _S.UNLINKING,
        (_S.READY, _E.LINK): _S.LINKED,
        (_S.READY, _E.DAMAGE): _S.UNLINKING,
        (_S.READY, _E.DROP): _S.UNLINKING,
        (_S.LINKED, _E.UNLINK): _S.READY,
        (_S.LINKED, _E.DAMAGE): _S.UNLINKING,
        (_S.LINKED, _E.DROP): _S.UNLINKING,
        (_S.UNLINKING, _E.REMOVED): None,
    },
    name="local file",
)

next_state = TRANSITIONS.after
