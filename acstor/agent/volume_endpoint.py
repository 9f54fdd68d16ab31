"""What the volume service may ask of the volumes of this host: messages of versions 1.2 and 1.4.

Every message is one method of the data plane's admin socket. Arguments come from a wire: every one
is checked before the data plane is asked, and what is wrong is answered as an error of kind
``invalid``.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from acstor import exception, untrusted_json
from acstor.control import protocol
from acstor.rpc.agent_server import FREEZE_VERSION, answered, make_target

ANSWER_MARGIN = 5.0
"""Seconds that the data plane gets beyond what a method itself was given."""
STATUS_TIMEOUT = 10.0
CHANGE_TIMEOUT = 30.0
"""Seconds for what changes nothing in the origin but the record of the volume."""


class DataPlaneCalls(Protocol):
    """What the messages act on: the admin socket's client."""

    def call(self, method: str, /, *, call_timeout: float | None = None, **params: object) -> Any:
        """Call a method of the data plane."""


Check = Callable[[Any], bool]


@dataclass(frozen=True)
class _Parameter:
    name: str
    is_allowed: Check
    allowed: str


def _is_between(low: float, high: float) -> Check:
    return lambda value: untrusted_json.is_number(value, low, high)


def _is_whole(low: int, high: int) -> Check:
    return lambda value: untrusted_json.is_whole(value, low, high)


def _is_size(value: Any) -> bool:
    return _is_whole(512, protocol.VOLUME_BYTES_MAX)(value) and value % 512 == 0


_RATE = _is_whole(0, protocol.VOLUME_RATE_MAX)
_FREEZE = _Parameter(
    "timeout_s",
    _is_between(0.1, protocol.VOLUME_FREEZE_MAX),
    f"0.1 to {protocol.VOLUME_FREEZE_MAX:g} seconds",
)
_HOLDER = _Parameter(
    "holder",
    protocol.is_freeze_holder,
    f"left out, or text of at most {protocol.VOLUME_HOLDER_LENGTH_MAX} characters",
)
_SIZE = _Parameter("size_bytes", _is_size, "a multiple of 512, at most 2^50")
_DURABILITY = _Parameter(
    "durability", lambda value: isinstance(value, Mapping), "an object as in the volume's record"
)
_LIMITS = (
    _Parameter("iops", _RATE, "0 to 2^40 requests per second; 0: no limit"),
    _Parameter("bytes_per_s", _RATE, "0 to 2^40 bytes per second; 0: no limit"),
)


class VolumeEndpoint:
    """Answers as ``doc/source/reference/protocols/agent-rpc.rst`` describes.

    :param host: name of this host.
    """

    def __init__(self, host: str, data_plane: DataPlaneCalls) -> None:
        self.target = make_target(FREEZE_VERSION)
        self._host = host
        self._data_plane = data_plane

    def volume_status(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Say how a volume that is open on this host is."""
        return self._answer("volume.status", STATUS_TIMEOUT, arguments)

    def volume_push(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Have everything that was acknowledged before the call be in the origin."""
        return self._answer("volume.push", protocol.VOLUME_OPEN_TIMEOUT, arguments)

    def volume_freeze(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Hold the writes of a volume, for at most ``timeout_s``."""
        longest = protocol.VOLUME_FREEZE_MAX
        return self._answer("volume.freeze", longest, arguments, _FREEZE, _HOLDER)

    def volume_thaw(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Let the writes of a volume go on."""
        return self._answer("volume.thaw", CHANGE_TIMEOUT, arguments, _HOLDER)

    def volume_resize(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Show a volume with another size."""
        return self._answer("volume.resize", CHANGE_TIMEOUT, arguments, _SIZE)

    def volume_set_durability(
        self, context: dict[str, Any], **arguments: object
    ) -> dict[str, object]:
        """Change when writes count as durable."""
        return self._answer("volume.set_durability", CHANGE_TIMEOUT, arguments, _DURABILITY)

    def volume_set_limits(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Change how fast guests may use a volume."""
        return self._answer("volume.set_limits", CHANGE_TIMEOUT, arguments, *_LIMITS)

    def _answer(
        self,
        method: str,
        timeout: float,
        arguments: Mapping[str, object],
        *parameters: _Parameter,
    ) -> dict[str, object]:
        def act() -> object:
            volume = _checked_volume(arguments.get("volume"))
            _refuse_unknown(arguments, {"volume", *(parameter.name for parameter in parameters)})
            values = {
                parameter.name: _checked(parameter, arguments.get(parameter.name))
                for parameter in parameters
                if parameter.name in arguments or not parameter.is_allowed(None)
            }
            return self._data_plane.call(
                method, call_timeout=timeout + ANSWER_MARGIN, volume=volume, **values
            )

        return answered(self._host, act)


def _checked_volume(value: object) -> str:
    try:
        if isinstance(value, str) and str(uuid.UUID(value)) == value:
            return value
    except ValueError:
        pass
    raise exception.InvalidError(f"a volume is a UUID in lower case, not {value!r:.100}")


def _checked(parameter: _Parameter, value: object) -> object:
    if not parameter.is_allowed(value):
        raise exception.InvalidError(f"{parameter.name} is {parameter.allowed}, not {value!r:.100}")
    return value


def _refuse_unknown(arguments: Mapping[str, object], known: set[str]) -> None:
    for name in sorted(arguments.keys() - known):
        raise exception.InvalidError(f"there is no argument {name[:100]!r}")
