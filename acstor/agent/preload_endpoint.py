"""Messages of version 1.1, by which other hosts act on the preloads of this one.

Arguments come from a wire: every one is checked before anything is done, and what is wrong is
answered as an error of kind ``invalid``.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from acstor import exception
from acstor.control.protocol import PreloadWhat
from acstor.preload.admission import Estimate
from acstor.preload.request import PreloadRequest, checked_id, checked_image, checked_what
from acstor.rpc.agent_server import PRELOAD_VERSION, as_response, make_target


class Preloads(Protocol):
    """Target of the messages: the reconciler of the agent."""

    def estimate(self, image: str, what: PreloadWhat) -> Estimate: ...  # noqa: D102
    def admit(self, admission_id: str, request: PreloadRequest) -> dict[str, object]: ...  # noqa: D102
    def status(self, image: str | None = None) -> list[dict[str, object]]: ...  # noqa: D102
    def give_up(self, image: str, admission_id: str | None = None) -> dict[str, object]: ...  # noqa: D102


class PreloadEndpoint:
    """Answers as ``doc/source/reference/protocols/agent-rpc.rst`` describes.

    :param host: name of this host.
    """

    def __init__(self, host: str, preloads: Preloads) -> None:
        self.target = make_target(PRELOAD_VERSION)
        self._host = host
        self._preloads = preloads

    def preload_estimate(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Say what a preload would mean for this host."""

        def act() -> object:
            _refuse_unknown(arguments, {"image", "what"})
            image = checked_image(arguments.get("image"))
            what = checked_what(arguments.get("what"))
            return dataclasses.asdict(self._preloads.estimate(image, what))

        return as_response(self._host, act)

    def preload_start(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """AdmittedPreload a preload, or refuse to."""

        def act() -> object:
            fields = dict(arguments)
            admission_id = checked_id(fields.pop("id", None))
            return self._preloads.admit(admission_id, PreloadRequest.from_arguments(fields))

        return as_response(self._host, act)

    def preload_status(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Say how far the preloads are."""

        def act() -> object:
            _refuse_unknown(arguments, {"image"})
            image = arguments.get("image")
            return self._preloads.status(None if image is None else checked_image(image))

        return as_response(self._host, act)

    def preload_stop(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Stop a preload."""

        def act() -> object:
            _refuse_unknown(arguments, {"image", "id"})
            admission_id = arguments.get("id")
            return self._preloads.give_up(
                checked_image(arguments.get("image")),
                None if admission_id is None else checked_id(admission_id),
            )

        return as_response(self._host, act)


def _refuse_unknown(arguments: Mapping[str, object], known: set[str]) -> None:
    for name in sorted(arguments.keys() - known):
        raise exception.InvalidError(f"there is no argument {name[:100]!r}")
