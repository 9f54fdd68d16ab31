"""Messages by which the service of versions has this host restore disks in place.

Those of version 1.7 are about one disk. Version 1.8 has a start of its own for what an older host
would do by halves: several disks, UEFI variables.

Every message carries the epoch of its task, as those about captures do. Arguments come from a wire:
every one is checked before anything is done.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor.rpc.agent_server import RESTORE_SET_VERSION, as_response, make_target
from acstor.versions.host_capture.request import epoch_of, task_and_epoch
from acstor.versions.host_restore.progress import RestoreProgress
from acstor.versions.host_restore.request import WHAT, RestoreRequest, checked


class Restoring(Protocol):
    """Target of the messages: the reconciler of the agent."""

    def start_restore(self, request: RestoreRequest, epoch: int) -> RestoreProgress: ...  # noqa: D102
    def progress_of(self, task: str, epoch: int) -> RestoreProgress: ...  # noqa: D102
    def abort(self, task: str, epoch: int) -> RestoreProgress: ...  # noqa: D102
    def discard(self, task: str, epoch: int) -> bool: ...  # noqa: D102


class RestoreEndpoint:
    """Answers as ``doc/source/reference/protocols/agent-rpc.rst`` describes.

    :param host: name of this host.
    """

    def __init__(self, host: str, restoring: Restoring) -> None:
        self.target = make_target(RESTORE_SET_VERSION)
        self._host = host
        self._restoring = restoring

    def restore_start(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Begin a restore, or take over one that was begun."""

        def act() -> object:
            request, epoch = _request_of(arguments)
            return self._restoring.start_restore(request, epoch).to_answer()

        return as_response(self._host, act)

    def restore_set_start(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Begin a restore of several disks, or of UEFI variables too, or take over such a one."""
        return self.restore_start(context, **arguments)

    def restore_set_check(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Say whether this host takes such a request; nothing is begun."""

        def act() -> object:
            _request_of(arguments)
            return {"is_known": True}

        return as_response(self._host, act)

    def restore_progress(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Say how far a restore is."""
        return self._answer(
            lambda task, epoch: self._restoring.progress_of(task, epoch).to_answer(), arguments
        )

    def restore_abort(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Have a restore end; the disk may stay half written."""
        return self._answer(
            lambda task, epoch: self._restoring.abort(task, epoch).to_answer(), arguments
        )

    def restore_discard(self, context: dict[str, Any], **arguments: object) -> dict[str, object]:
        """Forget a restore that has ended."""
        return self._answer(
            lambda task, epoch: {"is_gone": self._restoring.discard(task, epoch)}, arguments
        )

    def _answer(
        self, method: Callable[[str, int], object], arguments: Mapping[str, object]
    ) -> dict[str, object]:
        return as_response(self._host, lambda: method(*task_and_epoch(arguments, WHAT)))


def _request_of(arguments: Mapping[str, object]) -> tuple[RestoreRequest, int]:
    fields = dict(arguments)
    epoch = checked(lambda: epoch_of(fields.pop("epoch", None)))
    return RestoreRequest.from_arguments(fields), epoch
