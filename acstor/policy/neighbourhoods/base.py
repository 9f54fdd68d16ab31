"""Interface of an order in which hosts that boot one image pass hints on."""

from collections.abc import Sequence
from typing import Protocol


class Neighbourhood(Protocol):
    """Says of whom each member of an exchange hears.

    The data plane computes the same (``crates/selection/src/exchange/neighbourhood.rs``);
    ``tests/golden/neighbourhoods.json`` holds the two together. Here it explains, and decides
    nothing. Source: Nicolae and Rafique (2013), section 3, which has the ring.
    """

    def __init__(self, fan_out: int) -> None: ...

    def parent(self, position: int, racks: Sequence[str]) -> int | None:
        """Return the position of the member that a member hears of; None: the rendezvous host.

        :param position: among those that have joined, from 0.
        :param racks: of all members, by position; an empty text where it is not known.
        """


def above(position: int, fan_out: int) -> int | None:
    """Return the position above one in a tree whose first ``fan_out`` ones are below the root.

    :returns: None for the root itself.
    """
    return position // fan_out - 1 if position >= fan_out else None
