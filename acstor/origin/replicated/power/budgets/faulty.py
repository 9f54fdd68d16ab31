"""A source of the budget that misbehaves on purpose, around any other one."""

from collections.abc import Iterable

from acstor import exception
from acstor.origin.replicated.power.budgets.base import BudgetSource


class FaultyBudget:
    """Fails as it is told to, call by call, and passes all other calls on.

    :param inner: the source that does the work.
    :param faults: errors of the next calls; None: this call is passed on.
    """

    def __init__(
        self, inner: BudgetSource, faults: Iterable[exception.AcstorError | None] = ()
    ) -> None:
        self._inner = inner
        self.faults = list(faults)
        self.calls = 0

    @property
    def description(self) -> str:
        """Return the place."""
        return self._inner.description

    def read(self) -> float:
        """Return the budget, or fail."""
        self.calls += 1
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        return self._inner.read()
