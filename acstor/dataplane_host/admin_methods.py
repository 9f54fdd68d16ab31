"""The methods of the admin protocol."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor.admin import protocol
from acstor.admin.server import Method

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIRECTIVES = re.compile(r"[A-Za-z0-9_:=,-]{1,255}")


class Operations(Protocol):
    """What the methods act on; the real one is the data plane's host process."""

    def status(self) -> dict[str, object]: ...  # noqa: D102
    def attach_image(self, manifest_path: str) -> dict[str, object]: ...  # noqa: D102
    def detach_image(self, disk_id: str) -> str: ...  # noqa: D102
    def list_images(self) -> list[dict[str, object]]: ...  # noqa: D102
    def pin_image(  # noqa: D102
        self, disk_id: str, head_bytes: int, tail_bytes: int, timeout: float
    ) -> dict[str, object]: ...
    def set_drain(self, on: bool) -> None: ...  # noqa: D102
    def set_ring(self, path: str) -> dict[str, object]: ...  # noqa: D102
    def ring_info(self) -> dict[str, object] | None: ...  # noqa: D102
    def metrics_text(self) -> str: ...  # noqa: D102
    def ledger_start(self, disk_id: str, capacity: int) -> None: ...  # noqa: D102
    def ledger_get(self, disk_id: str) -> str: ...  # noqa: D102
    def ledger_stop(self, disk_id: str) -> None: ...  # noqa: D102
    def working_set(self, disk_id: str) -> dict[str, object]: ...  # noqa: D102
    def set_working_set(self, disk_id: str, path: str) -> None: ...  # noqa: D102
    def coverage(self) -> list[dict[str, object]]: ...  # noqa: D102
    def preload_start(  # noqa: D102
        self, disk_id: str, what: str, rate_bytes_per_s: int, pin: bool
    ) -> dict[str, object]: ...
    def preload_status(self) -> list[dict[str, object]]: ...  # noqa: D102
    def preload_stop(self, disk_id: str) -> None: ...  # noqa: D102
    def preload_estimate(self, disk_id: str, what: str) -> dict[str, object]: ...  # noqa: D102
    def set_log_level(self, directives: str) -> None: ...  # noqa: D102
    def restart(self) -> None: ...  # noqa: D102


Check = Callable[[Any], bool]


def _is_int(low: int, high: int) -> Check:
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    )


def _is_image(value: Any) -> bool:
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and os.path.isabs(value) and "\0" not in value


def _is_timeout(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 < value <= protocol.PIN_TIMEOUT_MAX
    )


def _is_what(value: Any) -> bool:
    return isinstance(value, str) and value in set(protocol.PreloadWhat)


_IMAGE = ("image", _is_image, "an image id (a UUID in lower case)")
_PATH = ("path", _is_path, "an absolute path")
_WHAT = ("what", _is_what, " or ".join(protocol.PreloadWhat))
_PARAMETERS: dict[str, tuple[tuple[str, Check, str], ...]] = {
    "status": (),
    "image.attach": (_PATH,),
    "image.detach": (_IMAGE,),
    "image.list": (),
    "pin": (
        _IMAGE,
        ("head_bytes", _is_int(0, protocol.PIN_BYTES_MAX), "0 to 2^40"),
        ("tail_bytes", _is_int(0, protocol.PIN_BYTES_MAX), "0 to 2^40"),
        ("timeout", _is_timeout, f"seconds, above 0, at most {protocol.PIN_TIMEOUT_MAX:g}"),
    ),
    "drain": (("on", lambda value: isinstance(value, bool), "true or false"),),
    "ring.set": (_PATH,),
    "ring.show": (),
    "metrics": (),
    "ledger.start": (
        _IMAGE,
        (
            "capacity",
            _is_int(1, protocol.LEDGER_ENTRIES_MAX),
            f"1 to {protocol.LEDGER_ENTRIES_MAX}",
        ),
    ),
    "ledger.get": (_IMAGE,),
    "ledger.stop": (_IMAGE,),
    "workingset.read": (_IMAGE,),
    "workingset.set": (_IMAGE, _PATH),
    "workingset.coverage": (),
    "preload.start": (
        _IMAGE,
        _WHAT,
        (
            "rate_bytes_per_s",
            _is_int(0, protocol.PRELOAD_RATE_MAX),
            "0 to 2^40 bytes per second; 0: no limit",
        ),
        ("pin", lambda value: isinstance(value, bool), "true or false"),
    ),
    "preload.status": (),
    "preload.stop": (_IMAGE,),
    "preload.estimate": (_IMAGE, _WHAT),
    "log.level": (
        (
            "directives",
            lambda value: isinstance(value, str) and _DIRECTIVES.fullmatch(value) is not None,
            "directives such as info,acstor_peer=debug",
        ),
    ),
    "process.restart": (),
}
"""Per method its parameters: name, check, what is allowed. All are required."""


def methods(operations: Operations) -> dict[str, Method]:
    """Return all methods by name, with their parameters checked before they are called."""
    done: dict[str, object] = {"done": True}

    def call(action: Callable[..., None]) -> Callable[..., object]:
        def run(*arguments: Any) -> object:
            action(*arguments)
            return done

        return run

    actions: dict[str, Callable[..., object]] = {
        "status": operations.status,
        "image.attach": operations.attach_image,
        "image.detach": lambda image: {"state": operations.detach_image(image)},
        "image.list": operations.list_images,
        "pin": operations.pin_image,
        "drain": call(operations.set_drain),
        "ring.set": operations.set_ring,
        "ring.show": operations.ring_info,
        "metrics": operations.metrics_text,
        "ledger.start": call(operations.ledger_start),
        "ledger.get": operations.ledger_get,
        "ledger.stop": call(operations.ledger_stop),
        "workingset.read": operations.working_set,
        "workingset.set": call(operations.set_working_set),
        "workingset.coverage": operations.coverage,
        "preload.start": operations.preload_start,
        "preload.status": operations.preload_status,
        "preload.stop": call(operations.preload_stop),
        "preload.estimate": operations.preload_estimate,
        "log.level": call(operations.set_log_level),
        "process.restart": call(operations.restart),
    }
    return {name: _checked(name, action) for name, action in actions.items()}


def _checked(name: str, action: Callable[..., object]) -> Method:
    parameters = _PARAMETERS[name]
    known = {parameter for parameter, _, _ in parameters}

    def method(params: Mapping[str, Any]) -> object:
        for unknown in sorted(params.keys() - known):
            raise protocol.ProtocolError(
                protocol.Code.INVALID_PARAMS, f"{name} has no parameter {unknown[:100]!r}"
            )
        for parameter, is_allowed, allowed in parameters:
            if not is_allowed(params.get(parameter)):
                raise protocol.ProtocolError(
                    protocol.Code.INVALID_PARAMS, f"{name}: {parameter} must be {allowed}"
                )
        return action(*(params[parameter] for parameter, _, _ in parameters))

    return method
