"""Curves as they are kept: what can be seen of them."""

from collections.abc import Sequence
from typing import Any

from testbed.results.record import Curve
from testbed.results.tables import rounded

POINTS_MAX = 500
"""Most points of a curve; a drawing has fewer dots from left to right in a panel."""


def curve_of(points: Sequence[tuple[float, float]]) -> Curve:
    """Return a curve of (x, y), rounded and with at most :data:`POINTS_MAX` points."""
    kept = without_repeats([(rounded(x), rounded(y)) for x, y in points])
    step = -(-len(kept) // (POINTS_MAX - 1)) or 1
    thinned = kept[::step]
    if kept and thinned[-1] is not kept[-1]:
        thinned.append(kept[-1])
    return Curve([y for _, y in thinned], [x for x, _ in thinned])


def without_repeats(points: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the points without those between two of the same value: the line is the same."""
    return [
        point
        for index, point in enumerate(points)
        if index in (0, len(points) - 1)
        or not points[index - 1][1] == point[1] == points[index + 1][1]
    ]
