"""A budget in memory."""

from acstor.origin.replicated.power.budgets.base import parsed


class MemoryBudget:
    """Says what it is told to say.

    :param value: the budget.
    """

    def __init__(self, value: float) -> None:
        self.value = value

    @property
    def description(self) -> str:
        """Return the place."""
        return "memory"

    def read(self) -> float:
        """Return the budget."""
        return parsed(self.value, self.description)
