"""Results of a run, as plain JSON types."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.programs import Programs
from sim.run import MEGABYTE, Run
from sim.traffic import cv_of

Floats = NDArray[np.float64]
CV_SERIES_MAX = 2000
DISCARDED = 5
_AMOUNTS = ("origin_again", "origin_again_hedge", "origin_again_remap")
_COUNTS = (
    "remap_misses", "hedges", "hedges_denied", "hedges_won", "peer_fetches", "passed_over",
    "bypasses", "origin_first", "packed", "slow_links", "hints", "promoted", "timeouts",
    "read_errors", "events", "refills",
)  # fmt: skip


def summarise(run: Run, elapsed: float) -> dict[str, Any]:
    """Return a run's results.

    Keys: ``boot_mean_s``, ``boot_median_s``, ``boot_p99_s`` over the machines that ended,
    ``think_mean_s`` that they took for themselves, ``boot_over_think`` the ratio of the means,
    ``boot_full_over_others`` how much longer boots take on hosts with a link that is full,
    ``fluid_mean_s`` what perfect read-ahead comes to (:func:`fluid_times`);
    ``ended``, ``failed``; ``throughput_mb_s`` of all machines from their start on; ``*_mb`` amounts
    in 10^6 bytes; ``generations``; ``relief_intervals``; ``extra_cv``, ``extra_mean_mb_s`` as the
    traffic wanted; ``cv_series``: (second, CV of the hosts' traffic).
    """
    machines = {name: np.frombuffer(one) for name, one in run.simulation.machines().items()}
    ended = machines["is_ended"] > 0
    times = (machines["ended"] - machines["started"])[ended]
    until = run.simulation.now
    active = max(1e-9, until - run.boot_at)
    wanted = run.extra.host_traffic(run.host_count) if len(run.extra.rate) else np.zeros(1)
    totals = run.simulation.totals()
    result: dict[str, Any] = {
        "scenario": run.case.scenario,
        "variant": run.case.variant,
        "approach": run.case.approach,
        "seed": run.case.seed,
        "axes": dict(run.case.axes),
        "boot_mean_s": _number(times.mean() if len(times) else np.nan),
        "boot_median_s": _number(np.median(times) if len(times) else np.nan),
        "boot_p99_s": _number(np.percentile(times, 99) if len(times) else np.nan),
        "boot_mean_but_5_s": _number(mean_but_slowest(times)),
        **_beside_think(run, ended, times),
        "ended": int(ended.sum()),
        "failed": int(machines["is_broken"].sum()),
        "waited_mean_s": float(machines["waited"].mean()) if len(ended) else 0.0,
        "throughput_mb_s": float(machines["served"].sum() / active / MEGABYTE),
        **{f"{name}_mb": totals[name] / MEGABYTE for name in _AMOUNTS},
        "origin_mb": totals["origin_bytes"] / MEGABYTE,
        "origin_over_union": _over_union(run, totals["origin_bytes"]),
        "ahead_mb": totals["ahead_bytes"] / MEGABYTE,
        "ahead_wasted_mb": (totals["ahead_bytes"] - totals["ahead_read"]) / MEGABYTE,
        **{name: int(totals[name]) for name in _COUNTS},
        "extra_cv": cv_of(wanted),
        "extra_mean_mb_s": float(wanted.mean() / MEGABYTE),
        "simulated_s": until,
        "elapsed_s": elapsed,
        "cv_series": cv_series(run),
    }
    result |= regret(run)
    tiers = run.simulation.tiers()
    for name, tier in zip(("local", "peer", "previous_owner", "origin"), tiers, strict=True):
        result[f"tier_{name}_mb"] = float(np.frombuffer(tier).sum() / MEGABYTE)
    result["total_cv"] = mean_cv(result["cv_series"], run.boot_at)
    result |= control_results(run)
    return result


def regret(run: Run) -> dict[str, float]:
    """Return how much longer chosen sources take than the best; empty where that is not measured.

    Keys: ``regret_mean``, ``regret_p99``; 1.0 is none.
    """
    found = np.frombuffer(run.simulation.regrets())
    if not len(found):
        return {}
    return {"regret_mean": float(found.mean()), "regret_p99": float(np.percentile(found, 99))}


FULL = 0.9
"""Share of a host's link in one direction from which on extra traffic fills it."""


def _beside_think(
    run: Run, ended: NDArray[np.bool_], times: NDArray[np.float64]
) -> dict[str, float | None]:
    """Return boot times beside what no storage can shorten, and on full hosts beside others."""
    found: dict[str, float | None] = dict.fromkeys(
        ("think_mean_s", "boot_over_think", "boot_full_over_others", "fluid_mean_s")
    )
    if not len(times) or run.programs.is_loop:
        return found
    think = float(run.think[ended].mean())
    found["think_mean_s"] = think
    if think > 0:
        found["boot_over_think"] = float(times.mean()) / think
    is_full = full_hosts(run)[run.placed[ended]]
    if is_full.any() and not is_full.all():
        found["boot_full_over_others"] = float(times[is_full].mean() / times[~is_full].mean())
    found["fluid_mean_s"] = float(fluid_times(run)[ended].mean())
    return found


def full_hosts(run: Run) -> NDArray[np.bool_]:
    """Return which hosts have a link that extra traffic fills in one direction."""
    sent = np.bincount(run.extra.source, run.extra.rate, run.host_count)
    received = np.bincount(run.extra.target, run.extra.rate, run.host_count)
    return np.asarray(np.maximum(sent, received) >= FULL * run.topology.spec.host_rate)


def _first_touches(programs: Programs, program: int) -> tuple[Floats, Floats]:
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


def _free_rates(run: Run) -> Floats:
    """Return by host the bytes per second that extra traffic leaves of its link inwards."""
    link = run.topology.spec.host_rate
    received = np.bincount(run.extra.target, run.extra.rate, run.host_count)
    given = run.case.tables["traffic"]["left_share"]
    # As measured it is that of sixteen chunks that a host fetches.
    least = 0.446 if isinstance(given, str) else float(given)
    return np.asarray(np.maximum(link - received, least * link))


def fluid_times(run: Run) -> Floats:
    """Return by machine the time of a boot beside which only links and think time count, seconds.

    A host knows every boot and fetches each chunk once, in the order of the boot, from the first
    opening on; the images of a host share its link evenly, and all images that of the origin; a
    chunk takes what its bytes take at the rate that extra traffic leaves, compressed where the
    rules have it. Peers, queues and round trips cost nothing. That is no bound in the strict sense
    (images could take turns), but what perfect read-ahead comes to.
    """
    rules, placed, chosen, starts = run.rules, run.placed, run.chosen, run.starts
    wire = rules.chunk_bytes * rules.wire_share
    over_host = wire * (rules.compress_ratio if rules.compress else 1.0) / _free_rates(run)
    images = len(set(chosen.tolist()))
    is_cold = not run.case.tables["machines"]["warm"]
    from_origin = images * wire * rules.origin_ratio / run.topology.spec.origin_rate * is_cold
    touches = [_first_touches(run.programs, program) for program in range(chosen.max() + 1)]
    times = run.think.copy()
    for machine, (host, program) in enumerate(zip(placed, chosen, strict=True)):
        here = placed == host
        counts, left = touches[program]
        along = len(set(chosen[here].tolist())) * over_host[host]
        come = np.maximum(starts[here].min() + counts * along, starts.min() + counts * from_origin)
        latest = float((come + left).max()) - starts[machine]
        times[machine] = max(times[machine], latest)
    return times


def _over_union(run: Run, origin_bytes: float) -> float | None:
    """Return what was read from the origin over what all boots together read, each chunk once."""
    if run.programs.is_loop or not len(run.think) or not run.rules.is_cached:
        return None
    union = len(np.unique(run.programs.content)) * run.rules.chunk_bytes
    return origin_bytes / union if union else None


def mean_but_slowest(times: NDArray[np.float64]) -> float:
    """Return the mean without the five slowest; the paper leaves out one to five that do not boot.

    Source: ACStor, section 5.4.2. The same number is left out whatever the approach.
    """
    kept = np.sort(times)[: max(0, len(times) - DISCARDED)]
    return float(kept.mean()) if len(kept) else math.nan


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def cv_series(run: Run) -> list[tuple[float, float]]:
    """Return the CV of what hosts sent and received in each sample interval (Figure 10)."""
    times, carried = (np.frombuffer(one) for one in run.simulation.samples())
    moved = np.diff(carried.reshape(len(times), -1), axis=0)[: CV_SERIES_MAX - 1]
    return [(float(at), cv_of(row)) for at, row in zip(times[1:], moved, strict=False)]


def mean_cv(series: list[tuple[float, float]], since: float) -> float | None:
    """Return the mean of the samples from a time on."""
    values = [cv for at, cv in series if at > since]
    return float(np.mean(values)) if values else None


def control_results(run: Run) -> dict[str, Any]:
    """Return what the control loop did; empty for approaches without one."""
    if run.control is None:
        return {}
    log = run.control.log
    published = [one for one in log.decisions if "published" in one]
    ratios = [
        one["ring_moved_share"] / one["least_moved_share"]
        for one in published
        if one["least_moved_share"] > 0
    ]
    result: dict[str, Any] = {
        "decisions": log.decisions,
        "generations": len(published),
        "moved_share_sum": float(sum(one["ring_moved_share"] for one in published)),
        "moved_over_least_max": max(ratios) if ratios else None,
        "relief_intervals": relief_intervals(run),
        "weight_min": None,
        "weight_max": None,
        "threshold": None,
        "ring_bytes": log.ring_bytes,
        "control_bytes_s": run.control.bytes_per_host_and_second(run.simulation.now),
        "decide_s": log.decide_seconds,
        "collections": len(log.decisions),
    }
    if run.control.decision is not None:
        weights = run.control.decision.weights.values()
        if weights:  # a decision on the threshold alone has none
            result["weight_min"], result["weight_max"] = min(weights), max(weights)
        result["threshold"] = run.control.decision.threshold
    return result


def relief_intervals(run: Run) -> float | None:
    """Return collection intervals from a host's overload to its relief, of all hosts the longest.

    It is relieved when all hosts follow the ring in which it has less. The overload begins when it
    does in truth (:mod:`sim.onsets`), with extra traffic or with the work of machines. None where
    no overloaded host was relieved.
    """
    assert run.control is not None
    waits = [
        one["followed"] - one["relieves_since"]
        for one in run.control.log.decisions
        if "followed" in one and one.get("relieves_since") is not None
    ]
    return max(waits) / run.rules.report_interval if waits else None
