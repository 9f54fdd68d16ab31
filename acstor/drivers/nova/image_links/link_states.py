"""The states of the link of one image on one host.

Others act at the same place: Nova replaces a link that leads nowhere by its own file and removes
files, operators do as they like. So every look finds out anew what is there, and from every state
but the last, each event may follow. The usual ways::

    waiting --plant--> planted --keep--> kept --remove--> gone
     |                  ^   |             (planted --remove--> gone)
     |                  |   '--file_found--> nova_downloaded (the link led nowhere: Nova downloaded)
     |--locked--> busy -'--file_found--> nova_downloaded
     '--file_found--> nova_downloaded, --stranger_found--> foreign, --refuse--> refused
"""

import enum

from acstor.states import TransitionTable


class LinkState(enum.Enum):
    """State of the file at the place of an image's base file on this host."""

    WAITING = "waiting"
    """No link yet: the image is not attached, or its head and tail are not pinned."""
    PLANTED = "planted"
    """A link of ours: Nova finds the image."""
    BUSY = "busy"
    """Nova holds the lock, as it does while it downloads; tried again at the next look."""
    NOVA_DOWNLOADED = "nova_downloaded"
    """A regular file: Nova has downloaded the image itself. It is left alone for ever."""
    FOREIGN = "foreign"
    """Something else: a link of somebody else's, a directory. It is left alone."""
    REFUSED = "refused"
    """No link, because of Nova's settings or ours."""
    KEPT = "kept"
    """A link of ours that should go, but overlays use the image, or nobody knows."""
    GONE = "gone"
    """Nothing is there and nothing should be: the image may be detached."""


class LinkEvent(enum.Enum):
    """Observation or action of a reconcile pass."""

    NOT_READY = "not_ready"
    """The image should have a link, and is not attached or pinned yet."""
    PLANT = "plant"
    """A link was planted, or is there already."""
    LOCKED = "locked"
    """Nova held the lock when a link was to be planted or removed."""
    FILE_FOUND = "file_found"
    """A regular file is there."""
    STRANGER_FOUND = "stranger_found"
    """Something else is there."""
    REFUSE = "refuse"
    """Links must not be planted on this host, and there is none."""
    KEEP = "keep"
    """The link should go, but cannot."""
    REMOVE = "remove"
    """The link was removed, or there is none, of an image that should have none."""


_S, _E = LinkState, LinkEvent

_OUTCOMES: dict[LinkEvent, LinkState] = {
    _E.NOT_READY: _S.WAITING,
    _E.PLANT: _S.PLANTED,
    _E.LOCKED: _S.BUSY,
    _E.FILE_FOUND: _S.NOVA_DOWNLOADED,
    _E.STRANGER_FOUND: _S.FOREIGN,
    _E.REFUSE: _S.REFUSED,
    _E.KEEP: _S.KEPT,
    _E.REMOVE: _S.GONE,
}

TRANSITIONS = TransitionTable[LinkState, LinkEvent](
    {
        (state, event): following
        for state in LinkState
        if state is not _S.GONE  # the image is forgotten; registered again, it is waiting
        for event, following in _OUTCOMES.items()
    },
    error=KeyError,
)

next_state = TRANSITIONS.after
