"""Max-min fair rates as the textbook has them, in exact fractions: slow, and plainly right."""

from collections.abc import Sequence
from fractions import Fraction


def rates(
    paths: Sequence[Sequence[int]], caps: Sequence[Fraction | None], capacity: Sequence[Fraction]
) -> list[Fraction]:
    """Return the rate of each flow: all grow alike until a link or the flow's own cap stops them.

    Source: Bertsekas and Gallager, *Data Networks*, section 6.5.2.
    """
    level = Fraction(0)
    fixed: dict[int, Fraction] = {}
    while len(fixed) < len(paths):
        growing = [flow for flow in range(len(paths)) if flow not in fixed]
        steps = [cap - level for flow in growing if (cap := caps[flow]) is not None]
        for link in range(len(capacity)):
            over = [flow for flow in growing if link in paths[flow]]
            if over:
                used = sum((fixed[flow] for flow in fixed if link in paths[flow]), Fraction(0))
                steps.append((capacity[link] - used) / len(over) - level)
        level += min(steps)
        for flow in growing:
            if caps[flow] == level or any(
                _is_full(link, paths, fixed, growing, level, capacity) for link in paths[flow]
            ):
                fixed[flow] = level
    return [fixed[flow] for flow in range(len(paths))]


def _is_full(
    link: int,
    paths: Sequence[Sequence[int]],
    fixed: dict[int, Fraction],
    growing: Sequence[int],
    level: Fraction,
    capacity: Sequence[Fraction],
) -> bool:
    total = Fraction(0)
    for flow, path in enumerate(paths):
        if link in path:
            total += level if flow in growing else fixed[flow]
    return total == capacity[link]
