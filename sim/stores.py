"""A host's chunk store where room is bounded: what leaves when it is full, which copies first.

Follows ``crates/store`` (``eviction/s3fifo.rs``, ``touch_filter.rs``) and ``crates/readpath``
(``deduplication.rs``): S3-FIFO (SOSP 2023), and walks from the cold end that demote copies which
enough hosts placed better by the ring keep (ACStor, section 3.5). With ``fifo``, which the paper's
own runs have (section 5.2), the oldest leaves. A walk looks at all that it may in one go, where the
data plane goes on at its next one in stores of more than 3,840 chunks; a ghost is forgotten after
so many evictions, where the data plane's table has sets; pins and working sets are not modelled.
"""

from sim.compiled import compiled
from sim.rules import Rules
from sim.world import World

FIFO, S3FIFO = 0, 1
SMALL, MAIN, DEMOTED = 1, 2, 3
"""Queues; 0: in none."""
_SMALL_SHARE = 10
_USES_MAX = 3
_USES_TO_PROMOTE = 2
WALK_INTERVAL = 20.0
"""Seconds between two walks of a host."""
_WALK_CHUNKS = 960
_WALK_FILL_SHARE = 0.75
_NOBODY = -1


@compiled
def put(world: World, rules: Rules, host: int, content: int) -> None:
    """Put a chunk that a host does not have into its store."""
    if world.is_bounded:
        if world.room[host] == 0:
            _evict(world, rules, host)
        world.uses[host, content] = 0
        is_back = rules.eviction == FIFO or _takes_ghost(world, host, content)
        _push(world, host, content, MAIN if is_back else SMALL)
        world.room[host] -= 1
    world.has[host, content] = 1
    world.holders[content] += 1


@compiled
def recover(world: World, host: int, content: int) -> None:
    """Put a chunk into a store with room, as one that was there when the host started."""
    if world.is_bounded:
        _push(world, host, content, MAIN)
        world.room[host] -= 1
    world.has[host, content] = 1
    world.holders[content] += 1


@compiled
def use(world: World, rules: Rules, host: int, content: int) -> None:
    """Note that a chunk is read from a store; reads of one chunk in a row are one use."""
    if not world.is_bounded or rules.eviction == FIFO or not world.has[host, content]:
        return
    cell = content % world.touched.shape[1]
    if world.touched[host, cell] != content:
        world.touched[host, cell] = content
        world.uses[host, content] = min(_USES_MAX, world.uses[host, content] + 1)


@compiled
def walk(world: World, rules: Rules, host: int) -> None:
    """Demote the cold copies of which enough hosts that are placed better keep one."""
    capacity = world.capacity_chunks[host]
    if capacity - world.room[host] < _WALK_FILL_SHARE * capacity:
        return
    looked = 0
    for queue in (SMALL, MAIN):
        content = world.back[host, queue]
        while content >= 0 and looked < _WALK_CHUNKS:
            after = world.newer[host, content]
            looked += 1
            if world.uses[host, content] == 0 and _is_spare(world, rules, host, content):
                _unlink(world, host, content)
                _push(world, host, content, DEMOTED)
            content = after


@compiled
def _is_spare(world: World, rules: Rules, host: int, content: int) -> bool:
    """Return whether as many hosts keep a chunk as should, of those that come before this one."""
    place, slot = world.placement[content], world.host_slot[host]
    line = world.line[slot, world.group[slot, host], place]
    copies = _keeps(world, line[0], content)
    if line[0] == host or line[0] < 0:
        return False
    for index in range(rules.previous_rings):
        former = world.host_previous[host, index]
        if former < 0:
            break
        owner = world.line[former, world.group[former, host], place, 0]
        if owner == host:
            return False
        is_known = owner == line[0]
        for earlier in range(index):
            other = world.host_previous[host, earlier]
            is_known |= owner == world.line[other, world.group[other, host], place, 0]
        if not is_known:
            copies += _keeps(world, owner, content)
    for index in range(1, min(len(line), rules.candidates_max)):
        if line[index] == host or line[index] < 0:
            break
        copies += _keeps(world, line[index], content)
    return bool(copies >= rules.copies_max)


@compiled
def _keeps(world: World, host: int, content: int) -> int:
    if host < 0 or not world.is_alive[host] or not world.has[host, content]:
        return 0
    is_leaving = world.queue[host, content] == DEMOTED and world.uses[host, content] == 0
    return 0 if is_leaving else 1


@compiled
def _evict(world: World, rules: Rules, host: int) -> None:
    """Make room for one chunk."""
    if rules.eviction == FIFO:
        _leave(world, host, world.back[host, MAIN])
        return
    while world.back[host, DEMOTED] >= 0:
        content = world.back[host, DEMOTED]
        if world.uses[host, content] == 0:
            _leave(world, host, content)
            return
        _unlink(world, host, content)
        _push(world, host, content, MAIN)
    small = world.queued[host, SMALL]
    known = small + world.queued[host, MAIN]
    if small >= max(1, known // _SMALL_SHARE) and _evict_small(world, host):
        return
    if not _evict_main(world, host):
        _evict_small(world, host)


@compiled
def _evict_small(world: World, host: int) -> bool:
    while world.back[host, SMALL] >= 0:
        content = world.back[host, SMALL]
        if world.uses[host, content] < _USES_TO_PROMOTE:
            world.ghost_count[host] += 1
            world.ghost_at[host, content] = world.ghost_count[host]
            _leave(world, host, content)
            return True
        world.uses[host, content] = 0
        _unlink(world, host, content)
        _push(world, host, content, MAIN)
    return False


@compiled
def _evict_main(world: World, host: int) -> bool:
    # Every chunk has gone round as often as it was used after that many steps.
    while world.back[host, MAIN] >= 0:
        content = world.back[host, MAIN]
        if world.uses[host, content] == 0:
            _leave(world, host, content)
            return True
        world.uses[host, content] -= 1
        _unlink(world, host, content)
        _push(world, host, content, MAIN)
    return False


@compiled
def _takes_ghost(world: World, host: int, content: int) -> bool:
    """Return whether a chunk left the small queue a short while ago; forget that it did."""
    at = world.ghost_at[host, content]
    world.ghost_at[host, content] = 0
    slots = world.capacity_chunks[host] - world.capacity_chunks[host] // _SMALL_SHARE
    return bool(at > 0 and world.ghost_count[host] - at < slots)


@compiled
def _leave(world: World, host: int, content: int) -> None:
    _unlink(world, host, content)
    world.has[host, content] = 0
    world.holders[content] -= 1
    world.room[host] += 1


@compiled
def _push(world: World, host: int, content: int, queue: int) -> None:
    """Add a chunk as the newest of a queue."""
    newest = world.front[host, queue]
    world.newer[host, content], world.older[host, content] = _NOBODY, newest
    if newest >= 0:
        world.newer[host, newest] = content
    else:
        world.back[host, queue] = content
    world.front[host, queue] = content
    world.queue[host, content] = queue
    world.queued[host, queue] += 1


@compiled
def _unlink(world: World, host: int, content: int) -> None:
    queue = world.queue[host, content]
    newer, older = world.newer[host, content], world.older[host, content]
    if newer >= 0:
        world.older[host, newer] = older
    else:
        world.front[host, queue] = older
    if older >= 0:
        world.newer[host, older] = newer
    else:
        world.back[host, queue] = newer
    world.queue[host, content] = 0
    world.queued[host, queue] -= 1
