"""Interface of a source of the power budget."""

import enum
import math
from typing import Protocol

from acstor import exception

BUDGET_MAX = 1e9
"""Largest budget, watts or members: more is a mistake."""
TEXT_SIZE_MAX = 64 << 10
"""Longest answer of a source, bytes."""


class Unit(enum.StrEnum):
    """Unit of a budget."""

    WATTS = "watts"
    """Power that the members which are on may take together."""
    MEMBERS = "members"
    """Number of members that may be on."""


class BudgetSource(Protocol):
    """Says how much power the members may take together.

    A call ends within the deadline that the source was made with, whatever the other side does.
    """

    @property
    def description(self) -> str:
        """Place that it reads, for people; no credentials."""

    def read(self) -> float:
        """Return the budget, in the unit that is configured.

        :raises UnavailableError: when the source does not answer; repeating may help.
        :raises CorruptError: when it says something that is no budget.
        """


def parsed(text: object, description: str) -> float:
    """Return the budget that a text says.

    :param text: a number; space around it does not count.
    :raises CorruptError: when it is none, or none from 0 to :data:`BUDGET_MAX`.
    """
    try:
        value = float(str(text).strip())
    except ValueError:
        value = math.nan
    if not 0 <= value <= BUDGET_MAX:  # not of NaN either
        raise exception.CorruptError(
            f"{description} says {str(text)[:40]!r}, which is no budget",
            hint=f"let it say one number from 0 to {BUDGET_MAX:g}",
        )
    return value
