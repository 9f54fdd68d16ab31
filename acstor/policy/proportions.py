"""Weights between a floor and a ceiling, and the way from one set of weights to another.

Weights are numbers here, 1 for an ordinary host.
"""

import bisect
import itertools
import math
from collections.abc import Collection, Mapping
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
    """Whether it ends before the target because no more may move."""


def step_towards(
    before: Mapping[str, float],
    target: Mapping[str, float],
    *,
    urgent: Collection[str],
    dead_band: float,
    amount_max: float,
) -> Step:
    """Return the weights after one bounded step.

    What urgent hosts have too much goes first; the others give where that is at least
    ``dead_band``. The weight given goes to those that have too little, in proportion to how much.

    :param before: and ``target``: of the same hosts, with the same sum.
    :param amount_max: weight that may move altogether.
    """
    surplus = {name: before[name] - target[name] for name in before}
    gifts = {
        name: more
        for name, more in surplus.items()
        if more > 0 and (name in urgent or more >= dead_band)
    }
    first = math.fsum(gift for name, gift in gifts.items() if name in urgent)
    rest = math.fsum(gift for name, gift in gifts.items() if name not in urgent)
    part_of_first = min(1.0, amount_max / first) if first else 1.0
    left = max(0.0, amount_max - part_of_first * first)
    part_of_rest = min(1.0, left / rest) if rest else 1.0
    given = part_of_first * first + part_of_rest * rest
    wanted = math.fsum(-more for more in surplus.values() if more < 0)
    share = given / wanted if wanted else 0.0
    weights = {}
    for name, weight in before.items():
        if name in gifts:
            part = part_of_first if name in urgent else part_of_rest
            weights[name] = weight - part * gifts[name]
        else:
            weights[name] = weight + share * max(0.0, -surplus[name])
    return Step(weights, min(part_of_first, part_of_rest) < 1.0)
