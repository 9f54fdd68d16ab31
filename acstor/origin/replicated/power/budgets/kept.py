"""The last good budget, which counts until it is too old."""

import dataclasses
import logging
import time
from collections.abc import Callable

from acstor import exception
from acstor.backoff import BackOff
from acstor.origin.replicated.power.budgets.base import BudgetSource

LOG = logging.getLogger(__name__)

RETRY = BackOff(first=0.5, longest=5.0)
"""Delays between the attempts of one reading."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Knowledge of the budget."""

    value: float | None
    """None: it is unknown, and all members shall be on."""
    age_seconds: float | None
    """Since it was read; None: it never was."""
    error: str
    """Reason for which it could not be read last time; empty: it could."""


class KeptBudget:
    """Reads a source, repeats what fails a few times, and keeps the last good value.

    :param source: of the budget.
    :param age_max: seconds after which the last good value counts as unknown.
    :param attempts: of each reading.
    :param clock: monotonic seconds.
    :param wait: how to wait, seconds.
    """

    def __init__(
        self,
        source: BudgetSource,
        age_max: float,
        attempts: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._source = source
        self._age_max = age_max
        self._attempts = attempts
        self._clock = clock
        self._wait = wait
        self._value: float | None = None
        self._read_at = 0.0
        self._error = ""

    @property
    def description(self) -> str:
        """Place that the budget comes from."""
        return self._source.description

    def read(self) -> Reading:
        """Read the source, and return what is known afterwards."""
        for attempt in range(1, self._attempts + 1):
            try:
                self._value = self._source.read()
            except exception.AcstorError as error:
                self._note(exception.one_line(error))
                if not error.is_transient or attempt == self._attempts:
                    break
                self._wait(RETRY.seconds(attempt))
            else:
                self._read_at, self._error = self._clock(), ""
                break
        return self.reading()

    def reading(self) -> Reading:
        """Return what is known; nothing is read."""
        if self._value is None:
            return Reading(None, None, self._error)
        age = max(0.0, self._clock() - self._read_at)
        return Reading(self._value if age <= self._age_max else None, age, self._error)

    def _note(self, error: str) -> None:
        if error != self._error:
            LOG.warning("the budget of power cannot be read: %s", error)
        self._error = error
