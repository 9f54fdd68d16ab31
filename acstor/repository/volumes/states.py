"""The states of a volume's record, and who may change it how.

::

                  create          acquire (never owned)      advance, fold
    (absent) ----------> AVAILABLE ----------------> OWNED <--------------.
        ^                 | |  ^  ^                   |  |                |
        |      delete     | |  |  '---- release ------'  '----------------'
        |<----------------' |  '- revert (itself)     |
        |                   | take over               | take over
        |  delete, by force v                         v     record takeover
        '------------------- TAKING_OVER <------------' ----------------> OWNED

Every state allows ``edit`` (hosts, durability, size, name: nothing that changes hands) by the
control plane. The record's fields give the state; nothing else is stored.
"""

import enum

from acstor import exception
from acstor.repository.volumes.record import VolumeRecord
from acstor.states import TransitionTable


class VolumeRecordState(enum.StrEnum):
    """Ownership state of a volume."""

    AVAILABLE = "available"
    """Nobody: all of it is in the origin."""
    OWNED = "owned"
    """A host serves it and writes its log objects."""
    TAKING_OVER = "taking-over"
    """A host took it, and has to seal the log of the epoch before, released or not, before it
    writes anything."""


class VolumeRecordEvent(enum.StrEnum):
    """Event in the life of a volume's record."""

    CREATE = "create"
    EDIT = "edit"
    """Hosts, durability, size, name and metadata."""
    REVERT = "revert"
    """The disk becomes that of a snapshot."""
    DELETE = "delete"
    ACQUIRE = "acquire"
    """A host becomes the first owner."""
    TAKE_OVER = "take over"
    """A host becomes the owner after another one, or after itself."""
    RECORD_TAKEOVER = "record takeover"
    """The old owner's log is sealed, and its end is in the record."""
    ADVANCE = "advance"
    """The owner's pushed objects become a closed range."""
    FOLD = "fold"
    """The owner replaces log objects by a manifest; every step of it."""
    RELEASE = "release"


class Actor(enum.StrEnum):
    """Actor that changes a record."""

    CONTROL_PLANE = "control plane"
    """The Cinder driver and operators' commands."""
    ALLOWED_HOST = "allowed host"
    """The data plane of a host that is in the record's ``hosts``."""
    OWNER = "owner"
    """The data plane of the host that is the record's ``owner``, in the record's ``epoch``."""


ACTORS: dict[VolumeRecordEvent, Actor] = {
    VolumeRecordEvent.CREATE: Actor.CONTROL_PLANE,
    VolumeRecordEvent.EDIT: Actor.CONTROL_PLANE,
    VolumeRecordEvent.REVERT: Actor.CONTROL_PLANE,
    VolumeRecordEvent.DELETE: Actor.CONTROL_PLANE,
    VolumeRecordEvent.ACQUIRE: Actor.ALLOWED_HOST,
    VolumeRecordEvent.TAKE_OVER: Actor.ALLOWED_HOST,  # or control plane, if no host is allowed
    VolumeRecordEvent.RECORD_TAKEOVER: Actor.OWNER,
    VolumeRecordEvent.ADVANCE: Actor.OWNER,
    VolumeRecordEvent.FOLD: Actor.OWNER,
    VolumeRecordEvent.RELEASE: Actor.OWNER,
}
"""Actor that makes each change."""

_S, _E = VolumeRecordState, VolumeRecordEvent

TRANSITIONS = TransitionTable[VolumeRecordState | None, VolumeRecordEvent](
    {
        (None, _E.CREATE): _S.AVAILABLE,
        (_S.AVAILABLE, _E.EDIT): _S.AVAILABLE,
        (_S.AVAILABLE, _E.REVERT): _S.AVAILABLE,
        (_S.AVAILABLE, _E.DELETE): None,
        (_S.AVAILABLE, _E.ACQUIRE): _S.OWNED,
        (_S.AVAILABLE, _E.TAKE_OVER): _S.TAKING_OVER,
        (_S.OWNED, _E.EDIT): _S.OWNED,
        (_S.OWNED, _E.DELETE): None,  # by force, and only while no host is allowed
        (_S.OWNED, _E.TAKE_OVER): _S.TAKING_OVER,
        (_S.OWNED, _E.ADVANCE): _S.OWNED,
        (_S.OWNED, _E.FOLD): _S.OWNED,
        (_S.OWNED, _E.RELEASE): _S.AVAILABLE,
        (_S.TAKING_OVER, _E.EDIT): _S.TAKING_OVER,
        (_S.TAKING_OVER, _E.DELETE): None,  # by force, and only while no host is allowed
        (_S.TAKING_OVER, _E.TAKE_OVER): _S.TAKING_OVER,
        (_S.TAKING_OVER, _E.RECORD_TAKEOVER): _S.OWNED,
    },
    name="volume record",
    error=exception.InternalError,
)
"""Every change of a record; None: there is no volume."""


def state_of(record: VolumeRecord | None) -> VolumeRecordState | None:
    """Return the state that a record is in."""
    if record is None:
        return None
    if record.owner is None:
        return VolumeRecordState.AVAILABLE
    return VolumeRecordState.OWNED if record.unsealed is None else VolumeRecordState.TAKING_OVER


def check_transition(
    before: VolumeRecord | None, event: VolumeRecordEvent, after: VolumeRecord | None
) -> None:
    """Refuse a change that the table does not list: a programming error.

    :raises InternalError: when it does not.
    """
    former, latter = state_of(before), state_of(after)
    if not TRANSITIONS.allows(former, event, latter):
        names = [state.value if state else "absent" for state in (former, latter)]
        raise exception.InternalError(f"{event.value} does not lead from {names[0]} to {names[1]}")
