"""No policy: members sleep and wake by operators' words only."""

from collections.abc import Mapping

from acstor.origin.replicated.power.deciding import Choice, PowerInputs


class NoPolicy:
    """Leaves every member as it is."""

    def choose(self, inputs: PowerInputs, fixed: Mapping[str, bool]) -> Choice:
        """Return the members that are on."""
        del fixed
        on = frozenset(one.name for one in inputs.members if one.is_on)
        return Choice(on, "members sleep by operators' words only")
