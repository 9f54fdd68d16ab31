"""As many members on as a budget of power allows.

Of the sets of members that take no more than the budget together it chooses the one with the most
members; of these the one that changes the fewest, then the one that takes the least power, then the
first by name. A member that sleeps wakes only if a part of the budget is left then, so that a
budget about the limit wakes and sends to sleep nobody.

Source: flexStore, §IV-B and §IV-C: the number of active storage nodes follows the power that there
is. Differs: members of different power, and every set is tried, of which there are at most eight.
"""

import itertools
from collections.abc import Iterable, Mapping

from acstor.origin.replicated.power.budgets.base import Unit
from acstor.origin.replicated.power.deciding import Choice, MemberInput, PowerInputs


class Budget:
    """The most members within the budget."""

    def choose(self, inputs: PowerInputs, fixed: Mapping[str, bool]) -> Choice:
        """Return the members that are on; the fewest that may be where the budget is too small."""
        members = {one.name: one for one in inputs.members}
        always = [members[name] for name, is_on in fixed.items() if is_on]
        if inputs.budget is None:
            return Choice(frozenset(members), "there is no budget")
        free = sorted((one for one in inputs.members if one.name not in fixed), key=_name)
        best: tuple[tuple[float, ...], tuple[str, ...], tuple[MemberInput, ...]] | None = None
        for count in range(len(free) + 1):
            for added in itertools.combinations(free, count):
                if not _fits(inputs, (*always, *added), added):
                    continue
                changed = sum(one.is_on is not (one in added) for one in free)
                rank = (-count, changed, _power(inputs, added))
                names = tuple(one.name for one in added)
                if best is None or (rank, names) < best[:2]:
                    best = rank, names, added
        on = (*always, *(best[2] if best else ()))
        taken = _power(inputs, on)
        unit = inputs.settings.unit.value
        if best is None and taken > inputs.budget:
            detail = f"{inputs.budget:g} {unit} are too few: those that must be on take {taken:g}"
        else:
            detail = f"{taken:g} of {inputs.budget:g} {unit} are taken by those that are to be on"
        return Choice(frozenset(one.name for one in on), detail)


def _fits(inputs: PowerInputs, on: Iterable[MemberInput], added: Iterable[MemberInput]) -> bool:
    """Return whether members fit into the budget, with the margin where one of them would wake."""
    assert inputs.budget is not None
    is_waking = any(not one.is_on for one in added)
    share = 1.0 - inputs.settings.margin if is_waking else 1.0
    return _power(inputs, on) <= inputs.budget * share


def _power(inputs: PowerInputs, members: Iterable[MemberInput]) -> float:
    """Return what members take together, in the unit of the budget."""
    by_number = inputs.settings.unit is Unit.MEMBERS
    return sum(1.0 if by_number else one.watts for one in members)


def _name(one: MemberInput) -> str:
    return one.name
