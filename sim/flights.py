"""Obtaining one chunk: whom a host asks, in which order, and what it keeps.

Follows ``crates/readpath`` (``round.rs``, ``placement.rs``, ``obtain.rs``): one flight per host and
chunk, whoever waits; the owner before the last remaps, the peers that come before this host on the
ring, the origin; one hedge per round; a peer's request is passed on to nobody but the owner
before. Not modelled: prefetch, preloads, bounds on what is in flight, the origin's thread pool.
"""

from sim import estimates, peer_states, slow_looks, stores
from sim.compiled import compiled
from sim.estimates import is_own_link_slow, row_of
from sim.events import ANSWER, NEXT, OP_DONE, READY, REFUSED, push
from sim.plans import asks_packed, keeps_of_slow, make_plan, origin_place
from sim.rules import Rules
from sim.transfers import remove_attempt
from sim.world import (
    ERROR,
    ERROR_POOL,
    FAILED,
    FREE_ATTEMPTS,
    FREE_FLIGHTS,
    FREE_WAITERS,
    HEDGES,
    HEDGES_DENIED,
    HEDGES_WON,
    LIVE,
    ORIGIN,
    ORIGIN_AGAIN,
    ORIGIN_AGAIN_HEDGE,
    ORIGIN_AGAIN_REMAP,
    ORIGIN_BYTES,
    PACKED,
    PEER,
    PEER_FETCHES,
    PREVIOUS,
    PROBE,
    PROBED,
    REMAP_MISSES,
    STAND_IN,
    TIMEOUTS,
    World,
)

RUNNING, ENDED, BROKEN = 0, 1, 2
"""States of a machine: its program runs, is over, or has met an I/O error or lost its host."""
UNHEDGED, SPENT, RESCUE = 0, 1, 2
"""Whether a flight may be hedged: yes, no more, or only when it is very late."""
_BACKOFF_MIN, _BACKOFF_MAX = 0.05, 2.0
_UNREACHABLE_AFTER = 0.3
"""A connection that takes as long to fail was silence (``PeerHealth::unreachable``)."""


@compiled
def is_local(world: World, rules: Rules, host: int, content: int) -> bool:
    """Return whether a host has a chunk, in its store or obtained a moment ago."""
    if world.has[host, content]:
        return True
    seen = world.seen[host, content]
    return seen > 0 and world.host_sequence[host] - seen < rules.recent_chunks


@compiled
def new_flight(
    world: World, rules: Rules, host: int, content: int, amount: float, now: float
) -> int:
    """Start to obtain a chunk and return the number of the flight."""
    free = world.cursor[FREE_FLIGHTS] - 1
    if free < 0:
        world.cursor[ERROR] = ERROR_POOL
        return 0
    world.cursor[FREE_FLIGHTS] = free
    flight = world.flight_free[free]
    world.flight_host[flight] = host
    world.flight_content[flight] = content
    world.flight_bytes[flight] = amount
    world.flight_started[flight] = now
    world.flight_waiters[flight] = -1
    world.flight_wanted[flight] = 0
    world.flight_owner[flight] = 0
    world.flight_hedged[flight] = 0
    world.flight_round[flight] = 0
    world.flight_planned[flight] = -1
    world.flight_next[flight] = 0
    world.flight_running[flight] = 0
    if rules.is_cached:
        world.flight_of[host, content] = flight
    push(world, now, NEXT, flight, world.flight_version[flight])
    return flight


@compiled
def add_waiter(world: World, flight: int, machine: int, attempt: int) -> None:
    """Let a machine (or -1) or a peer's attempt (or -1) wait for a flight."""
    free = world.cursor[FREE_WAITERS] - 1
    if free < 0:
        world.cursor[ERROR] = ERROR_POOL
        return
    world.cursor[FREE_WAITERS] = free
    waiter = world.waiter_free[free]
    world.waiter_machine[waiter] = machine
    world.waiter_attempt[waiter] = attempt
    world.waiter_version[waiter] = world.attempt_version[attempt] if attempt >= 0 else 0
    world.waiter_next[waiter] = world.flight_waiters[flight]
    world.flight_waiters[flight] = waiter
    if machine >= 0:
        world.flight_wanted[flight] = 1


@compiled
def ask_next(world: World, rules: Rules, flight: int, now: float, is_hedge: bool) -> None:
    """Ask the next source of a flight; without one repeat the round, or give up."""
    if world.flight_planned[flight] < 0:
        make_plan(world, rules, flight)
    host = world.flight_host[flight]
    while world.flight_next[flight] < world.flight_planned[flight]:
        at = world.flight_next[flight]
        world.flight_next[flight] = at + 1
        source, kind = world.flight_plan[flight, at], world.flight_kinds[flight, at]
        if kind != ORIGIN and not peer_states.admit(world, rules, row_of(world, host, source), now):
            continue
        _start_attempt(world, rules, flight, source, kind, is_hedge, now)
        probe = world.flight_probe[flight]
        if probe >= 0:
            world.flight_probe[flight] = -1
            if world.flight_attempts[flight, PROBED] < 0:
                _start_attempt(world, rules, flight, probe, PROBE, False, now)
        return
    if world.flight_running[flight] > 0:
        return
    if not world.flight_wanted[flight] or now - world.flight_started[flight] >= rules.read_deadline:
        _release(world, flight, now, False)
    else:
        wait = min(_BACKOFF_MAX, _BACKOFF_MIN * 2.0 ** min(world.flight_round[flight], 10))
        world.flight_round[flight] += 1
        world.flight_planned[flight] = -1
        push(world, now + wait, NEXT, flight, world.flight_version[flight])


@compiled
def _start_attempt(
    world: World, rules: Rules, flight: int, source: int, kind: int, is_hedge: bool, now: float
) -> None:
    free = world.cursor[FREE_ATTEMPTS] - 1
    if free < 0:
        world.cursor[ERROR] = ERROR_POOL
        return
    world.cursor[FREE_ATTEMPTS] = free
    attempt = world.attempt_free[free]
    host = world.flight_host[flight]
    world.attempt_flight[attempt] = flight
    world.attempt_source[attempt] = source
    world.attempt_kind[attempt] = kind
    world.attempt_is_hedge[attempt] = 1 if is_hedge else 0
    world.attempt_started[attempt] = now
    if kind == PROBE:
        world.flight_attempts[flight, PROBED] = attempt
    else:
        for index in range(PROBED):
            if world.flight_attempts[flight, index] < 0:
                world.flight_attempts[flight, index] = attempt
                break
        world.flight_running[flight] += 1
    world.live_at[attempt] = world.cursor[LIVE]
    world.live[world.cursor[LIVE]] = attempt
    world.cursor[LIVE] += 1
    world.attempt_row[attempt] = row_of(world, host, source)
    estimates.begin(world, attempt)
    world.attempt_packed[attempt] = 0
    if kind != ORIGIN and asks_packed(world, rules, host, source, now):
        world.attempt_packed[attempt] = 1
    latency = rules.origin_latency
    world.attempt_hedge_at[attempt] = now + estimates.hedge_delay(world, rules, attempt, now)
    deadline = rules.origin_deadline if kind == ORIGIN else rules.peer_deadline
    if kind != ORIGIN and rules.load_aware and is_own_link_slow(world, rules, host, now):
        # A fetch that is given up is a chunk that crosses the full link twice.
        deadline = (world.flight_started[flight] + rules.read_deadline - now) / 2
    world.attempt_until[attempt] = now + deadline
    if kind != ORIGIN:
        latency = rules.peer_latency
        tokens = world.hedge_tokens[host] + (0.0 if kind == PROBE else rules.hedge_share)
        world.hedge_tokens[host] = min(rules.hedge_tokens_max, tokens)
        world.totals[PEER_FETCHES] += 1
        latency += rules.compress_latency if world.attempt_packed[attempt] else 0.0
        if not world.is_alive[source]:
            latency = peer_states.silence(world, rules, world.attempt_row[attempt], now)
    push(world, now + latency, ANSWER, attempt, world.attempt_version[attempt])


@compiled
def hedge(world: World, rules: Rules, attempt: int, now: float) -> None:
    """Ask a second source beside one that is late, where the budget allows."""
    flight = world.attempt_flight[attempt]
    is_rescue = world.flight_hedged[flight] == RESCUE
    if is_rescue and now - world.attempt_started[attempt] < rules.hedge_max:
        return
    if (
        world.flight_hedged[flight] == SPENT
        or world.flight_running[flight] != 1
        or world.flight_next[flight] >= world.flight_planned[flight]
    ):
        return
    host = world.flight_host[flight]
    if rules.load_aware and is_own_link_slow(world, rules, host, now):
        rescue_at = world.attempt_started[attempt] + estimates.rescue_delay(world, rules, attempt)
        world.attempt_hedge_at[attempt] = rescue_at
        if now < rescue_at:
            return
    elif not is_rescue:
        if world.hedge_tokens[host] < 1.0:
            world.totals[HEDGES_DENIED] += 1
            world.flight_hedged[flight] = RESCUE if rules.load_aware else SPENT
            return
        world.hedge_tokens[host] -= 1.0
    world.flight_hedged[flight] = SPENT
    world.totals[HEDGES] += 1
    if rules.hedge_to_origin:
        world.flight_next[flight] = origin_place(world, flight)
    ask_next(world, rules, flight, now, True)


@compiled
def answered(world: World, rules: Rules, attempt: int, now: float) -> bool:
    """Let a source begin to answer; return whether it can send at once."""
    source, kind = world.attempt_source[attempt], world.attempt_kind[attempt]
    if kind == ORIGIN:
        return True
    if not world.is_alive[source]:
        wait = peer_states.silence(world, rules, world.attempt_row[attempt], now)
        if wait > 0:  # asked before it died
            push(world, now + wait, ANSWER, attempt, world.attempt_version[attempt])
        else:
            time = now - world.attempt_started[attempt]
            if kind != PROBE and time >= _UNREACHABLE_AFTER:
                slow_looks.note_silence(world, rules, world.attempt_row[attempt], time, now)
            failed(world, rules, attempt, now, True, False)
        return False
    content = world.flight_content[world.attempt_flight[attempt]]
    if is_local(world, rules, source, content):
        stores.use(world, rules, source, content)
        return True
    if kind in (PREVIOUS, STAND_IN):
        failed(world, rules, attempt, now, False, False)
        return False
    flight = world.flight_of[source, content]
    if flight < 0:
        flight = new_flight(world, rules, source, content, rules.chunk_bytes, now)
    elif _asks_only_peers(world, flight):
        # It might wait for us in its turn: the origin is asked at once.
        world.flight_next[flight] = origin_place(world, flight)
        ask_next(world, rules, flight, now, False)
    add_waiter(world, flight, -1, attempt)
    return False


@compiled
def _asks_only_peers(world: World, flight: int) -> bool:
    running = 0
    for index in range(PROBED):
        attempt = world.flight_attempts[flight, index]
        if attempt >= 0:
            running += 1
            if world.attempt_kind[attempt] not in (PEER, STAND_IN):
                return False
    return running > 0 and world.flight_next[flight] < world.flight_planned[flight]


@compiled
def failed(
    world: World, rules: Rules, attempt: int, now: float, is_penalised: bool, only_origin: bool
) -> None:
    """End an attempt that brought nothing; the next source follows unless another one runs."""
    flight, kind = world.attempt_flight[attempt], world.attempt_kind[attempt]
    if kind not in (ORIGIN, PROBE):
        if is_penalised:
            peer_states.note_failure(world, world.attempt_row[attempt], now)
        else:
            peer_states.note_answer(world, world.attempt_row[attempt])
    estimates.note_delay(world, rules, attempt, now, False)
    remove_attempt(world, attempt, now)
    if kind == PROBE:
        return
    if only_origin and world.flight_next[flight] < world.flight_planned[flight]:
        world.flight_next[flight] = origin_place(world, flight)
    if world.flight_running[flight] == 0:
        push(world, now, NEXT, flight, world.flight_version[flight])


@compiled
def arrived(world: World, rules: Rules, attempt: int, now: float) -> None:
    """Take what an attempt brought: keep it, and give it to all who wait."""
    flight = world.attempt_flight[attempt]
    host, content = world.flight_host[flight], world.flight_content[flight]
    kind, amount = world.attempt_kind[attempt], world.flight_bytes[flight]
    kind = PEER if kind in (STAND_IN, PROBE) else kind
    world.totals[PACKED] += world.attempt_packed[attempt]
    estimates.note_delay(world, rules, attempt, now, True)
    estimates.note_latency(world, attempt, now - world.attempt_started[attempt])
    is_slow = keeps_of_slow(world, rules, attempt, host, now)
    if kind == ORIGIN:
        _count_origin(world, flight, attempt, content, amount)
    else:
        peer_states.note_answer(world, world.attempt_row[attempt])
    if world.attempt_is_hedge[attempt]:
        world.totals[HEDGES_WON] += 1
    if world.flight_wanted[flight]:
        world.tier[kind, host] += amount
    remove_attempt(world, attempt, now)
    for index in range(PROBED + 1):
        other = world.flight_attempts[flight, index]
        if other >= 0:
            estimates.note_delay(world, rules, other, now, False)
            estimates.note_latency(world, other, now - world.attempt_started[other])
            estimates.note_overtaken(world, rules, other, now)
            remove_attempt(world, other, now)
    if rules.is_cached:
        _keep(world, rules, flight, host, content, is_slow or kind != PEER)
    _release(world, flight, now, True)


@compiled
def _count_origin(world: World, flight: int, attempt: int, content: int, amount: float) -> None:
    world.totals[ORIGIN_BYTES] += amount
    if world.holders[content] == 0:
        return
    world.totals[ORIGIN_AGAIN] += amount
    if world.attempt_is_hedge[attempt]:
        world.totals[ORIGIN_AGAIN_HEDGE] += amount
    elif world.flight_owner[flight] or not world.flight_wanted[flight]:
        world.totals[ORIGIN_AGAIN_REMAP] += amount


@compiled
def _keep(world: World, rules: Rules, flight: int, host: int, content: int, is_dear: bool) -> None:
    """Keep a chunk for a moment, and in the store where this host is to have it.

    :param is_dear: it cost a read of the origin or of a slow peer, or moved here with the ring.
    """
    world.host_sequence[host] += 1
    world.seen[host, content] = world.host_sequence[host]
    is_owner = not rules.uses_peers or world.flight_owner[flight] == 1
    if is_owner and world.holders[content] > 0 and rules.uses_peers:
        world.totals[REMAP_MISSES] += 1
    is_kept = is_owner or is_dear or rules.keep == 2 or not world.flight_wanted[flight]
    if rules.keep == 1 and not is_kept:
        is_kept = world.ghost[host, content] == 1
        world.ghost[host, content] = 1
    if is_kept and not world.has[host, content]:
        stores.put(world, rules, host, content)


@compiled
def _release(world: World, flight: int, now: float, is_obtained: bool) -> None:
    """End a flight and tell all who wait for it."""
    probe = world.flight_attempts[flight, PROBED]
    if probe >= 0:
        remove_attempt(world, probe, now)
    waiter = world.flight_waiters[flight]
    while waiter >= 0:
        machine, attempt = world.waiter_machine[waiter], world.waiter_attempt[waiter]
        if machine >= 0:
            if is_obtained:
                world.machine_pending[machine] -= 1
                if world.machine_pending[machine] == 0:
                    push(world, now, OP_DONE, machine, 0)
            elif world.machine_state[machine] == RUNNING:
                world.machine_state[machine] = BROKEN
                world.totals[FAILED] += 1
        elif world.attempt_version[attempt] == world.waiter_version[waiter]:
            push(
                world, now, READY if is_obtained else REFUSED, attempt,
                world.attempt_version[attempt],
            )  # fmt: skip
        after = world.waiter_next[waiter]
        world.waiter_free[world.cursor[FREE_WAITERS]] = waiter
        world.cursor[FREE_WAITERS] += 1
        waiter = after
    host, content = world.flight_host[flight], world.flight_content[flight]
    if world.flight_of[host, content] == flight:
        world.flight_of[host, content] = -1
    world.flight_version[flight] += 1
    world.flight_free[world.cursor[FREE_FLIGHTS]] = flight
    world.cursor[FREE_FLIGHTS] += 1


@compiled
def check_clocks(world: World, rules: Rules, now: float) -> None:
    """Hedge what is late and give up what is too late."""
    index = 0
    while index < world.cursor[LIVE]:
        attempt = world.live[index]
        kind = world.attempt_kind[attempt]
        if now >= world.attempt_until[attempt]:
            world.totals[TIMEOUTS] += 1
            if kind not in (ORIGIN, PROBE):
                time = now - world.attempt_started[attempt]
                slow_looks.note_silence(world, rules, world.attempt_row[attempt], time, now)
            failed(world, rules, attempt, now, True, False)
            continue
        may_hedge = rules.hedge_enabled and (rules.load_aware or kind != ORIGIN)
        if may_hedge and kind != PROBE and now >= world.attempt_hedge_at[attempt]:
            hedge(world, rules, attempt, now)
        index += 1
