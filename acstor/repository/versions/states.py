"""The states of a version's record, and who may change it how.

::

              begin             commit               merge          .--- merge ---.
   (absent) --------> CAPTURED --------> COMMITTED --------> MERGED |             |
       ^  |             | ^ '- announce -'  ^  |               |  ^<'             |
       |  |   abandon   | |                 |  |  condemn      |  '---------------'
       |<-'-------------' '-- announce,     |  v               v
       |   publish            edit          | CONDEMNED <------'
       |----------------------------------->'  |
       |                  remove               |
       '<--------------------------------------'  (also from COMMITTED and MERGED)

``announce`` and ``edit`` leave every state but CONDEMNED as it is; ``release`` is the end of a use,
after which a condemned version is removed.
"""

import enum

from acstor import exception
from acstor.states import TransitionTable


class VersionState(enum.StrEnum):
    """State of a version."""

    CAPTURED = "captured"
    """Its content is on one host and nowhere else: it is no restore point yet, and is lost with the
    host."""
    COMMITTED = "committed"
    """All of it is in the origin, in the packs that its capture stored and in those of others."""
    MERGED = "merged"
    """As committed; its chunks are where the origin's side has put them: fewer manifests in a
    chain, fewer jumps, duplicates of other hosts found."""
    CONDEMNED = "condemned"
    """Deleted, and still in use: it goes with its last use."""


class VersionEvent(enum.StrEnum):
    """Event in the life of a version's record."""

    BEGIN = "begin"
    """A host has the content of one moment, and is about to store it."""
    PUBLISH = "publish"
    """A state that is in the origin already becomes a version: a volume's."""
    ANNOUNCE = "announce"
    """Objects that it will refer to are named before they exist."""
    COMMIT = "commit"
    """All of the content is in the origin."""
    ABANDON = "abandon"
    """The capture has failed, or its host is lost."""
    MERGE = "merge"
    """Another manifest of the same content takes the place of the one before."""
    EDIT = "edit"
    """Name, labels, lock, expiry, or a use that begins."""
    CONDEMN = "condemn"
    """Somebody deletes it while it is in use."""
    RELEASE = "release"
    """A use of a condemned version ends, and others are left."""
    REMOVE = "remove"
    """It is deleted: nothing uses it, or the last use of a condemned one has ended."""


class Actor(enum.StrEnum):
    """Actor that changes a record."""

    CONTROL_PLANE = "control plane"
    """The service of versions, on behalf of users, schedules and retention."""
    HOST = "host"
    """The host that holds the capture: the record's ``host``."""
    ORIGIN_SIDE = "origin side"
    """The background work of the controllers."""


ACTORS: dict[VersionEvent, Actor] = {
    VersionEvent.BEGIN: Actor.HOST,
    VersionEvent.PUBLISH: Actor.CONTROL_PLANE,
    VersionEvent.ANNOUNCE: Actor.HOST,  # or the origin side, of what a merge makes
    VersionEvent.COMMIT: Actor.HOST,
    VersionEvent.ABANDON: Actor.HOST,  # or control plane, of a host that is lost
    VersionEvent.MERGE: Actor.ORIGIN_SIDE,
    VersionEvent.EDIT: Actor.CONTROL_PLANE,
    VersionEvent.CONDEMN: Actor.CONTROL_PLANE,
    VersionEvent.RELEASE: Actor.CONTROL_PLANE,
    VersionEvent.REMOVE: Actor.CONTROL_PLANE,
}
"""Actor that makes each change."""

_S, _E = VersionState, VersionEvent

TRANSITIONS = TransitionTable[VersionState | None, VersionEvent](
    {
        (None, _E.BEGIN): _S.CAPTURED,
        (None, _E.PUBLISH): _S.COMMITTED,
        (_S.CAPTURED, _E.ANNOUNCE): _S.CAPTURED,
        (_S.CAPTURED, _E.EDIT): _S.CAPTURED,
        (_S.CAPTURED, _E.COMMIT): _S.COMMITTED,
        (_S.CAPTURED, _E.ABANDON): None,
        (_S.COMMITTED, _E.ANNOUNCE): _S.COMMITTED,
        (_S.COMMITTED, _E.EDIT): _S.COMMITTED,
        (_S.COMMITTED, _E.MERGE): _S.MERGED,
        (_S.COMMITTED, _E.CONDEMN): _S.CONDEMNED,
        (_S.COMMITTED, _E.REMOVE): None,
        (_S.MERGED, _E.ANNOUNCE): _S.MERGED,
        (_S.MERGED, _E.EDIT): _S.MERGED,
        (_S.MERGED, _E.MERGE): _S.MERGED,
        (_S.MERGED, _E.CONDEMN): _S.CONDEMNED,
        (_S.MERGED, _E.REMOVE): None,
        (_S.CONDEMNED, _E.RELEASE): _S.CONDEMNED,
        (_S.CONDEMNED, _E.REMOVE): None,
    },
    name="version",
    error=exception.InternalError,
)
"""Every change of a record; None: there is no version."""

RESTORABLE = frozenset({VersionState.COMMITTED, VersionState.MERGED})
"""States in which a version is a restore point."""


def check_transition(
    before: VersionState | None, event: VersionEvent, after: VersionState | None
) -> None:
    """Refuse a change that the table does not list: a programming error.

    :raises InternalError: when it does not.
    """
    if not TRANSITIONS.allows(before, event, after):
        names = [state.value if state else "absent" for state in (before, after)]
        raise exception.InternalError(f"{event.value} does not lead from {names[0]} to {names[1]}")
