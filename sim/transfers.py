"""Bytes on their way: starting, moving and ending transfers, and what hosts learn of them."""

import math
from typing import Any

from numpy.typing import NDArray

from sim import fairness
from sim.compiled import compiled
from sim.events import FINISH, push
from sim.topology import write_path
from sim.world import (
    BUCKETS,
    DIRTY,
    FREE_ATTEMPTS,
    LIVE,
    MOVING,
    ORIGIN,
    REFILLS,
    Rules,
    World,
)

_FIRST_S = 50e-6
_RATIO = 1.2
_SAMPLES_MAX = 1024
_SAMPLES_MIN = 32
_WEIGHT_UP, _WEIGHT_DOWN, _OUTLIER, _HALF_LIFE = 0.3, 0.5, 4.0, 10.0
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
    world.cursor[DIRTY] = 0
    world.totals[REFILLS] += 1


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
    world.attempt_left[attempt] = world.flight_bytes[flight] * rules.wire_share
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
    count_underway(world, attempt, -1)
    stop_transfer(world, attempt, now)
    at = world.live_at[attempt]
    last = world.live[world.cursor[LIVE] - 1]
    world.live[at] = last
    world.live_at[last] = at
    world.live_at[attempt] = -1
    world.cursor[LIVE] -= 1
    world.attempt_version[attempt] += 1
    flight = world.attempt_flight[attempt]
    world.flight_running[flight] -= 1
    for index in range(3):
        if world.flight_attempts[flight, index] == attempt:
            world.flight_attempts[flight, index] = -1
    world.attempt_free[world.cursor[FREE_ATTEMPTS]] = attempt
    world.cursor[FREE_ATTEMPTS] += 1


@compiled
def pair_of(world: World, host: int, peer: int) -> int:
    """Return where what ``host`` knows of ``peer`` is kept."""
    hosts = len(world.is_alive)
    return host * hosts + peer if len(world.samples) > hosts else peer


@compiled
def _averaged(known: float, time: float, is_answer: bool) -> float:
    """Return a fading average with a sample more, as ``crates/readpath/src/source_delay.rs``."""
    if known == 0:
        return time
    if time > known:
        return known + _WEIGHT_UP * (min(time, _OUTLIER * known) - known)
    return known + _WEIGHT_DOWN * (time - known) if is_answer else known


@compiled
def _faded(value: float, at: float, now: float) -> float:
    return value * 2.0 ** ((at - now) / _HALF_LIFE)


@compiled
def peer_delay(world: World, pair: int, now: float) -> float:
    """Return how long a peer takes for a chunk as far as is known, seconds; 0: not known."""
    return _faded(world.delay[pair], world.delay_at[pair], now)


@compiled
def origin_delay(world: World, host: int, now: float) -> float:
    """Return how long the origin takes for a chunk, seconds; 0: not known."""
    return _faded(world.origin_delay[host], world.origin_delay_at[host], now)


@compiled
def loaded_from(world: World, rules: Rules, host: int, now: float) -> float:
    """Return from which delay on a peer is loaded (``crates/readpath/src/steering.rs``)."""
    slack = min(rules.slack_max, max(rules.slack_min, 2.0 * world.usual_delay[host]))
    return slack + rules.loaded_ratio * origin_delay(world, host, now)


@compiled
def _lower_end(usual: float, sample: float) -> float:
    """Return an average near the lower end of what is seen."""
    if usual == 0:
        return sample
    return usual - (usual - sample) / 8 if sample < usual else usual + (sample - usual) / 512


@compiled
def count_underway(world: World, attempt: int, change: int) -> None:
    """Count what a host has under way from a source."""
    host = world.flight_host[world.attempt_flight[attempt]]
    if world.attempt_kind[attempt] == ORIGIN:
        world.origin_underway[host] += change
        world.attempt_among[attempt] = world.origin_underway[host]
    else:
        pair = pair_of(world, host, world.attempt_source[attempt])
        world.pair_underway[pair] += change
        world.attempt_among[attempt] = world.pair_underway[pair]


@compiled
def note_latency(
    world: World, rules: Rules, attempt: int, time: float, now: float, is_answer: bool
) -> None:
    """Note how long a source took, or has taken so far where another one was faster."""
    host = world.flight_host[world.attempt_flight[attempt]]
    among = world.attempt_among[attempt]
    if world.attempt_kind[attempt] == ORIGIN:
        among = max(1, max(among, world.origin_underway[host]))
        each = _averaged(origin_delay(world, host, now), time / among, is_answer)
        world.origin_delay[host] = each
        world.origin_delay_at[host] = now
        if is_answer:
            world.usual_origin[host] = _lower_end(world.usual_origin[host], each)
        return
    pair = pair_of(world, host, world.attempt_source[attempt])
    among = max(1, max(among, world.pair_underway[pair]))
    known = _averaged(peer_delay(world, pair, now), time / among, is_answer)
    world.delay[pair] = known
    world.delay_at[pair] = now
    if is_answer:
        sample = min(known, rules.slack_max)
        world.usual_delay[host] = _lower_end(world.usual_delay[host], sample)
    bucket = math.ceil(math.log(max(1.0, time / _FIRST_S)) / math.log(_RATIO))
    bucket = min(BUCKETS - 1, bucket)
    world.histogram[pair, bucket] += 1
    world.samples[pair] += 1
    if world.samples[pair] >= _SAMPLES_MAX:
        total = 0
        for index in range(BUCKETS):
            world.histogram[pair, index] //= 2
            total += world.histogram[pair, index]
        world.samples[pair] = total
    world.host_histogram[host, bucket] += 1
    world.host_samples[host] += 1


@compiled
def hedge_delay(
    world: World, rules: Rules, host: int, peer: int, is_origin: bool, now: float
) -> float:
    """Return after how long a fetch from a peer is late.

    Source: ``crates/readpath/src/peer_health.rs``.
    """
    late = rules.hedge_max
    origin = origin_delay(world, host, now)
    if rules.load_aware and origin > 0:
        late = min(late, rules.hedge_origin_factor * origin)
    if is_origin:
        return max(rules.hedge_min, late)
    pair = pair_of(world, host, peer)
    own = rules.hedge_max
    if world.samples[pair] >= _SAMPLES_MIN:
        own = _p99(world.histogram[pair], world.samples[pair])
    elif rules.hedge_prior and world.host_samples[host] >= _SAMPLES_MIN:
        own = _p99(world.host_histogram[host], world.host_samples[host])
    return max(rules.hedge_min, min(own, late))


@compiled
def _p99(histogram: NDArray[Any], samples: int) -> float:
    allowed = samples // 100
    above = 0
    for bucket in range(BUCKETS - 1, -1, -1):
        above += histogram[bucket]
        if above > allowed:
            return _FIRST_S * _RATIO**bucket
    return 0.0
