"""What a host learns of its sources: how long each takes for a chunk now, and whose link is full.

Follows ``crates/selection``: ``source_delay.rs``, ``selector.rs``, ``peer_health.rs``. What is known
of a source is kept in a row: one per (host, peer) and one per host for the origin.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim import slow_looks
from sim.compiled import compiled
from sim.rules import Rules
from sim.world import BUCKETS, ORIGIN, World

_FIRST_S = 50e-6
_RATIO = 1.2
_SAMPLES_MAX = 1024
_SAMPLES_MIN = 32
_WEIGHT_UP, _WEIGHT_DOWN, _OUTLIER, _HALF_LIFE = 0.3, 0.5, 4.0, 10.0
_USUAL_DOUBLES = 60.0
_FRESH = 2.0
_SLOW_LINK_LASTS = 10.0
_ORIGIN_STANDS_OUT, _FAST_ORIGIN_STANDS_OUT = 4.0, 2.5
"""The second of one that takes less than a chunk over a full link."""
_VIEW_AGE = 0.02


@compiled
def row_of(world: World, host: int, source: int) -> int:
    """Return where what ``host`` knows of a peer, or of the origin, is kept."""
    hosts = len(world.is_alive)
    if source == hosts:
        return len(world.samples) + host
    return host * hosts + source if len(world.samples) > hosts else source


@compiled
def _faded(world: World, row: int, now: float) -> float:
    return float(world.delay[row] * 2.0 ** ((world.delay_at[row] - now) / _HALF_LIFE))


@compiled
def _waiting(world: World, row: int, now: float) -> float:
    """Return how long the oldest fetch under way has waited, per fetch under way."""
    oldest = world.oldest[row]
    if oldest < 0:
        return 0.0
    return float((now - world.attempt_started[oldest]) / world.underway[row])


@compiled
def estimate(world: World, row: int, now: float) -> float:
    """Return how long a source takes for one chunk now, seconds; 0: not known."""
    return max(_faded(world, row, now), _waiting(world, row, now))


@compiled
def begin(world: World, attempt: int) -> None:
    """Note that a chunk was asked for."""
    row = world.attempt_row[attempt]
    world.underway[row] += 1
    world.attempt_among[attempt] = world.underway[row]
    world.attempt_answers[attempt] = world.answers[row]
    last = world.newest[row]
    world.attempt_before[attempt] = last
    world.attempt_after[attempt] = -1
    if last >= 0:
        world.attempt_after[last] = attempt
    else:
        world.oldest[row] = attempt
    world.newest[row] = attempt


@compiled
def end(world: World, attempt: int) -> None:
    """Note that a chunk is no longer asked for."""
    row = world.attempt_row[attempt]
    world.underway[row] -= 1
    before, after = world.attempt_before[attempt], world.attempt_after[attempt]
    if before >= 0:
        world.attempt_after[before] = after
    else:
        world.oldest[row] = after
    if after >= 0:
        world.attempt_before[after] = before
    else:
        world.newest[row] = before


@compiled
def _note_interval(world: World, attempt: int, row: int, now: float) -> None:
    """Note how far apart a source's answers are: the first of a burst come early."""
    world.answers[row] += 1
    count = world.answers[row] - world.attempt_answers[attempt]
    sample = (now - world.attempt_started[attempt]) / count
    known = world.interval[row]
    world.interval[row] = sample if known == 0 else known + _WEIGHT_UP * (sample - known)


@compiled
def note_delay(world: World, rules: Rules, attempt: int, now: float, is_answer: bool) -> None:
    """Note how long a source took, or has taken so far where it gave nothing: a lower bound."""
    row = world.attempt_row[attempt]
    if is_answer:
        _note_interval(world, attempt, row, now)
    among = max(1, max(world.attempt_among[attempt], world.underway[row]))
    sample = (now - world.attempt_started[attempt]) / among
    average = _faded(world, row, now)
    if not is_answer and sample <= average:
        return
    if world.delay[row] == 0:
        known = sample
    elif sample > average:
        most = max(average * _OUTLIER, world.delay[row])
        known = average + _WEIGHT_UP * max(0.0, min(sample, most) - average)
    else:
        known = average + _WEIGHT_DOWN * (sample - average)
    usual, since = world.usual[row], now - world.delay_at[row]
    if usual == 0:
        world.usual[row] = known
    elif known < usual:
        world.usual[row] = usual - (usual - known) / 16
    else:
        world.usual[row] = min(known, usual * 2.0 ** (since / _USUAL_DOUBLES))
    world.delay[row] = known
    world.delay_at[row] = now
    if is_answer and world.attempt_kind[attempt] != ORIGIN:
        world.answered_at[row] = now
        host = world.flight_host[world.attempt_flight[attempt]]
        seen, sample = world.usual_delay[host], min(known, rules.slack_max)
        if seen == 0:
            world.usual_delay[host] = sample
        else:
            world.usual_delay[host] += (sample - seen) / (8.0 if sample < seen else 512.0)


@compiled
def note_latency(world: World, attempt: int, time: float) -> None:
    """Note in the histogram of a peer how long it took."""
    if world.attempt_kind[attempt] == ORIGIN:
        return
    host = world.flight_host[world.attempt_flight[attempt]]
    pair = world.attempt_row[attempt]
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
def slack(world: World, rules: Rules, host: int) -> float:
    """Return what a fetch may take longer than usual before it tells anything."""
    return float(min(rules.slack_max, max(rules.slack_min, 2.0 * world.usual_delay[host])))


@compiled
def origin_now(world: World, host: int, now: float) -> float:
    """Return what the origin takes; what is known but old is no good news."""
    row = row_of(world, host, len(world.is_alive))
    return float(max(estimate(world, row, now), world.usual[row]))


@compiled
def slow_from(world: World, rules: Rules, host: int, now: float) -> float:
    """Return from which estimate on a peer is slow: slower than one that read the origin first."""
    return slack(world, rules, host) + rules.loaded_ratio * origin_now(world, host, now)


@compiled
def _slow_bound(world: World, rules: Rules, row: int) -> float:
    return float(min(rules.own_slow_max, max(rules.own_slow_min, 2.0 * world.usual[row])))


@compiled
def _is_slow(world: World, rules: Rules, row: int, now: float) -> bool:
    time = max(estimate(world, row, now), world.interval[row])
    return bool(time > _slow_bound(world, rules, row))


@compiled
def is_fresh(world: World, rules: Rules, row: int, now: float) -> bool:
    """Return whether what is known of a source tells how things are now."""
    if world.delay[row] > 0 and now - world.delay_at[row] <= _FRESH:
        return True
    return _waiting(world, row, now) > _slow_bound(world, rules, row)


@compiled
def look(world: World, rules: Rules, host: int, now: float) -> None:
    """Take the view anew where it is old: the median of the peers, and whether all are slow."""
    if now - world.view_at[host] < _VIEW_AGE:
        return
    world.view_at[host] = now
    hosts = len(world.is_alive)
    world.view_median[host] = 0.0
    world.view_all_slow[host] = 0
    if len(world.samples) == hosts:
        return  # what is known is shared by all hosts and says nothing of this one's link
    fresh, known, are_slow = 0, 0, True
    for peer in range(hosts):
        row = host * hosts + peer
        if world.delay[row] == 0 and world.oldest[row] < 0:
            continue
        known += 1
        if is_fresh(world, rules, row, now):
            world.view_buffer[fresh] = estimate(world, row, now)
            are_slow = are_slow and _is_slow(world, rules, row, now)
            fresh += 1
    median = np.sort(world.view_buffer[:fresh])[(fresh - 1) // 2] if fresh > 0 else 0.0
    world.view_median[host] = median
    origin = row_of(world, host, hosts)
    if world.delay[origin] > 0 or world.oldest[origin] >= 0:
        known += 1
        if is_fresh(world, rules, origin, now):
            fresh += 1
            are_slow = are_slow and _is_slow(world, rules, origin, now)
            time = max(estimate(world, origin, now), world.interval[origin])
            is_fast = time < rules.slack_max
            ratio = _FAST_ORIGIN_STANDS_OUT if is_fast else _ORIGIN_STANDS_OUT
            are_slow = are_slow and median <= ratio * time
    enough = fresh >= 3 or (fresh == 2 and known == 2)
    world.view_all_slow[host] = 1 if are_slow and fresh > 0 else 0
    if are_slow and enough:
        if not world.view_slow[host]:
            world.slow_link_since[host] = now
        world.view_slow[host] = 1
        world.slow_link_seen[host] = now
    elif not are_slow or now - world.slow_link_seen[host] > _SLOW_LINK_LASTS:
        world.view_slow[host] = 0


@compiled
def is_own_link_slow(world: World, rules: Rules, host: int, now: float) -> bool:
    """Return whether whatever a host asks is late: its own link is full, nobody else's."""
    if not rules.own_link:
        return False
    look(world, rules, host, now)
    return bool(world.view_slow[host] == 1)


@compiled
def longest(world: World, row: int, now: float) -> float:
    """Return the estimate, or the time between two answers of a burst where it is longer."""
    fading = 2.0 ** ((world.delay_at[row] - now) / _HALF_LIFE) if world.delay[row] > 0 else 0.0
    return float(max(estimate(world, row, now), world.interval[row] * fading))


@compiled
def note_slow(world: World, rules: Rules, host: int, row: int, now: float) -> bool:
    """Take an answer of a peer for a look; return whether it is to be taken for slow."""
    is_slow = longest(world, row, now) > slow_from(world, rules, host, now)
    return bool(slow_looks.note_look(world, rules, host, row, is_slow, now))


@compiled
def note_overtaken(world: World, rules: Rules, attempt: int, now: float) -> None:
    """Take a fetch that another source overtook late for as many looks as it takes."""
    time = now - world.attempt_started[attempt]
    if world.attempt_kind[attempt] != ORIGIN and time >= rules.loaded_after:
        slow_looks.note_silence(world, rules, world.attempt_row[attempt], time, now)


FREE, LOADED, LASTING, DRASTIC = 0, 1, 2, 4
"""What a look at a peer finds: bits."""
_DRASTIC_RATIO = 4.0


@compiled
def look_at(world: World, rules: Rules, host: int, peer: int, now: float) -> int:
    """Look at a peer before it is asked, and return its load.

    What was known already is noted only where it is good news.
    """
    row = row_of(world, host, peer)
    time = longest(world, row, now)
    if time == 0:
        return FREE
    limit = slow_from(world, rules, host, now)
    is_news = time <= limit or _waiting(world, row, now) > limit
    if is_news and not slow_looks.note_look(world, rules, host, row, time > limit, now):
        return FREE
    return _load_of(world, rules, host, row, time, now)


@compiled
def _load_of(world: World, rules: Rules, host: int, row: int, time: float, now: float) -> int:
    """Return what the looks so far say of a peer that is slow."""
    lasted = slow_looks.slow_for(world, rules, row)
    lasted = max(lasted, slow_looks.all_slow_for(world, rules, host))
    if lasted < 0:
        return FREE
    look(world, rules, host, now)
    stands_out = time > beside_others(world, rules, host, rules.stands_out)
    found = FREE
    if lasted >= (rules.loaded_after if stands_out else rules.loaded_lasting):
        found |= LOADED
    if lasted >= rules.loaded_lasting:
        found |= LASTING
    if time > _DRASTIC_RATIO * slow_from(world, rules, host, now):
        found |= DRASTIC
    return found


@compiled
def may_stand_in(world: World, rules: Rules, host: int, peer: int, now: float) -> bool:
    """Return whether a peer has answered lately, and nobody waits for it for long."""
    row = row_of(world, host, peer)
    is_lively = now - world.answered_at[row] <= rules.stand_in_age
    return bool(is_lively and _waiting(world, row, now) <= slow_from(world, rules, host, now))


@compiled
def beside_others(world: World, rules: Rules, host: int, ratio: float) -> float:
    """Return so many times what the host's peers take now, and slack, seconds."""
    return float(ratio * world.view_median[host] + slack(world, rules, host))


@compiled
def is_loaded(world: World, rules: Rules, host: int, peer: int, now: float) -> bool:
    """Return whether a peer is known to be loaded, without a look."""
    row = row_of(world, host, peer)
    time = estimate(world, row, now)
    if time <= slow_from(world, rules, host, now):
        return False
    return _load_of(world, rules, host, row, time, now) & LOADED != 0


@compiled
def is_origin_calm(world: World, rules: Rules, host: int, now: float) -> bool:
    """Return whether the origin takes about what it takes at best, or nothing is known of it."""
    row = row_of(world, host, len(world.is_alive))
    limit = rules.origin_calm_ratio * world.usual[row] + slack(world, rules, host)
    return rules.origin_calm_ratio <= 0 or estimate(world, row, now) <= limit


@compiled
def _is_hedged_early(world: World, rules: Rules, host: int, row: int, now: float) -> bool:
    """Return whether what the origin takes tells when a peer is late, rather than its own p99."""
    look(world, rules, host, now)
    if world.view_all_slow[host] or not is_origin_calm(world, rules, host, now):
        return False
    return slow_looks.slow_for(world, rules, row) >= rules.loaded_after


@compiled
def hedge_delay(world: World, rules: Rules, attempt: int, now: float) -> float:
    """Return after how long a fetch is late.

    Source: ``crates/selection/src/selector/hedging.rs``.
    """
    host = world.flight_host[world.attempt_flight[attempt]]
    row, is_origin = world.attempt_row[attempt], world.attempt_kind[attempt] == ORIGIN
    own = rules.hedge_max
    if not is_origin:
        if world.samples[row] >= _SAMPLES_MIN:
            own = p99(world.histogram[row], world.samples[row])
        elif rules.hedge_prior and world.host_samples[host] >= _SAMPLES_MIN:
            own = p99(world.host_histogram[host], world.host_samples[host])
    late = rules.hedge_max
    if rules.load_aware and _is_hedged_early(world, rules, host, row, now):
        bound = max(
            rules.hedge_origin_factor * origin_now(world, host, now),
            beside_others(world, rules, host, rules.stands_out),
        )
        late = min(late, bound * max(1, world.underway[row]))
    return max(rules.hedge_min, min(own, late))


@compiled
def rescue_delay(world: World, rules: Rules, attempt: int) -> float:
    """Return after how long a fetch over a slow link of one's own is given up for another."""
    flight, row = world.attempt_flight[attempt], world.attempt_row[attempt]
    left = world.flight_started[flight] + rules.read_deadline - world.attempt_started[attempt]
    known = left / 2
    if world.attempt_kind[attempt] != ORIGIN and world.samples[row] >= _SAMPLES_MIN:
        known = 2.0 * p99(world.histogram[row], world.samples[row])
    return float(min(max(rules.hedge_max, known), left / 2))


@compiled
def p99(histogram: NDArray[Any], samples: int) -> float:
    """Return below which time 99 % of the fetches of a histogram were, seconds."""
    allowed = samples // 100
    above = 0
    for bucket in range(BUCKETS - 1, -1, -1):
        above += histogram[bucket]
        if above > allowed:
            return _FIRST_S * _RATIO**bucket
    return 0.0
