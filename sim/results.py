"""What came of a run, as plain JSON types."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.flights import BROKEN, ENDED
from sim.run import MEGABYTE, Run
from sim.traffic import cv_of
from sim.world import (
    BYPASSES,
    EVENTS,
    FAILED,
    HEDGES,
    HEDGES_DENIED,
    HEDGES_WON,
    ORIGIN_AGAIN,
    ORIGIN_AGAIN_HEDGE,
    ORIGIN_AGAIN_REMAP,
    ORIGIN_BYTES,
    PACKED,
    PASSED_OVER,
    PEER_FETCHES,
    REFILLS,
    REMAP_MISSES,
    SAMPLE_COUNT,
    SLOW_LINKS,
    TIMEOUTS,
)

CV_SERIES_MAX = 2000
DISCARDED = 5


def summarise(run: Run, elapsed: float) -> dict[str, Any]:
    """Return a run's results.

    Keys: ``boot_mean_s``, ``boot_median_s``, ``boot_p99_s`` over the machines that ended,
    ``ended``, ``failed``; ``throughput_mb_s`` of all machines from their start on; ``*_mb`` amounts
    in 10^6 bytes; ``generations``; ``relief_intervals``; ``extra_cv``, ``extra_mean_mb_s`` as the
    traffic wanted; ``cv_series``: (second, CV of the hosts' traffic).
    """
    world = run.world
    ended = world.machine_state == ENDED
    times = (world.machine_ended - world.machine_started)[ended]
    until = float(world.clock[0])
    active = max(1e-9, until - run.boot_at)
    wanted = run.extra.host_traffic(len(world.is_alive)) if len(run.extra.rate) else np.zeros(1)
    totals = world.totals
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
        "ended": int(ended.sum()),
        "failed": int((world.machine_state == BROKEN).sum()),
        "waited_mean_s": float(world.machine_waited.mean()) if len(ended) else 0.0,
        "throughput_mb_s": float(world.machine_served.sum() / active / MEGABYTE),
        "origin_mb": totals[ORIGIN_BYTES] / MEGABYTE,
        "origin_again_mb": totals[ORIGIN_AGAIN] / MEGABYTE,
        "origin_again_hedge_mb": totals[ORIGIN_AGAIN_HEDGE] / MEGABYTE,
        "origin_again_remap_mb": totals[ORIGIN_AGAIN_REMAP] / MEGABYTE,
        "remap_misses": int(totals[REMAP_MISSES]),
        "hedges": int(totals[HEDGES]),
        "hedges_denied": int(totals[HEDGES_DENIED]),
        "hedges_won": int(totals[HEDGES_WON]),
        "peer_fetches": int(totals[PEER_FETCHES]),
        "passed_over": int(totals[PASSED_OVER]),
        "bypasses": int(totals[BYPASSES]),
        "packed": int(totals[PACKED]),
        "slow_links": int(totals[SLOW_LINKS]),
        "timeouts": int(totals[TIMEOUTS]),
        "read_errors": int(totals[FAILED]),
        "extra_cv": cv_of(wanted),
        "extra_mean_mb_s": float(wanted.mean() / MEGABYTE),
        "simulated_s": until,
        "elapsed_s": elapsed,
        "events": int(totals[EVENTS]),
        "refills": int(totals[REFILLS]),
        "cv_series": cv_series(run),
    }
    for tier, name in enumerate(("local", "peer", "previous_owner", "origin")):
        result[f"tier_{name}_mb"] = float(world.tier[tier].sum() / MEGABYTE)
    result["total_cv"] = mean_cv(result["cv_series"], run.boot_at)
    result |= control_results(run)
    return result


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
    world = run.world
    count = int(world.cursor[SAMPLE_COUNT])
    series = []
    for index in range(1, min(count, CV_SERIES_MAX)):
        moved = world.sampled[index] - world.sampled[index - 1]
        series.append((float(world.sample_time[index]), cv_of(moved)))
    return series


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
        "control_bytes_s": run.control.bytes_per_host_and_second(float(run.world.clock[0])),
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
