"""A tree: the last of a thousand members hears after five hops, with a fan-out of four."""

from collections.abc import Sequence

from acstor.policy.neighbourhoods.base import above


class Tree:
    """Each passes hints on to ``fan_out`` others."""

    def __init__(self, fan_out: int) -> None:
        self._fan_out = fan_out

    def parent(self, position: int, racks: Sequence[str]) -> int | None:
        """Return the position above."""
        del racks
        return above(position, self._fan_out)
