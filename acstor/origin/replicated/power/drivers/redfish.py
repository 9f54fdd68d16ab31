"""Machines with a management controller that speaks Redfish.

Source: DMTF DSP0266 and the schema ``ComputerSystem`` (``PowerState``, action ``Reset``), by the
library sushy, which is the extra ``power``.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from acstor import abandoned_call, exception, private_files
from acstor.origin.replicated.power.drivers.base import Machine

Result = TypeVar("Result")

RESET_TYPES = ("GracefulShutdown", "ForceOff")
"""Values of ``off``: as the schema has them."""
_STATES = {
    "On": Machine.ON,
    "Off": Machine.OFF,
    "PoweringOn": Machine.CHANGING,
    "PoweringOff": Machine.CHANGING,
    "Paused": Machine.ON,
}


@dataclasses.dataclass(frozen=True, slots=True)
class RedfishAddress:
    """A machine, and its management controller."""

    url: str
    """Of the service root's server, as https://bmc.example."""
    system: str
    """Path of the machine, as /redfish/v1/Systems/1."""
    username: str = ""
    """Empty: without authentication."""
    password_file: str = ""
    """File with the password; read at each connection, so that it may be renewed."""
    ca_file: str = ""
    """Authorities that are believed; empty: those of the system."""
    off: str = "GracefulShutdown"
    """Kind of switching off: one of :data:`RESET_TYPES`."""


class RedfishDriver:
    """Switches one machine by its management controller; each call is a connection of its own.

    :param seconds_max: longest time of a call.
    """

    def __init__(self, address: RedfishAddress, seconds_max: float) -> None:
        self._address = address
        self._seconds_max = seconds_max

    def state(self) -> Machine:
        """Return the state of the machine."""
        found = self._call(lambda system: str(getattr(system.power_state, "value", "")))
        if found not in _STATES:
            raise exception.UnavailableError(
                f"{self._place} does not say whether it is on",
                hint="check the machine's management controller",
            )
        return _STATES[found]

    def switch_on(self) -> None:
        """Switch it on; one that is on is left as it is, as some controllers refuse that."""
        self._reset("On", Machine.ON)

    def switch_off(self) -> None:
        """Switch it off, as it is configured."""
        self._reset(self._address.off, Machine.OFF)

    @property
    def _place(self) -> str:
        return f"{self._address.system} of {self._address.url}"

    def _reset(self, kind: str, machine: Machine) -> None:
        def reset(system: Any) -> None:
            import sushy

            if _STATES.get(str(getattr(system.power_state, "value", ""))) is not machine:
                system.reset_system(sushy.ResetType(kind))

        self._call(reset)

    def _call(self, action: Callable[[Any], Result]) -> Result:
        """Make a call.

        :raises UnavailableError: when the controller does not answer, or does so with an error.
        :raises ConfigurationError: when sushy or the password is missing.
        """
        try:
            import sushy
            import sushy.exceptions
        except ImportError as error:
            raise exception.ConfigurationError(
                "the driver redfish needs sushy", hint="install the extra: acstor[power]"
            ) from error
        try:
            return abandoned_call.within(self._seconds_max, lambda: action(self._system()))
        except TimeoutError as error:
            raise exception.DeadlineError(
                f"{self._place} did not answer within {self._seconds_max:g} s"
            ) from error
        except (sushy.exceptions.SushyError, OSError) as error:
            # Without its text, which may have more of the answer than belongs into a log.
            raise exception.UnavailableError(
                f"{self._place}: {type(error).__name__}",
                hint="check the URL, the credentials and the machine's management controller",
            ) from error

    def _system(self) -> Any:
        import sushy
        import sushy.auth

        one = self._address
        auth = _anonymous()
        if one.username:
            password = private_files.read_private(one.password_file, "password").decode().strip()
            auth = sushy.auth.BasicAuth(one.username, password)
        connection = sushy.Sushy(
            one.url,
            verify=one.ca_file or True,
            auth=auth,
            server_side_retries=0,
        )
        return connection.get_system(one.system)


def _anonymous() -> Any:
    """Return what sends no credentials: sushy's own would send the word ``None`` as both."""
    import sushy.auth

    class Anonymous(sushy.auth.AuthBase):  # type: ignore[misc]
        """Access without credentials."""

        def _do_authenticate(self) -> None:
            """Send nothing."""

        def can_refresh_session(self) -> bool:
            """Return that there is none."""
            return False

    return Anonymous()
