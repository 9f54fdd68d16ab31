"""The queue of events: a binary heap by time, first come first served among equals."""

import numpy as np

from sim.compiled import compiled
from sim.world import ERROR, ERROR_HEAP, HEAP_SIZE, World

OP, OP_DONE, ANSWER, READY, FINISH, NEXT, APPLY, REPORT, SAMPLE, REFUSED, WALK = range(11)


@compiled
def push(world: World, time: float, kind: int, number: int, version: int) -> None:
    """Add an event; a full queue ends the run with an error."""
    at = world.cursor[HEAP_SIZE]
    if at >= len(world.event_time):
        world.cursor[ERROR] = ERROR_HEAP
        return
    world.cursor[HEAP_SIZE] = at + 1
    while at > 0:
        parent = (at - 1) // 2
        if world.event_time[parent] <= time:
            break
        _copy(world, parent, at)
        at = parent
    world.event_time[at] = time
    world.event_kind[at] = kind
    world.event_id[at] = number
    world.event_version[at] = version


@compiled
def _copy(world: World, source: int, target: int) -> None:
    world.event_time[target] = world.event_time[source]
    world.event_kind[target] = world.event_kind[source]
    world.event_id[target] = world.event_id[source]
    world.event_version[target] = world.event_version[source]


@compiled
def drop_first(world: World) -> None:
    """Remove the event at position 0."""
    size = world.cursor[HEAP_SIZE] - 1
    world.cursor[HEAP_SIZE] = size
    if size == 0:
        return
    time = world.event_time[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and world.event_time[child + 1] < world.event_time[child]:
            child += 1
        if time <= world.event_time[child]:
            break
        _copy(world, child, at)
        at = child
    _copy(world, size, at)


@compiled
def next_time(world: World) -> float:
    """Return the time of the first event, infinity without one."""
    return world.event_time[0] if world.cursor[HEAP_SIZE] > 0 else np.inf


@compiled
def random_unit(world: World, position: int) -> float:
    """Return a number from 0 to 1 of the run's own sequence (xorshift)."""
    value = world.cursor[position]
    value ^= (value << 13) & 0x7FFFFFFFFFFFFFFF
    value ^= value >> 7
    value ^= (value << 17) & 0x7FFFFFFFFFFFFFFF
    world.cursor[position] = value
    return (value & 0xFFFFFFFF) / 4294967296.0
