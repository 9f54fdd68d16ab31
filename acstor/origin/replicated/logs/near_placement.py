"""Placement for who knows in which member a log was written: that one is asked first."""

import dataclasses

from acstor.origin.replicated.placement import Placed, Placement


class NearPlacement:
    """Another placement, with one member first for what was written in it.

    :param inner: of all else.
    :param member: name.
    """

    def __init__(self, inner: Placement, member: str) -> None:
        self._inner = inner
        self._member = member

    def place(self, key: str) -> Placed:
        """Return the members of an object."""
        placed = self._inner.place(key)
        return dataclasses.replace(placed, members=(self._member,)) if placed.is_slot else placed
