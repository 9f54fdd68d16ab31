"""A tree of racks, and one in each rack: a hint crosses the uplink of a rack once."""

from collections.abc import Sequence

from acstor.policy.neighbourhoods.base import above


class Topology:
    """The first member of a rack hears of other racks, all others of their own."""

    def __init__(self, fan_out: int) -> None:
        self._fan_out = fan_out

    def parent(self, position: int, racks: Sequence[str]) -> int | None:
        """Return the position above: in the own rack, if one of it has joined before."""
        earlier = range(position)
        own = [at for at in earlier if racks[at] == racks[position]]
        if own:
            among = above(len(own) - 1, self._fan_out)
            return own[0] if among is None else own[among + 1]
        heads = [at for at in earlier if racks[at] not in racks[:at]]
        among = above(len(heads), self._fan_out)
        return None if among is None else heads[among]
