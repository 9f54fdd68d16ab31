"""A machine in memory: the driver ``fake``."""

from acstor.origin.replicated.power.drivers.base import Machine


class MemoryDriver:
    """A machine that does what it is told, at once or when :meth:`finish` is called.

    :param is_slow: True to have a change wait for :meth:`finish`.
    """

    def __init__(self, *, is_slow: bool = False) -> None:
        self.machine = Machine.ON
        self.calls: list[str] = []
        self._is_slow = is_slow
        self._next = Machine.ON

    def state(self) -> Machine:
        """Return its state."""
        return self.machine

    def switch_on(self) -> None:
        """Switch it on."""
        self._switch("on", Machine.ON)

    def switch_off(self) -> None:
        """Switch it off."""
        self._switch("off", Machine.OFF)

    def finish(self) -> None:
        """Have a change that is under way be over."""
        self.machine = self._next

    def _switch(self, call: str, machine: Machine) -> None:
        self.calls.append(call)
        self._next = machine
        if self.machine is not machine:
            self.machine = Machine.CHANGING if self._is_slow else machine
