"""Visiting every state that a model can reach."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

World = TypeVar("World", bound=Hashable)


class HistoryError(AssertionError):
    """Contradiction between a volume and the history of its writes."""


def explore(
    start: World,
    steps: Callable[[World], Iterable[tuple[str, World]]],
    check: Callable[[World], None],
) -> tuple[int, set[str]]:
    """Visit every state that can be reached, and check each.

    :param steps: yields what may happen next in a state, with its name.
    :param check: raises for a state that must not be.
    :returns: number of states, and the names of the steps that were made.
    :raises HistoryError: with the steps that led to the first state that is wrong: the fewest.
    """
    came_from: dict[World, tuple[World, str] | None] = {start: None}
    level, names = [start], set[str]()
    while level:
        following = []
        for world in level:
            for name, after in steps(world):
                if after in came_from:
                    continue
                came_from[after] = (world, name)
                names.add(name)
                try:
                    check(after)
                except HistoryError as error:
                    raise HistoryError(f"{error}\n{_trace(came_from, after)}") from None
                following.append(after)
        level = following
    return len(came_from), names


def _trace(came_from: dict[World, tuple[World, str] | None], world: World) -> str:
    names = []
    while (before := came_from[world]) is not None:
        world, name = before
        names.append(name)
    return "\n".join(reversed(names))
