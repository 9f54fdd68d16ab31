"""Peers that failed: whether a host asks them, and when it learns that one is dead.

Follows ``CircuitBreaker`` in ``crates/selection/src/circuit_breaker.rs`` and, for the connections
below it, ``crates/peer`` (``client/connection.rs``, ``client/peer.rs``), which uses it too. A peer
that died says nothing more: a connection that stands is given up after a while of silence, and from
then on only the fetch that is to make the next one waits, all others fail at once.
"""

from sim.compiled import compiled
from sim.events import random_unit
from sim.rules import Rules
from sim.world import RANDOM, World

TRUSTED, PENALISED, ON_TRIAL = 0, 1, 2
"""Asked like any other; not asked for a while; one fetch is out to see."""
_PENALTY_MIN, _PENALTY_MAX = 0.25, 10.0
_SILENCE_MAX = 3.0
"""Of a connection that owes answers: ``probe_after`` and ``probe_timeout`` of ``crates/peer``."""
_RETRY_MIN, _RETRY_MAX = 0.1, 10.0


@compiled
def _backoff(world: World, doublings: int, least: float, most: float) -> float:
    """Return the doubled least, at most ``most``, of which jitter takes away up to a half."""
    full = min(most, least * 2.0 ** min(doublings, 20))
    return float(full * (1.0 - 0.5 * random_unit(world, RANDOM)))


@compiled
def admit(world: World, rules: Rules, pair: int, now: float) -> bool:
    """Ask for leave to fetch from a peer."""
    if world.peer_state[pair] == TRUSTED:
        return True
    if now < world.peer_until[pair]:
        return False
    world.peer_state[pair] = ON_TRIAL
    world.peer_until[pair] = now + rules.peer_deadline
    return True


@compiled
def note_failure(world: World, pair: int, now: float) -> None:
    """Note that a peer is dead or stalled."""
    state = world.peer_state[pair]
    if state == PENALISED:
        return  # what was under way when the penalty began tells nothing new
    strikes = min(20, world.peer_strikes[pair] + 1) if state == ON_TRIAL else 0
    world.peer_strikes[pair] = strikes
    world.peer_state[pair] = PENALISED
    world.peer_until[pair] = now + _backoff(world, strikes, _PENALTY_MIN, _PENALTY_MAX)


@compiled
def note_answer(world: World, pair: int) -> None:
    """Note a right answer, or a refusal: the peer is alive."""
    world.peer_state[pair] = TRUSTED


@compiled
def silence(world: World, rules: Rules, pair: int, now: float) -> float:
    """Return how long a fetch from a dead peer waits before it fails, seconds."""
    if world.link_failures[pair] == 0:
        if world.link_until[pair] == 0:
            is_connected = world.answered_at[pair] >= 0
            wait = _SILENCE_MAX if is_connected else rules.connect_timeout
            world.link_until[pair] = now + wait
        if now < world.link_until[pair]:
            return float(world.link_until[pair] - now)
        world.link_failures[pair] = 1
        world.link_until[pair] += _backoff(world, 0, _RETRY_MIN, _RETRY_MAX)
    if now < world.link_until[pair]:
        return 0.0
    again = _backoff(world, world.link_failures[pair], _RETRY_MIN, _RETRY_MAX)
    world.link_failures[pair] = min(20, world.link_failures[pair] + 1)
    world.link_until[pair] = now + rules.connect_timeout + again
    return rules.connect_timeout
