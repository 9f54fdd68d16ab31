"""Boots beside which nothing but links and think time counts.

A host knows every boot and fetches each chunk once, in the order of the boot, from the first
opening on; the images of a host share its link evenly, and all images that of the origin; a chunk
takes what its bytes take at the rate that extra traffic leaves, compressed where the rules have it.
Peers, queues and round trips cost nothing. That is no bound in the strict sense (images could take
turns), but what perfect read-ahead and a perfect choice of sources come to, and so the bar beside
think time.
"""

import numpy as np
from numpy.typing import NDArray

from sim.programs import Programs
from sim.run import Run

Floats = NDArray[np.float64]


def first_touches(programs: Programs, program: int) -> tuple[Floats, Floats]:
    """Return by operation of a program that reads something new what it has and what is left.

    That is the chunks so far, and the think time after it in seconds.
    """
    seen: set[int] = set()
    counts, left = [], []
    first, end = programs.first_op[program], programs.first_op[program + 1]
    after = np.cumsum(programs.think[first:end][::-1])[::-1]
    for operation in range(first, end):
        accesses = slice(programs.first_access[operation], programs.first_access[operation + 1])
        new = set(programs.content[accesses].tolist()) - seen
        if new:
            seen |= new
            counts.append(float(len(seen)))
            left.append(float(after[operation - first] - programs.think[operation]))
    return np.array(counts), np.array(left)


def free_rates(run: Run) -> Floats:
    """Return by host the bytes per second that extra traffic leaves of its link inwards."""
    link = run.topology.spec.host_rate
    received = np.bincount(run.extra.target, run.extra.rate, run.host_count)
    given = run.case.tables["traffic"]["left_share"]
    # As measured it is that of sixteen chunks that a host fetches.
    least = 0.446 if isinstance(given, str) else float(given)
    return np.asarray(np.maximum(link - received, least * link))


def boot_times(run: Run) -> Floats:
    """Return by machine the time of its boot, seconds."""
    rules, placed, chosen, starts = run.rules, run.placed, run.chosen, run.starts
    wire = rules.chunk_bytes * rules.wire_share
    over_host = wire * (rules.compress_ratio if rules.compress else 1.0) / free_rates(run)
    images = len(set(chosen.tolist()))
    is_cold = not run.case.tables["machines"]["warm"]
    from_origin = images * wire * rules.origin_ratio / run.topology.spec.origin_rate * is_cold
    touches = [first_touches(run.programs, program) for program in range(chosen.max() + 1)]
    times = run.think.copy()
    for machine, (host, program) in enumerate(zip(placed, chosen, strict=True)):
        here = placed == host
        counts, left = touches[program]
        along = len(set(chosen[here].tolist())) * over_host[host]
        come = np.maximum(starts[here].min() + counts * along, starts.min() + counts * from_origin)
        latest = float((come + left).max()) - starts[machine]
        times[machine] = max(times[machine], latest)
    return times
