"""The choice of pairs of members that are synchronised in a control period.

Source: flexStore, §III-C, Equations 2 to 6: minimise the bytes that are left out under the
bandwidth and the power of each member. Differs: D counts bytes of objects, not chunks of one size;
every subset is tried, which is exact for the at most twelve pairs of four members; of subsets that
leave out as much there is an order. Equation 6 has a pair's rate depend on what was taken before,
so that the problem is not linear as printed: the order of taking is part of it, see
:func:`taking_order`. As in Equation 2 a pair that is taken counts whole, however small its rate is.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PAIRS_MAX = 12
"""Most pairs: those of four members. 4,096 subsets are tried."""


class Pair(NamedTuple):
    """Members between which is copied, in this direction."""

    source: str
    target: str


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """Bytes that one member owes to another one."""

    pair: Pair
    size_bytes: int
    """D(i, j), at least 1."""
    is_needed: bool = False
    """True if a planned move, drain or sleep waits for some of it."""
    power_watts: float = 0.0
    """Power(i, j): what copying costs each of the two."""


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """Share of a member that the synchronisation may have in this period."""

    network: float
    """Bytes per second."""
    disk: float
    """Bytes per second."""
    power_watts: float = math.inf


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Pairs that are synchronised, in the order in which they take, with their rates."""

    rates: Mapping[Pair, float]
    """Bytes per second."""
    left_bytes: int
    """Value of Equation 2: bytes of the pairs that are left out."""


def taking_order(demands: Sequence[Demand]) -> tuple[Demand, ...]:
    """Return the demands in the order in which they take of the members' bandwidth.

    Needed ones first, then those of most bytes, then by name. Who takes first gets what it wants;
    so what a move waits for is not slowed down by the rest, and the largest debt by the smaller.
    """
    return tuple(sorted(demands, key=lambda one: (not one.is_needed, -one.size_bytes, one.pair)))


def choose(demands: Sequence[Demand], rooms: Mapping[str, Room], period_seconds: float) -> Choice:
    """Return the best subset of the demands.

    Best is which leaves out the fewest needed bytes, then the fewest bytes (Equation 2), then
    copies most bytes per second, then has the fewest pairs, then comes first. The rates hold
    Equation 3 by their making; a pair that would get none, or more power than there is
    (Equation 4), makes a subset impossible.

    :param rooms: of every member of the demands.
    :param period_seconds: T_s of Equation 5.
    :raises ValueError: when there are more than :data:`PAIRS_MAX` demands, one pair twice, or a
        member without room.
    """
    ordered = taking_order(demands)
    _check(ordered, rooms)
    total = sum(one.size_bytes for one in ordered)
    needed = sum(one.size_bytes for one in ordered if one.is_needed)
    best: tuple[tuple[float, ...], Choice] | None = None
    for mask in range(1 << len(ordered)):
        taken = [one for index, one in enumerate(ordered) if mask >> index & 1]
        rates = _rates(taken, rooms, period_seconds)
        if rates is None:
            continue
        left = total - sum(one.size_bytes for one in taken)
        needed_left = needed - sum(one.size_bytes for one in taken if one.is_needed)
        rank = (needed_left, left, -sum(rates.values()), len(taken), mask)
        if best is None or rank < best[0]:
            best = rank, Choice(rates, left)
    assert best is not None, "the empty subset is possible"
    return best[1]


def _rates(
    taken: Sequence[Demand], rooms: Mapping[str, Room], period_seconds: float
) -> Mapping[Pair, float] | None:
    """Return the rate of each pair of a subset (Equations 5 and 6); None: it is impossible."""
    network = {name: room.network for name, room in rooms.items()}
    disk = {name: room.disk for name, room in rooms.items()}
    power = {name: room.power_watts for name, room in rooms.items()}
    rates = {}
    for one in taken:
        wanted = one.size_bytes / period_seconds
        remaining = (left[member] for left in (network, disk) for member in one.pair)
        rate = min(wanted, *remaining)
        if rate <= 0:
            return None
        for member in one.pair:
            network[member] -= rate
            disk[member] -= rate
            power[member] -= one.power_watts
            if power[member] < 0:
                return None
        rates[one.pair] = rate
    return rates


def _check(demands: Sequence[Demand], rooms: Mapping[str, Room]) -> None:
    pairs = [one.pair for one in demands]
    if len(pairs) > PAIRS_MAX or len(set(pairs)) != len(pairs):
        raise ValueError(f"{len(pairs)} pairs, of which {PAIRS_MAX} different ones may be")
    for one in demands:
        if one.size_bytes < 1 or one.pair.source == one.pair.target:
            raise ValueError(f"{one} is no demand")
        if not set(one.pair) <= rooms.keys():
            raise ValueError(f"a member of {one.pair} has no room")
