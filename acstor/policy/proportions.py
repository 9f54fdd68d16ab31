"""Weights between a floor and a ceiling, and the way from one set of weights to another.

Weights are numbers here, 1 for an ordinary host.
"""

import bisect
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_ITERATIONS = 100


def fitted(
    raw: Mapping[str, float], total: float, floor: float, ceiling: float
) -> dict[str, float]:
    """Return weights in proportion to ``raw``, each between floor and ceiling, that sum to total.

    Where a bound holds a weight, the others make up for it in proportion. A total that the bounds
    do not allow is approached as far as they do.

    :param raw: numbers above 0.
    """
    if not raw:
        return {}
    ordered = sorted(raw.values())
    sums = [0.0, *itertools.accumulate(ordered)]
    count = len(ordered)

    def sum_at(scale: float) -> float:
        low = bisect.bisect_left(ordered, floor / scale)
        high = bisect.bisect_right(ordered, ceiling / scale)
        return floor * low + scale * (sums[high] - sums[low]) + ceiling * (count - high)

    lowest, highest = floor / ordered[-1], ceiling / ordered[0]
    for _ in range(_ITERATIONS):
        middle = math.sqrt(lowest * highest)
        if sum_at(middle) < total:
            lowest = middle
        else:
            highest = middle
    return {name: min(ceiling, max(floor, highest * value)) for name, value in raw.items()}


def moved_share(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Return the least part of the circle that must change owner between two sets of weights."""
    total_before, total_after = math.fsum(before.values()), math.fsum(after.values())
    if not total_before or not total_after:
        return 0.0
    return math.fsum(
        max(0.0, weight / total_before - after.get(name, 0.0) / total_after)
        for name, weight in before.items()
    )


def skew(weights: Mapping[str, float]) -> float:
    """Return what would have to move to make all weights equal: 0 to 1."""
    return moved_share(weights, dict.fromkeys(weights, 1.0))


@dataclass(frozen=True)
class Step:
    """A part of the way to a target."""

    weights: dict[str, float]
    is_bounded: bool
    """True if it ends before the target because no more may move."""


def step_towards(
    before: Mapping[str, float],
    target: Mapping[str, float],
    *,
    urgent: Sequence[Collection[str]],
    dead_band: float,
    amount_max: float,
) -> Step:
    """Return the weights after one bounded step.

    What hosts have too much they give away, the urgent ones first; the others where it is at least
    ``dead_band``. It goes to those that have too little, in proportion to how much.

    :param before: and ``target``: of the same hosts, with the same sum.
    :param urgent: classes of hosts, the most urgent first; a host counts for its first.
    :param amount_max: weight that may move altogether.
    """
    weights = dict(before)
    left, given, is_bounded = amount_max, 0.0, False
    for names, least in [*((names, 0.0) for names in urgent), (before.keys(), dead_band)]:
        gifts = {
            name: weights[name] - target[name]
            for name in names
            if weights[name] - target[name] > least and weights[name] == before[name]
        }
        wanted = math.fsum(gifts.values())
        part = min(1.0, left / wanted) if wanted else 1.0
        is_bounded = is_bounded or part < 1.0
        left, given = max(0.0, left - part * wanted), given + part * wanted
        for name, gift in gifts.items():
            weights[name] -= part * gift
    lacking = {name: target[name] - before[name] for name in before if target[name] > before[name]}
    needed = math.fsum(lacking.values())
    for name, less in lacking.items():
        weights[name] += min(1.0, given / needed) * less
    return Step(weights, is_bounded)
