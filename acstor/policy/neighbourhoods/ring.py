"""One chain: each member passes hints on to the next.

Source: Nicolae and Rafique (2013), section 3. The least work for each; the last of a thousand hears
after a thousand hops.
"""

from collections.abc import Sequence


class Ring:
    """Each hears of the one that joined before it."""

    def __init__(self, fan_out: int) -> None:
        del fan_out

    def parent(self, position: int, racks: Sequence[str]) -> int | None:
        """Return the position before."""
        del racks
        return position - 1 if position else None
