"""Placement of log objects as who copies them has it: which member has them first, by records."""

from typing import Protocol

from acstor.origin.replicated.placement import Placed, Placement
from acstor.origin.replicated.set_placement import LOG_FOLDER

_EVERYWHERE = "packs/0"
"""Key of an object that all members shall have."""


class LogPlaces(Protocol):
    """Members that logs were written in."""

    def refresh(self) -> None:
        """Look again.

        :raises UnavailableError: when the home cannot be reached; what was known stays known.
        """

    def member_of(self, folder: str) -> str | None:
        """Return the member in which an epoch was written; None: nothing names its log."""


class LogPlacement:
    """Placement by the states of the members, and of logs by the records that name them.

    The member that an epoch was written in decides what is there; the others shall have it all. Of
    a log that nothing names nothing is copied: it is collected, or nobody needs it yet.

    :param inner: of all else.
    :param places: of logs.
    """

    def __init__(self, inner: Placement, places: LogPlaces) -> None:
        self._inner = inner
        self._places = places

    def place(self, key: str) -> Placed:
        """Return the members of an object."""
        if not key.startswith(LOG_FOLDER):
            return self._inner.place(key)
        all_members = self._inner.place(_EVERYWHERE).members
        member = self._places.member_of(key.rpartition("/")[0] + "/")
        if member is None:
            return Placed(all_members[:1], is_decided=True, is_sole=True)
        others = tuple(name for name in all_members if name != member)
        return Placed((member, *others), is_decided=True)
