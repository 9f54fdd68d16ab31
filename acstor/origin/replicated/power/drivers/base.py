"""Interface of a driver that switches a member's machine."""

import enum
from typing import Protocol


class Machine(enum.StrEnum):
    """State of a machine, as its driver sees it."""

    ON = "on"
    OFF = "off"
    CHANGING = "changing"
    """On its way to one of the two."""


class PowerDriver(Protocol):
    """Switches one machine.

    A call only asks the machine to change, and ends within the deadline that the driver was made
    with; :meth:`state` tells whether it has. All of them may be repeated: one that is on already is
    switched on without any effect.
    """

    def state(self) -> Machine:
        """Return the state of the machine.

        :raises UnavailableError: when it cannot be asked.
        """

    def switch_on(self) -> None:
        """Begin to switch it on.

        :raises UnavailableError: when it cannot be asked; it may have been switched all the same.
        :raises InvalidError: when it refuses.
        """

    def switch_off(self) -> None:
        """Begin to switch it off, in order where it can be; errors as of :meth:`switch_on`."""
