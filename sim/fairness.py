"""Max-min fair rates of flows over links, by progressive filling.

All rates grow together until a link is full; the flows over it stop there, the others go on; a
flow stops earlier at its own cap. The links wait in a heap by the share that they could still give
each of their flows. Fixing a flow at the lowest share never lowers the share of another link, so an
entry of the heap that is out of date is only ever too low and is put back when it is met: the whole
costs O(F P log L) for F flows over P links each.

Source: Bertsekas and Gallager, *Data Networks*, 1992, section 6.5.2. ``tests/unit/sim`` compares it
with the textbook's algorithm in exact fractions.
"""

import numpy as np
from numpy.typing import NDArray

from sim.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


class Scratch:
    """Work space of :func:`fill` for so many links and flows, made once per run."""

    def __init__(self, links: int, flows: int, path_length: int) -> None:
        self.left = np.zeros(links)
        self.unfixed = np.zeros(links, np.int32)
        self.starts = np.zeros(links + 1, np.int32)
        self.members = np.zeros(flows * path_length, np.int32)
        self.fixed = np.zeros(flows, np.uint8)
        self.heap_share = np.zeros(2 * links + 2)
        self.heap_link = np.zeros(2 * links + 2, np.int32)


@compiled
def _sift_down(share: Floats, link: Ints, size: int, at: int) -> None:
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and share[child + 1] < share[child]:
            child += 1
        if share[at] <= share[child]:
            return
        share[at], share[child] = share[child], share[at]
        link[at], link[child] = link[child], link[at]
        at = child


@compiled
def _fix(
    flow: int,
    rate: float,
    path: Ints,
    length: Ints,
    rates: Floats,
    left: Floats,
    unfixed: Ints,
    fixed: NDArray[np.uint8],
) -> None:
    fixed[flow] = 1
    rates[flow] = rate
    for hop in range(length[flow]):
        link = path[flow, hop]
        left[link] = max(0.0, left[link] - rate)
        unfixed[link] -= 1


@compiled
def _list_members(
    rows: Ints,
    count: int,
    path: Ints,
    length: Ints,
    capacity: Floats,
    level: Floats,
    bottlenecked: Ints,
    left: Floats,
    unfixed: Ints,
    starts: Ints,
    members: Ints,
    fixed: NDArray[np.uint8],
) -> None:
    """List the flows over each link: ``members`` from ``starts[link]`` to ``starts[link + 1]``."""
    links = len(capacity)
    for link in range(links):
        left[link] = capacity[link]
        unfixed[link] = 0
        level[link] = -1.0
        bottlenecked[link] = 0
    for index in range(count):
        flow = rows[index]
        fixed[flow] = 0
        for hop in range(length[flow]):
            unfixed[path[flow, hop]] += 1
    total = 0
    for link in range(links):
        starts[link] = total
        total += unfixed[link]
    starts[links] = total
    for index in range(count):
        flow = rows[index]
        for hop in range(length[flow]):
            link = path[flow, hop]
            members[starts[link]] = flow
            starts[link] += 1
    for link in range(links, 0, -1):
        starts[link] = starts[link - 1]
    starts[0] = 0


@compiled
def _settle(heap_share: Floats, heap_link: Ints, size: int, left: Floats, unfixed: Ints) -> int:
    """Bring the link of the lowest share to the front, and return the size of the heap."""
    while size > 0:
        link = heap_link[0]
        if unfixed[link] == 0:
            size -= 1
            heap_share[0], heap_link[0] = heap_share[size], heap_link[size]
        else:
            share = left[link] / unfixed[link]
            if share <= heap_share[0]:
                break
            heap_share[0] = share
        _sift_down(heap_share, heap_link, size, 0)
    return size


@compiled
def fill(
    rows: Ints,
    count: int,
    capped: Ints,
    capped_count: int,
    path: Ints,
    length: Ints,
    cap: Floats,
    capacity: Floats,
    rates: Floats,
    level: Floats,
    bottlenecked: Ints,
    left: Floats,
    unfixed: Ints,
    starts: Ints,
    members: Ints,
    fixed: NDArray[np.uint8],
    heap_share: Floats,
    heap_link: Ints,
) -> None:
    """Compute the rate of each flow.

    :param rows: the flows that share, as rows of ``path``; the first ``count`` count.
    :param capped: those of them that have a finite cap, by ascending cap.
    :param path: links of each flow, the first ``length`` of a row; over no link a flow gets its
        cap, which must be finite.
    :param cap: most that a flow takes, bytes per second; infinite: all it can have.
    :param capacity: of each link, bytes per second.
    :param rates: set for each of ``rows``, bytes per second.
    :param level: set to the share at which a link became full; -1 where it has room.
    :param bottlenecked: set to how many flows stopped at that share.
    :param left: set to what is left of each link; the other parameters are work space.
    """
    _list_members(
        rows, count, path, length, capacity, level, bottlenecked, left, unfixed, starts, members,
        fixed,
    )  # fmt: skip
    size = 0
    for link in range(len(capacity)):
        if unfixed[link] > 0:
            heap_share[size] = left[link] / unfixed[link]
            heap_link[size] = link
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        _sift_down(heap_share, heap_link, size, at)

    next_capped = 0
    while True:
        while next_capped < capped_count and fixed[capped[next_capped]]:
            next_capped += 1
        size = _settle(heap_share, heap_link, size, left, unfixed)
        if next_capped < capped_count:
            flow = capped[next_capped]
            if size == 0 or cap[flow] <= heap_share[0]:
                _fix(flow, cap[flow], path, length, rates, left, unfixed, fixed)
                continue
        if size == 0:
            break
        link, share = heap_link[0], left[heap_link[0]] / unfixed[heap_link[0]]
        level[link] = share
        for position in range(starts[link], starts[link + 1]):
            flow = members[position]
            if not fixed[flow]:
                bottlenecked[link] += 1
                _fix(flow, share, path, length, rates, left, unfixed, fixed)
