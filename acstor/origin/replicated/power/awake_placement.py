"""Placement without members that sleep: nothing is copied to them, and nothing is owed to them."""

import dataclasses

from acstor.origin.replicated.finding import PowerOf
from acstor.origin.replicated.placement import Placed, Placement
from acstor.origin.replicated.power.states import FILLED, SYNCHRONISED


class AwakePlacement:
    """Placement for the process that copies.

    A member that wakes is compared as a whole, so that no debt to it is kept meanwhile.

    :param inner: where objects belong.
    :param power: says of a member whether it gets copies.
    """

    def __init__(self, inner: Placement, power: PowerOf) -> None:
        self._inner = inner
        self._power = power

    def place(self, key: str) -> Placed:
        """Return the members of an object.

        The home comes first and never sleeps; of a log it is the member that it was written in, all
        of which is in the others before it sleeps.
        """
        placed = self._inner.place(key)
        first, *others = placed.members
        kept = tuple(name for name in others if self._power(name) in FILLED)
        if self._power(first) in SYNCHRONISED or not kept:
            kept = (first, *kept)
        if kept == placed.members:
            return placed
        return dataclasses.replace(placed, members=kept, copies=min(placed.copies, len(kept)))
