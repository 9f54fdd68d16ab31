"""Looks at a peer, and at all peers of a host, that found them slow one after the other.

Follows ``crates/selection/src/slow_streak.rs``. A row of looks is kept for each row of
:mod:`sim.estimates`, and one more per host for whichever peer it looked at.
"""

from typing import Any

from numpy.typing import NDArray

from sim.compiled import compiled
from sim.rules import Rules
from sim.world import World

_LOOK_GAP = 10.0
NEVER_SLOW = -1.0


@compiled
def _note(
    since: NDArray[Any],
    seen: NDArray[Any],
    looks: NDArray[Any],
    good: NDArray[Any],
    row: int,
    is_slow: bool,
    rules: Rules,
    now: float,
) -> bool:
    stands = since[row] >= 0 and now - seen[row] <= _LOOK_GAP
    if is_slow:
        if not stands:
            since[row] = now
            looks[row] = 0
        seen[row] = now
        looks[row] += 1
        good[row] = 0
        return True
    if stands:
        good[row] += 1
        is_lasting = looks[row] >= rules.loaded_looks and (
            seen[row] - since[row] >= rules.loaded_lasting
        )
        if is_lasting and good[row] < rules.recovered_looks:
            return True
    since[row] = NEVER_SLOW
    looks[row] = 0
    good[row] = 0
    return False


@compiled
def note_look(
    world: World, rules: Rules, host: int, row: int, is_slow: bool, now: float
) -> bool:  # fmt: skip
    """Note what a look at a peer found, and return whether it is to be taken for slow."""
    is_taken = _note(
        world.slow_since, world.slow_seen, world.slow_looks, world.slow_good, row, is_slow, rules,
        now,
    )  # fmt: skip
    _note(
        world.peers_slow_since, world.peers_slow_seen, world.peers_slow_looks,
        world.peers_slow_good, host, is_taken, rules, now,
    )  # fmt: skip
    return bool(is_taken)


@compiled
def note_silence(world: World, rules: Rules, row: int, time: float, now: float) -> None:
    """Note that there was no answer for so long: as good as many looks, and a load."""
    first = now - max(time, rules.loaded_lasting)
    if world.slow_since[row] < 0 or world.slow_since[row] > first:
        world.slow_since[row] = first
    world.slow_seen[row] = now
    world.slow_looks[row] = rules.loaded_looks
    world.slow_good[row] = 0


@compiled
def _lasted(
    since: NDArray[Any], seen: NDArray[Any], looks: NDArray[Any], row: int, rules: Rules
) -> float:
    if since[row] < 0 or looks[row] < rules.loaded_looks:
        return NEVER_SLOW
    return float(seen[row] - since[row])


@compiled
def slow_for(world: World, rules: Rules, row: int) -> float:
    """Return for how long looks have found a peer slow, seconds; negative where too few did."""
    return float(_lasted(world.slow_since, world.slow_seen, world.slow_looks, row, rules))


@compiled
def all_slow_for(world: World, rules: Rules, host: int) -> float:
    """As :func:`slow_for`, for all peers of a host together; negative below a lasting load."""
    time = _lasted(
        world.peers_slow_since, world.peers_slow_seen, world.peers_slow_looks, host, rules
    )  # fmt: skip
    return float(time) if time >= rules.loaded_lasting else NEVER_SLOW
