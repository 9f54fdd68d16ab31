"""The run itself: windows of time in which rates hold, and the events within them.

Rates are computed exactly at the start of each window (:mod:`sim.fairness`). A transfer that starts
within a window gets the share that its links had to give, and is in the next computation; one
that ends within it ends at its exact time. A window lasts at most the scenario's ``quantum``, and
nothing is computed while nothing moves: with a quantum of 0 the simulation is exact (every event
ends a window), with a few milliseconds it is many times faster and boot times differ by per mille
(``tests/unit/sim`` states how much).
"""

from sim import events, flights, stores, transfers
from sim.compiled import compiled
from sim.flights import BROKEN, ENDED, RUNNING
from sim.rules import Rules
from sim.world import (
    DIRTY,
    ERROR,
    EVENTS,
    LOCAL,
    MOVING,
    RANDOM,
    SAMPLE_COUNT,
    SERVED_BYTES,
    WAITED,
    World,
)


@compiled
def advance(world: World, rules: Rules, until: float) -> None:
    """Run until a time, or until an error shows in the cursor."""
    now = world.clock[0]
    while now < until and world.cursor[ERROR] == 0:
        if world.cursor[DIRTY]:
            transfers.refill(world, rules)
        upcoming = events.next_time(world)
        if world.cursor[MOVING] == 0 and upcoming > now:
            # Counters are brought up to the next event before anybody reads them.
            now = min(until, upcoming)
            _count_extra(world, now - world.clock[0])
            world.clock[0] = now
            continue
        if world.cursor[MOVING] == 0 or rules.quantum > 0:
            end = min(until, now + rules.quantum)
        else:
            end = min(until, max(now, _first_finish(world, upcoming)))
        for index in range(world.cursor[MOVING]):
            transfers.push_finish(world, world.moving[index], end)
        while events.next_time(world) <= end and world.cursor[ERROR] == 0:
            _handle(world, rules, end)
        for index in range(world.cursor[MOVING]):
            transfers.progress(world, world.moving[index], end)
        _count_extra(world, end - now)
        flights.check_clocks(world, rules, end)
        now = end
        world.clock[0] = now


@compiled
def _first_finish(world: World, upcoming: float) -> float:
    first = upcoming
    extra = len(world.extra_source)
    for index in range(world.cursor[MOVING]):
        attempt = world.moving[index]
        rate = world.rate[extra + attempt]
        if rate > 0:
            first = min(first, world.attempt_mark[attempt] + world.attempt_left[attempt] / rate)
    return first


@compiled
def _count_extra(world: World, duration: float) -> None:
    for flow in range(len(world.extra_source)):
        amount = world.rate[flow] * duration
        world.extra_out[world.extra_source[flow]] += amount
        world.extra_in[world.extra_target[flow]] += amount


@compiled
def _handle(world: World, rules: Rules, end: float) -> None:
    now = world.event_time[0]
    kind, number = world.event_kind[0], world.event_id[0]
    version = world.event_version[0]
    events.drop_first(world)
    world.totals[EVENTS] += 1
    if kind == events.OP:
        _start_operation(world, rules, number, now)
    elif kind == events.OP_DONE:
        _end_operation(world, number, now)
    elif kind == events.NEXT:
        if world.flight_version[number] == version:
            flights.ask_next(world, rules, number, now, False)
    elif kind == events.APPLY:
        _apply_ring(world, number, version)
    elif kind == events.REPORT:
        _report(world, rules, number, now)
    elif kind == events.SAMPLE:
        _sample(world, rules, now)
    elif kind == events.WALK:
        stores.walk(world, rules, number)
        events.push(world, now + stores.WALK_INTERVAL, events.WALK, number, 0)
    elif world.attempt_version[number] == version:
        _handle_attempt(world, rules, kind, number, now, end)


@compiled
def _handle_attempt(
    world: World, rules: Rules, kind: int, number: int, now: float, end: float
) -> None:
    if kind == events.ANSWER:
        if flights.answered(world, rules, number, now):
            transfers.start_transfer(world, rules, number, now, end)
    elif kind == events.READY:
        transfers.start_transfer(world, rules, number, now, end)
    elif kind == events.REFUSED:
        flights.failed(world, rules, number, now, False, True)
    elif kind == events.FINISH:
        flights.arrived(world, rules, number, now)


@compiled
def _start_operation(world: World, rules: Rules, machine: int, now: float) -> None:
    if world.machine_state[machine] != RUNNING:
        return
    host, operation = world.machine_host[machine], world.machine_op[machine]
    world.machine_since[machine] = now
    pending = 0
    for access in range(world.first_access[operation], world.first_access[operation + 1]):
        content, length = world.content[access], world.length[access]
        if not rules.is_cached:
            flight = flights.new_flight(world, rules, host, content, length, now)
            world.flight_wanted[flight] = 1
        else:
            if flights.is_local(world, rules, host, content):
                stores.use(world, rules, host, content)
                world.tier[LOCAL, host] += length
                continue
            flight = world.flight_of[host, content]
            if flight < 0:
                flight = flights.new_flight(world, rules, host, content, rules.chunk_bytes, now)
        flights.add_waiter(world, flight, machine, -1)
        pending += 1
    world.machine_pending[machine] = pending
    if pending == 0:
        has_reads = world.first_access[operation] < world.first_access[operation + 1]
        events.push(
            world, now + (rules.local_latency if has_reads else 0.0), events.OP_DONE, machine, 0
        )


@compiled
def _end_operation(world: World, machine: int, now: float) -> None:
    if world.machine_state[machine] != RUNNING:
        return
    operation = world.machine_op[machine]
    world.machine_waited[machine] += now - world.machine_since[machine]
    world.machine_served[machine] += world.served[operation]
    world.totals[SERVED_BYTES] += world.served[operation]
    world.totals[WAITED] += now - world.machine_since[machine]
    operation += 1
    program = world.machine_program[machine]
    if operation == world.first_op[program + 1]:
        if not world.is_loop:
            world.machine_state[machine] = ENDED
            world.machine_ended[machine] = now
            return
        operation = world.first_op[program]
    world.machine_op[machine] = operation
    events.push(world, now + world.think[operation], events.OP, machine, 0)


@compiled
def _apply_ring(world: World, host: int, slot: int) -> None:
    """Let a host use a ring and threshold from now on."""
    used = world.host_slot[host]
    if used != slot and world.slot_ring[used] != world.slot_ring[slot]:
        previous = world.host_previous[host]
        for index in range(len(previous) - 1, 0, -1):
            previous[index] = previous[index - 1]
        previous[0] = used
    world.host_slot[host] = slot


@compiled
def _report(world: World, rules: Rules, host: int, now: float) -> None:
    """Take a host's rates since its last report, as its agent tells them."""
    last = world.report_last[host]
    counted = world.clock[0]  # up to when the counters are
    duration = counted - last[4]
    if duration > 0 and world.is_alive[host]:
        counters = (
            world.extra_in[host], world.extra_out[host], world.moved_in[host],
            world.moved_out[host],
        )  # fmt: skip
        for index in range(4):
            world.report_rate[host, index] = (counters[index] - last[index]) / duration
            last[index] = counters[index]
        last[4] = counted
        world.report_time[host] = now
    jitter = rules.report_jitter * events.random_unit(world, RANDOM)
    events.push(world, now + rules.report_interval * (1.0 - jitter), events.REPORT, host, 0)


@compiled
def _sample(world: World, rules: Rules, now: float) -> None:
    at = world.cursor[SAMPLE_COUNT]
    if at >= len(world.sample_time):
        return
    world.sample_time[at] = now
    for host in range(len(world.is_alive)):
        world.sampled[at, host] = (
            world.extra_in[host] + world.extra_out[host] + world.moved_in[host]
            + world.moved_out[host]
        )  # fmt: skip
    world.cursor[SAMPLE_COUNT] = at + 1
    events.push(world, now + rules.sample_interval, events.SAMPLE, 0, 0)


@compiled
def leave(world: World, host: int) -> None:
    """Take a host away: its machines end, nobody hears from it any more."""
    world.is_alive[host] = 0
    for machine in range(len(world.machine_host)):
        if world.machine_host[machine] == host and world.machine_state[machine] == RUNNING:
            world.machine_state[machine] = BROKEN
    # Chunks on their way from it stall until their deadline: a link of no rate.
    world.capacity[world.up[host, 0]] = 1e-3
    for content in range(world.has.shape[1]):
        if world.has[host, content]:
            world.has[host, content] = 0
            world.holders[content] -= 1
    world.cursor[DIRTY] = 1


@compiled
def unfinished(world: World) -> int:
    """Return how many machines still run their programs."""
    count = 0
    for machine in range(len(world.machine_state)):
        if world.machine_state[machine] == RUNNING:
            count += 1
    return count
