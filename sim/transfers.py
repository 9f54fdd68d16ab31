"""Bytes on their way: starting, moving and ending transfers."""

import math

import numpy as np

from sim import estimates, fairness
from sim.compiled import compiled
from sim.events import FINISH, push
from sim.rules import Rules
from sim.topology import write_path
from sim.world import (
    DIRTY,
    FREE_ATTEMPTS,
    LIVE,
    MOVING,
    PROBE,
    PROBED,
    REFILLS,
    World,
)

_LEAST_SHARE = 0.02


@compiled
def refill(world: World, rules: Rules) -> None:
    """Compute the rates of everything that moves."""
    extra = len(world.extra_source)
    count = 0
    if rules.is_elastic:
        for flow in range(extra):
            world.rows[count] = flow
            count += 1
    for index in range(world.cursor[MOVING]):
        world.rows[count] = extra + world.moving[index]
        count += 1
    fairness.fill(
        world.rows, count, world.extra_order, extra if rules.is_elastic else 0, world.path,
        world.path_length, world.cap, world.capacity, world.rate, world.level,
        world.bottlenecked, world.left, world.unfixed, world.starts, world.members, world.fixed,
        world.heap_share, world.heap_link,
    )  # fmt: skip
    if rules.in_order > 0:
        _favour_earlier(world, rules.in_order)
    world.cursor[DIRTY] = 0
    world.totals[REFILLS] += 1


@compiled
def _favour_earlier(world: World, share: float) -> None:
    """Take a share of each chunk's rate away and give it to those that were asked for first.

    That is what a queue does in which packets of all connections wait in the order in which they
    came: of chunks that one owner is asked for at once the first is there long before the last. A
    chunk that another link holds up takes no more than that link lets through.
    """
    extra, count = len(world.extra_source), world.cursor[MOVING]
    asked_at = np.empty(count)
    for index in range(count):
        attempt = world.moving[index]
        asked_at[index] = world.attempt_started[attempt]
        row = extra + attempt
        taken = share * world.rate[row]
        world.rate[row] -= taken
        for hop in range(world.path_length[row]):
            world.left[world.path[row, hop]] += taken
    for index in np.argsort(asked_at, kind="mergesort"):
        row = extra + world.moving[index]
        room = math.inf
        for hop in range(world.path_length[row]):
            room = min(room, world.left[world.path[row, hop]])
        world.rate[row] += room
        for hop in range(world.path_length[row]):
            world.left[world.path[row, hop]] -= room


@compiled
def start_transfer(world: World, rules: Rules, attempt: int, now: float, end: float) -> None:
    """Let the chunk of an attempt move; until the next refill at a rate that is estimated."""
    flight = world.attempt_flight[attempt]
    source, host = world.attempt_source[attempt], world.flight_host[flight]
    row = len(world.extra_source) + attempt
    world.path_length[row] = write_path(
        world.switch, world.up, world.down, world.special, source, host, world.path[row]
    )
    rate = math.inf
    for hop in range(world.path_length[row]):
        link = world.path[row, hop]
        if world.level[link] >= 0:
            sharing = world.bottlenecked[link]
            share = world.level[link] * sharing / (sharing + 1)
        else:
            share = max(world.left[link], _LEAST_SHARE * world.capacity[link])
        rate = min(rate, share)
    for hop in range(world.path_length[row]):
        link = world.path[row, hop]
        world.left[link] -= rate
        if world.level[link] >= 0:
            world.bottlenecked[link] += 1
    world.rate[row] = rate
    packed = rules.compress_ratio if world.attempt_packed[attempt] else 1.0
    world.attempt_left[attempt] = world.flight_bytes[flight] * packed * rules.wire_share
    world.attempt_mark[attempt] = now
    world.moving_at[attempt] = world.cursor[MOVING]
    world.moving[world.cursor[MOVING]] = attempt
    world.cursor[MOVING] += 1
    world.cursor[DIRTY] = 1
    push_finish(world, attempt, end)


@compiled
def push_finish(world: World, attempt: int, end: float) -> None:
    """Queue the end of a transfer where it is before ``end``."""
    rate = world.rate[len(world.extra_source) + attempt]
    if rate <= 0:
        return
    finish = world.attempt_mark[attempt] + world.attempt_left[attempt] / rate
    if finish <= end:
        push(world, finish, FINISH, attempt, world.attempt_version[attempt])


@compiled
def progress(world: World, attempt: int, now: float) -> None:
    """Move bytes of a transfer up to now."""
    rate = world.rate[len(world.extra_source) + attempt]
    moved = min(world.attempt_left[attempt], rate * (now - world.attempt_mark[attempt]))
    world.attempt_left[attempt] -= moved
    world.attempt_mark[attempt] = now
    world.moved_out[world.attempt_source[attempt]] += moved
    world.moved_in[world.flight_host[world.attempt_flight[attempt]]] += moved


@compiled
def stop_transfer(world: World, attempt: int, now: float) -> None:
    """Take a transfer off the network, finished or not."""
    at = world.moving_at[attempt]
    if at < 0:
        return
    progress(world, attempt, now)
    row = len(world.extra_source) + attempt
    for hop in range(world.path_length[row]):
        link = world.path[row, hop]
        world.left[link] += world.rate[row]
        if world.level[link] >= 0 and world.bottlenecked[link] > 1:
            world.bottlenecked[link] -= 1
    last = world.moving[world.cursor[MOVING] - 1]
    world.moving[at] = last
    world.moving_at[last] = at
    world.moving_at[attempt] = -1
    world.cursor[MOVING] -= 1
    world.cursor[DIRTY] = 1


@compiled
def remove_attempt(world: World, attempt: int, now: float) -> None:
    """Forget an attempt; what is queued for it is void from now on."""
    estimates.end(world, attempt)
    stop_transfer(world, attempt, now)
    at = world.live_at[attempt]
    last = world.live[world.cursor[LIVE] - 1]
    world.live[at] = last
    world.live_at[last] = at
    world.live_at[attempt] = -1
    world.cursor[LIVE] -= 1
    world.attempt_version[attempt] += 1
    flight = world.attempt_flight[attempt]
    if world.attempt_kind[attempt] != PROBE:
        world.flight_running[flight] -= 1
    for index in range(PROBED + 1):
        if world.flight_attempts[flight, index] == attempt:
            world.flight_attempts[flight, index] = -1
    world.attempt_free[world.cursor[FREE_ATTEMPTS]] = attempt
    world.cursor[FREE_ATTEMPTS] += 1
