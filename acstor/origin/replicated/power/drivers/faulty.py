"""A driver that misbehaves on purpose, around any other one."""

import enum

from acstor import exception
from acstor.origin.replicated.power.drivers.base import Machine, PowerDriver


class Misbehaviour(enum.StrEnum):
    """Fault of a driver."""

    UNREACHABLE = "unreachable"
    """Calls fail, and nothing happens."""
    LOST_ANSWER = "lost answer"
    """Switching works, and fails afterwards."""
    DEAF = "deaf"
    """Switching is acknowledged, and nothing happens."""


class FaultyDriver:
    """Passes calls on, except as it is told.

    :param inner: the driver that does the work.
    :param fault: what goes wrong; None: nothing.
    """

    def __init__(self, inner: PowerDriver, fault: Misbehaviour | None = None) -> None:
        self._inner = inner
        self.fault = fault
        self.attempts = 0
        """Calls that were to switch."""

    def state(self) -> Machine:
        """Return the machine's state."""
        if self.fault is Misbehaviour.UNREACHABLE:
            raise exception.UnavailableError("the management controller is away on purpose")
        return self._inner.state()

    def switch_on(self) -> None:
        """Switch it on, or not."""
        self._switch(is_on=True)

    def switch_off(self) -> None:
        """Switch it off, or not."""
        self._switch(is_on=False)

    def _switch(self, *, is_on: bool) -> None:
        self.attempts += 1
        if self.fault is Misbehaviour.UNREACHABLE:
            raise exception.UnavailableError("the management controller is away on purpose")
        if self.fault is not Misbehaviour.DEAF:
            (self._inner.switch_on if is_on else self._inner.switch_off)()
        if self.fault is Misbehaviour.LOST_ANSWER:
            raise exception.DeadlineError("the answer was lost on purpose")
