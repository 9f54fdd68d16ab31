"""Whom a flight asks, in which order: the line of the ring, the origin, who is passed over.

Follows ``crates/readpath`` (``placement.rs``) and ``crates/selection`` (``selector/choice.rs``).
"""

from sim.compiled import compiled
from sim.estimates import (
    DRASTIC,
    LASTING,
    LOADED,
    beside_others,
    estimate,
    is_fresh,
    is_loaded,
    is_origin_calm,
    is_own_link_slow,
    look_at,
    may_stand_in,
    note_slow,
    row_of,
)
from sim.rules import Rules
from sim.world import (
    BYPASSES,
    LINE,
    ORIGIN,
    PASSED_OVER,
    PEER,
    PREVIOUS,
    SLOW_LINKS,
    STAND_IN,
    Ints,
    World,
)

_TRIAL_INTERVAL = 2.0


@compiled
def _add(world: World, flight: int, source: int, kind: int) -> None:
    planned = world.flight_planned[flight]
    world.flight_plan[flight, planned] = source
    world.flight_kinds[flight, planned] = kind
    world.flight_planned[flight] = planned + 1


@compiled
def make_plan(world: World, rules: Rules, flight: int) -> None:
    """Write the sources of a round, first the one to ask first."""
    host = world.flight_host[flight]
    origin = len(world.is_alive)
    world.flight_planned[flight] = 0
    world.flight_next[flight] = 0
    world.flight_hedged[flight] = 0
    world.flight_probe[flight] = -1
    if rules.uses_peers:
        place = world.placement[world.flight_content[flight]]
        slot = world.host_slot[host]
        line = world.line[slot, world.group[slot, host], place]
        is_owner = line[0] == host
        world.flight_owner[flight] = 1 if is_owner else 0
        if is_owner:
            _add_previous(world, rules, flight, host, place)
        elif world.flight_wanted[flight]:
            _add_peers(world, rules, flight, line)
            return
        elif rules.passes_on and line[0] >= 0:
            _add(world, flight, line[0], PREVIOUS)
    _add(world, flight, origin, ORIGIN)


@compiled
def _add_peers(world: World, rules: Rules, flight: int, line: Ints) -> None:
    """Add the peers before this host and the origin, in the order that their loads leave."""
    host, now = world.flight_host[flight], world.clock[0]
    count = 0
    while count < min(LINE, rules.candidates_max) and line[count] >= 0 and line[count] != host:
        count += 1
    passed = 0
    if rules.load_aware and count > 0:
        if is_own_link_slow(world, rules, host, now):
            world.totals[SLOW_LINKS] += 1
            if _tries_origin(world, rules, host, now):
                _add(world, flight, len(world.is_alive), ORIGIN)
        else:
            passed = _steer(world, rules, flight, line, count, now)
    for index in range(count):
        if not passed >> index & 1:
            _add(world, flight, line[index], PEER)
    if world.flight_planned[flight] == 0 or world.flight_kinds[flight, 0] != ORIGIN:
        _add(world, flight, len(world.is_alive), ORIGIN)
    for index in range(count):
        if passed >> index & 1:
            world.totals[PASSED_OVER] += 1
            _add(world, flight, line[index], PEER)


@compiled
def _steer(world: World, rules: Rules, flight: int, line: Ints, count: int, now: float) -> int:
    """Return which peers come after the origin, as bits; add who is asked before all others."""
    host = world.flight_host[flight]
    loaded, lasting, drastic, everybody = 0, 0, 0, (1 << count) - 1
    free = -1
    for index in range(count):
        found = look_at(world, rules, host, line[index], now)
        loaded |= (1 if found & LOADED else 0) << index
        lasting |= (1 if found & LASTING else 0) << index
        drastic |= (1 if found & DRASTIC else 0) << index
        if free < 0 and not found & LOADED:
            free = index
    if loaded == 0:
        return 0
    if free == 0:
        return lasting  # no hedge shall wait for these
    if free > 0:
        before = (1 << free) - 1
        if lasting & before != before:
            # Perhaps they are slow because the chunk is cold: nobody else reads the origin for it.
            if may_stand_in(world, rules, host, line[free], now):
                _add(world, flight, line[free], STAND_IN)
            return 0
    else:
        is_calm = is_origin_calm(world, rules, host, now)
        if lasting != everybody or not (is_calm or drastic == everybody):
            return 0
        world.totals[BYPASSES] += 1
    _choose_probe(world, rules, flight, line, loaded, now)
    return loaded


@compiled
def _choose_probe(
    world: World, rules: Rules, flight: int, line: Ints, loaded: int, now: float
) -> None:
    """Choose one of the peers that are passed over to be probed."""
    host = world.flight_host[flight]
    if world.view_all_slow[host]:
        return
    for index in range(len(line)):
        row = row_of(world, host, line[index]) if loaded >> index & 1 else -1
        if row >= 0 and now >= world.probe_at[row]:
            world.probe_at[row] = now + rules.probe_interval
            world.flight_probe[flight] = line[index]
            return


@compiled
def _tries_origin(world: World, rules: Rules, host: int, now: float) -> bool:
    """Return whether the origin is asked once to see whether it is slow as well."""
    row = row_of(world, host, len(world.is_alive))
    known_at = max(world.slow_link_since[host], world.trial_at[host], world.delay_at[row])
    if is_fresh(world, rules, row, now) or now - known_at < _TRIAL_INTERVAL:
        return False
    world.trial_at[host] = now
    return True


@compiled
def _add_previous(world: World, rules: Rules, flight: int, host: int, place: int) -> None:
    for index in range(rules.previous_rings):
        slot = world.host_previous[host, index]
        if slot < 0:
            return
        owner = world.line[slot, world.group[slot, host], place, 0]
        is_known = owner < 0 or owner == host
        for planned in range(world.flight_planned[flight]):
            is_known = is_known or world.flight_plan[flight, planned] == owner
        if not is_known:
            _add(world, flight, owner, PREVIOUS)


@compiled
def origin_place(world: World, flight: int) -> int:
    """Return where in the plan the origin is, or where to go on if it was asked already."""
    for place in range(world.flight_next[flight], world.flight_planned[flight]):
        if world.flight_kinds[flight, place] == ORIGIN:
            return place
    return int(world.flight_next[flight])


@compiled
def keeps_of_slow(world: World, rules: Rules, attempt: int, host: int, now: float) -> bool:
    """Take what came for a look; return whether it is kept as its peer, or this host, is slow."""
    if not rules.load_aware:
        return False
    is_slow = False
    if world.attempt_kind[attempt] != ORIGIN:
        is_slow = note_slow(world, rules, host, world.attempt_row[attempt], now)
    if is_own_link_slow(world, rules, host, now):
        return True
    if not is_slow:
        return False
    tokens = world.keep_slow[host] + rules.keep_slow_rate * (now - world.keep_slow_at[host])
    tokens = min(rules.keep_slow_max, tokens)
    world.keep_slow_at[host] = now
    world.keep_slow[host] = tokens - 1.0 if tokens >= 1.0 else tokens
    return bool(tokens >= 1.0)


@compiled
def asks_packed(world: World, rules: Rules, host: int, peer: int, now: float) -> bool:
    """Return whether a peer is asked to compress: this host's link is full, or the peer's."""
    if rules.compress != 1:
        return rules.compress == 2
    if is_own_link_slow(world, rules, host, now) or is_loaded(world, rules, host, peer, now):
        return True
    time = estimate(world, row_of(world, host, peer), now)
    return time > beside_others(world, rules, host, rules.stands_out)
