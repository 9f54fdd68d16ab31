"""Messages of version 1.6 by which the service of versions has this host capture disks.

Every message carries the epoch of its task: of two services that both believe the task theirs, the
one with the older epoch is refused. Arguments come from a wire: every one is checked before
anything is done, and what is wrong is answered as an error of kind ``invalid``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor import exception
from acstor.repository.versions.record import Trigger
from acstor.rpc.agent_server import CAPTURE_VERSION, as_response, make_target
from acstor.versions.host_capture.progress import CaptureProgress
from acstor.versions.host_capture.request import (
    CaptureRequest,
    checked,
    epoch_of,
    task_and_epoch,
    uuid_of,
)
from acstor.versions.host_capture.triggers import ALLOWED


class Capturing(Protocol):
    """Target of the messages: the reconciler of the agent."""

    def start_capture(self, request: CaptureRequest, epoch: int) -> CaptureProgress: ...  # noqa: D102
    def progress_of(self, task: str, epoch: int) -> CaptureProgress: ...  # noqa: D102
    def abort(self, task: str, epoch: int) -> CaptureProgress: ...  # noqa: D102
    def discard(self, task: str, epoch: int) -> bool: ...  # noqa: D102
    def follow(self, server: str, triggers: frozenset[Trigger]) -> bool: ...  # noqa: D102


class CaptureEndpoint:
    """Answers as ``doc/source/reference/protocols/agent-rpc.rst`` describes.

    :param host: name of this host.
    """

    def __init__(self, host: str, capturing: Capturing) -> None:
        self.target = make_target(CAPTURE_VERSION)
        self._host = host
        self._capturing = capturing

    def capture_start(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Begin a capture, or take over one that was begun."""

        def act() -> object:
            fields = dict(arguments)
            epoch = checked(lambda: epoch_of(fields.pop("epoch", None)))
            request = CaptureRequest.from_arguments(fields)
            return self._capturing.start_capture(request, epoch).to_answer()

        return as_response(self._host, act)

    def capture_progress(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Say how far a capture is."""
        return self._answer(
            lambda task, epoch: self._capturing.progress_of(task, epoch).to_answer(), arguments
        )

    def capture_abort(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Give a capture up."""
        return self._answer(
            lambda task, epoch: self._capturing.abort(task, epoch).to_answer(), arguments
        )

    def capture_discard(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Forget a capture that has ended; give it up where it has not."""
        return self._answer(
            lambda task, epoch: {"is_gone": self._capturing.discard(task, epoch)}, arguments
        )

    def capture_follow(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Note at which events versions of a server are wanted, so that its disks are pinned."""

        def act() -> object:
            for name in sorted(arguments.keys() - {"server", "triggers"}):
                raise exception.InvalidError(f"there is no argument {name[:100]!r}")
            server = checked(lambda: uuid_of(arguments.get("server"), "server"))
            triggers = checked(lambda: _triggers_of(arguments.get("triggers")))
            return {"is_pinned": self._capturing.follow(server, triggers)}

        return as_response(self._host, act)

    def _answer(
        self, method: Callable[[str, int], object], arguments: Mapping[str, object]
    ) -> dict[str, object]:
        return as_response(self._host, lambda: method(*task_and_epoch(arguments)))


def _triggers_of(value: object) -> frozenset[Trigger]:
    if not isinstance(value, list | tuple) or len(value) > len(ALLOWED):
        raise ValueError("triggers is no list of a few events")
    found = frozenset(Trigger(one) for one in value)
    if not found <= set(ALLOWED):
        raise ValueError(f"triggers are of {', '.join(ALLOWED)}")
    return found
