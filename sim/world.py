"""The state of a run, as arrays that compiled code works on.

Hosts are numbered from 0; the origin is the number after the last host. A *flight* is a chunk that
a host is obtaining, an *attempt* one source that a flight asks, as in ``crates/readpath``.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numba.core import types
from numba.experimental import structref
from numpy.typing import NDArray

from sim.compiled import compiled
from sim.programs import Programs
from sim.topology import Topology
from sim.traffic import ExtraFlows

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Shorts = NDArray[np.uint16]

SLOTS = 16
"""Rings (with a threshold each) that hosts may have in use or remember at a time."""
LINE = 4
"""Hosts of a line that are kept: candidates, and whether the asking host is among them."""
PREVIOUS_MAX = 4
QUEUES = 4
"""Of a bounded store (``sim/stores.py``), and none."""
TOUCHED = 64
"""Chunks read last that a store tells apart, as ``crates/store/src/eviction/touch_filter.rs``."""
BUCKETS = 72
"""Of a latency histogram, as ``crates/selection/src/latency_histogram.rs``."""
NEVER = 1e9
"""Seconds; a time that no run reaches."""
PAIRS_MAX = 1024 * 1024
"""Pairs of hosts up to which each host knows the latencies of each peer by itself; beyond, what is
known of a peer is one for all."""

# What a source is; also the tier of what came from it.
LOCAL, PEER, PREVIOUS, ORIGIN = 0, 1, 2, 3
STAND_IN = 4
"""A peer that is asked for what it holds only; what it gives counts as a peer's."""
PROBE = 5
"""A loaded peer that is asked beside all others, to see how long it takes now."""
PROBED = 3
"""Where among the attempts of a flight its probe is, which nothing waits for."""

# Why a chunk that some host held was read from the origin again.
AGAIN_OTHER, AGAIN_HEDGE, AGAIN_REMAP = 0, 1, 2

# Positions in World.totals.
ORIGIN_BYTES, ORIGIN_AGAIN, HEDGES, HEDGES_DENIED, HEDGES_WON = 0, 1, 2, 3, 4
FAILED, REMAP_MISSES, TIMEOUTS = 5, 6, 7
PEER_FETCHES, PASSED_OVER, SERVED_BYTES, WAITED = 8, 9, 10, 11
ORIGIN_AGAIN_HEDGE, ORIGIN_AGAIN_REMAP = 12, 13
EVENTS, REFILLS, BYPASSES, PACKED, SLOW_LINKS = 14, 15, 16, 17, 18
TOTALS = 19

# Positions in World.cursor.
HEAP_SIZE, FREE_FLIGHTS, FREE_ATTEMPTS, FREE_WAITERS, LIVE = 0, 1, 2, 3, 4
MOVING, ERROR, SAMPLE_COUNT, RANDOM, DIRTY = 5, 6, 7, 8, 9
CURSORS = 10

ERROR_HEAP, ERROR_POOL = 1, 2


@dataclass(frozen=True)
class Sizes:
    """How large the tables are."""

    hosts: int
    machines: int
    extra: int
    contents: int
    places: int
    links: int
    path: int
    flights: int
    groups: int
    samples: int
    capacity: int
    """Chunks that a store has room for; 0: no bound."""


class World(NamedTuple):
    """All arrays of a run."""

    clock: Floats
    cursor: Longs
    totals: Floats
    # network
    capacity: Floats
    nominal: Floats
    switch: Ints
    up: Ints
    down: Ints
    special: Ints
    path: Ints
    path_length: Ints
    cap: Floats
    rate: Floats
    level: Floats
    bottlenecked: Ints
    left: Floats
    unfixed: Ints
    starts: Ints
    members: Ints
    fixed: Bytes
    heap_share: Floats
    heap_link: Ints
    rows: Ints
    extra_order: Ints
    extra_source: Ints
    extra_target: Ints
    # events
    event_time: Floats
    event_kind: Bytes
    event_id: Ints
    event_version: Ints
    # machines and programs
    machine_host: Ints
    machine_program: Ints
    machine_op: Ints
    machine_pending: Ints
    machine_state: Bytes
    machine_started: Floats
    machine_ended: Floats
    machine_waited: Floats
    machine_since: Floats
    machine_served: Floats
    first_op: Ints
    think: Floats
    served: Floats
    first_access: Ints
    content: Ints
    length: Ints
    is_loop: bool
    # chunk stores
    has: Bytes
    seen: Ints
    ghost: Bytes
    host_sequence: Ints
    holders: Ints
    # chunk stores with bounds: queues by host
    is_bounded: bool
    capacity_chunks: Ints
    room: Ints
    queue: Bytes
    uses: Bytes
    newer: Ints
    older: Ints
    front: Ints
    back: Ints
    queued: Ints
    ghost_at: Ints
    ghost_count: Ints
    touched: Ints
    is_alive: Bytes
    # rings
    placement: Ints
    line: Ints
    group: Ints
    slot_ring: Ints
    host_slot: Ints
    host_previous: Ints
    # flights
    flight_of: Ints
    flight_free: Ints
    flight_version: Ints
    flight_host: Ints
    flight_content: Ints
    flight_bytes: Floats
    flight_started: Floats
    flight_waiters: Ints
    flight_wanted: Bytes
    flight_owner: Bytes
    flight_hedged: Bytes
    flight_probe: Ints
    flight_round: Ints
    flight_plan: Ints
    flight_kinds: Bytes
    flight_planned: Ints
    flight_next: Ints
    flight_running: Ints
    flight_attempts: Ints
    waiter_free: Ints
    waiter_machine: Ints
    waiter_attempt: Ints
    waiter_version: Ints
    waiter_next: Ints
    # attempts
    attempt_free: Ints
    attempt_version: Ints
    attempt_flight: Ints
    attempt_source: Ints
    attempt_kind: Bytes
    attempt_is_hedge: Bytes
    attempt_started: Floats
    attempt_hedge_at: Floats
    attempt_left: Floats
    attempt_mark: Floats
    live: Ints
    live_at: Ints
    moving: Ints
    moving_at: Ints
    # what hosts know of each other
    histogram: Shorts
    samples: Ints
    host_histogram: Ints
    host_samples: Ints
    delay: Floats32
    delay_at: Floats32
    usual: Floats32
    slow_since: Floats32
    slow_seen: Floats32
    slow_looks: Ints
    slow_good: Ints
    peers_slow_since: Floats32
    peers_slow_seen: Floats32
    peers_slow_looks: Ints
    peers_slow_good: Ints
    answered_at: Floats32
    answers: Ints
    interval: Floats32
    attempt_answers: Ints
    probe_at: Floats32
    underway: Ints
    oldest: Ints
    newest: Ints
    attempt_row: Ints
    attempt_among: Ints
    attempt_before: Ints
    attempt_after: Ints
    attempt_packed: Bytes
    attempt_until: Floats
    usual_delay: Floats
    view_at: Floats
    view_median: Floats
    view_slow: Bytes
    view_all_slow: Bytes
    slow_link_since: Floats
    slow_link_seen: Floats
    view_buffer: Floats
    trial_at: Floats
    keep_slow: Floats
    keep_slow_at: Floats
    peer_state: Bytes
    peer_until: Floats
    peer_strikes: Bytes
    link_failures: Bytes
    link_until: Floats
    hedge_tokens: Floats
    # counters by host, bytes since the start
    extra_out: Floats
    extra_in: Floats
    moved_out: Floats
    moved_in: Floats
    tier: Floats
    report_phase: Floats
    report_time: Floats
    report_last: Floats
    report_rate: Floats
    sampled: Floats
    sample_time: Floats


@structref.register
class _WorldStruct(types.StructRef):  # type: ignore[misc, name-defined]
    """The world as compiled code is given it: one pointer instead of a thousand registers."""

    def preprocess_fields(self, fields: Any) -> Any:
        """Forget values that numba would otherwise make part of the type."""
        unliteral = types.unliteral  # type: ignore[attr-defined]
        return tuple((name, unliteral(kind)) for name, kind in fields)


class Handle(structref.StructRefProxy):  # type: ignore[misc]
    """What stands for a :class:`World` in calls of compiled code; the arrays are the same."""

    def __new__(cls, *fields: Any) -> "Handle":
        """Made by :func:`handle` only."""
        return cast(Handle, structref.StructRefProxy.__new__(cls, *fields))


structref.define_proxy(Handle, _WorldStruct, list(World._fields))


@compiled
def _bind(fields: World) -> Any:
    return Handle(*fields)


def handle(world: World) -> World:
    """Return what compiled functions take for this world."""
    return cast(World, _bind(world))


def pair_count(hosts: int) -> int:
    """Return for how many (asking, asked) pairs latencies are known."""
    return hosts * hosts if hosts * hosts <= PAIRS_MAX else hosts


def make(
    sizes: Sizes, topology: Topology, programs: Programs, extra: ExtraFlows, seed: int
) -> World:
    """Return the world before anything has happened, without machines' hosts and rings."""
    hosts, machines, flights = sizes.hosts, sizes.machines, sizes.flights
    attempts, waiters = 3 * flights, 4 * flights + 4 * machines
    rows = sizes.extra + attempts
    events = 8 * (machines + flights + attempts) + 4 * hosts + 1024
    pairs = pair_count(hosts)
    sources = pairs + hosts

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, np.int32)

    def floats(*shape: int) -> Floats:
        return np.zeros(shape)

    def floats32(*shape: int) -> Floats32:
        return np.zeros(shape, np.float32)

    def free(count: int) -> Ints:
        return np.arange(count - 1, -1, -1, dtype=np.int32)

    cursor = np.zeros(CURSORS, np.int64)
    cursor[FREE_FLIGHTS], cursor[FREE_ATTEMPTS], cursor[FREE_WAITERS] = flights, attempts, waiters
    cursor[RANDOM], cursor[DIRTY] = (seed * 2654435761 + 88172645463325252) % (1 << 62) | 1, 1
    kept = (hosts, sizes.contents) if sizes.capacity > 0 else (1, 1)
    cap = np.full(rows, np.inf)
    cap[: sizes.extra] = extra.rate
    return World(
        clock=floats(1), cursor=cursor, totals=floats(TOTALS),
        capacity=topology.capacity.copy(), nominal=topology.capacity.copy(),
        switch=topology.switch, up=topology.up, down=topology.down, special=topology.special,
        path=ints(rows, sizes.path), path_length=ints(rows), cap=cap, rate=floats(rows),
        level=np.full(sizes.links, -1.0), bottlenecked=ints(sizes.links),
        left=topology.capacity.copy(), unfixed=ints(sizes.links), starts=ints(sizes.links + 1),
        members=ints(rows * sizes.path), fixed=np.zeros(rows, np.uint8),
        heap_share=floats(2 * sizes.links + 2), heap_link=ints(2 * sizes.links + 2),
        rows=ints(rows), extra_order=np.argsort(extra.rate, kind="stable").astype(np.int32),
        extra_source=extra.source.astype(np.int32), extra_target=extra.target.astype(np.int32),
        event_time=floats(events), event_kind=np.zeros(events, np.uint8),
        event_id=ints(events), event_version=ints(events),
        machine_host=ints(machines), machine_program=ints(machines), machine_op=ints(machines),
        machine_pending=ints(machines), machine_state=np.zeros(machines, np.uint8),
        machine_started=floats(machines), machine_ended=np.full(machines, np.nan),
        machine_waited=floats(machines), machine_since=floats(machines),
        machine_served=floats(machines),
        first_op=programs.first_op, think=programs.think, served=programs.served,
        first_access=programs.first_access, content=programs.content, length=programs.length,
        is_loop=programs.is_loop,
        has=np.zeros((hosts, sizes.contents), np.uint8), seen=ints(hosts, sizes.contents),
        ghost=np.zeros((hosts, sizes.contents), np.uint8), host_sequence=ints(hosts),
        holders=ints(sizes.contents), is_bounded=sizes.capacity > 0,
        capacity_chunks=np.full(hosts, sizes.capacity, np.int32),
        room=np.full(hosts, sizes.capacity, np.int32), queue=np.zeros(kept, np.uint8),
        uses=np.zeros(kept, np.uint8), newer=ints(*kept), older=ints(*kept),
        front=np.full((hosts, QUEUES), -1, np.int32), back=np.full((hosts, QUEUES), -1, np.int32),
        queued=ints(hosts, QUEUES), ghost_at=ints(*kept), ghost_count=ints(hosts),
        touched=np.full((hosts, TOUCHED), -1, np.int32), is_alive=np.ones(hosts, np.uint8),
        placement=programs.placement,
        line=np.full((SLOTS, sizes.groups, sizes.places, LINE), -1, np.int32),
        group=ints(SLOTS, hosts), slot_ring=np.full(SLOTS, -1, np.int32), host_slot=ints(hosts),
        host_previous=np.full((hosts, PREVIOUS_MAX), -1, np.int32),
        flight_of=np.full((hosts, sizes.contents), -1, np.int32), flight_free=free(flights),
        flight_version=ints(flights), flight_host=ints(flights), flight_content=ints(flights),
        flight_bytes=floats(flights), flight_started=floats(flights),
        flight_waiters=ints(flights), flight_wanted=np.zeros(flights, np.uint8),
        flight_owner=np.zeros(flights, np.uint8), flight_hedged=np.zeros(flights, np.uint8),
        flight_probe=ints(flights), flight_round=ints(flights),
        flight_plan=ints(flights, LINE + PREVIOUS_MAX + 1),
        flight_kinds=np.zeros((flights, LINE + PREVIOUS_MAX + 1), np.uint8),
        flight_planned=ints(flights), flight_next=ints(flights), flight_running=ints(flights),
        flight_attempts=np.full((flights, PROBED + 1), -1, np.int32),
        waiter_free=free(waiters), waiter_machine=ints(waiters), waiter_attempt=ints(waiters),
        waiter_version=ints(waiters), waiter_next=ints(waiters),
        attempt_free=free(attempts), attempt_version=ints(attempts),
        attempt_flight=ints(attempts), attempt_source=ints(attempts),
        attempt_kind=np.zeros(attempts, np.uint8), attempt_is_hedge=np.zeros(attempts, np.uint8),
        attempt_started=floats(attempts), attempt_hedge_at=floats(attempts),
        attempt_left=floats(attempts), attempt_mark=floats(attempts),
        live=ints(attempts), live_at=np.full(attempts, -1, np.int32), moving=ints(attempts),
        moving_at=np.full(attempts, -1, np.int32),
        histogram=np.zeros((pairs, BUCKETS), np.uint16), samples=ints(pairs),
        host_histogram=ints(hosts, BUCKETS), host_samples=ints(hosts),
        delay=floats32(sources), delay_at=floats32(sources), usual=floats32(sources),
        slow_since=np.full(sources, -1.0, np.float32), slow_seen=floats32(sources),
        slow_looks=ints(sources), slow_good=ints(sources),
        peers_slow_since=np.full(hosts, -1.0, np.float32), peers_slow_seen=floats32(hosts),
        peers_slow_looks=ints(hosts), peers_slow_good=ints(hosts),
        answered_at=np.full(sources, -NEVER, np.float32), answers=ints(sources),
        interval=floats32(sources),
        attempt_answers=ints(attempts),
        probe_at=floats32(sources), underway=ints(sources),
        oldest=np.full(sources, -1, np.int32), newest=np.full(sources, -1, np.int32),
        attempt_row=ints(attempts), attempt_among=ints(attempts), attempt_before=ints(attempts),
        attempt_after=ints(attempts), attempt_packed=np.zeros(attempts, np.uint8),
        attempt_until=floats(attempts), usual_delay=floats(hosts),
        view_at=np.full(hosts, -1.0), view_median=floats(hosts),
        view_slow=np.zeros(hosts, np.uint8), view_all_slow=np.zeros(hosts, np.uint8),
        slow_link_since=floats(hosts), slow_link_seen=floats(hosts), view_buffer=floats(hosts + 1),
        trial_at=np.full(hosts, -NEVER),
        keep_slow=np.full(hosts, 1024.0), keep_slow_at=floats(hosts),
        peer_state=np.zeros(pairs, np.uint8), peer_until=floats(pairs),
        peer_strikes=np.zeros(pairs, np.uint8),
        link_failures=np.zeros(pairs, np.uint8), link_until=floats(pairs),
        hedge_tokens=floats(hosts),
        extra_out=floats(hosts), extra_in=floats(hosts), moved_out=floats(hosts + 1),
        moved_in=floats(hosts + 1), tier=floats(4, hosts), report_phase=floats(hosts),
        report_time=np.full(hosts, -1.0), report_last=floats(hosts, 5),
        report_rate=floats(hosts, 4), sampled=floats(max(1, sizes.samples), hosts),
        sample_time=floats(max(1, sizes.samples)),
    )  # fmt: skip
