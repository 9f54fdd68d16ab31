"""Captures on hosts, as the agent answers to them over the message bus (version 1.6).

Everything is answered at once, and may be repeated; what takes long goes on there. Each call has
the epoch of its task, and a host refuses an older one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor import exception
from acstor.rpc.agent_client import AgentClient
from acstor.versions.host_capture.progress import CaptureProgress
from acstor.versions.host_capture.request import CaptureRequest
from acstor.versions.host_capture.states import ENDED, CaptureState

READ = frozenset({CaptureState.HELD, CaptureState.COMMITTING, CaptureState.COMMITTED})
"""States in which the moment is over: the guest may go on as it likes."""
LOST = ENDED - {CaptureState.COMMITTED}
"""States in which nothing is left of it."""


class HostCaptures(Protocol):
    """Captures on hosts.

    Every method may raise :class:`~acstor.exception.UnavailableError` (the host does not answer; it
    may be repeated) and :class:`~acstor.exception.FencedError` (a newer epoch was there).
    """

    def start(self, host: str, request: CaptureRequest, epoch: int) -> CaptureProgress:
        """Begin a capture, or take over the one of that task.

        :raises NotFoundError: when there is no such server on the host.
        :raises UnsupportedError: when it has no disk that can be had, with the reason.
        :raises OverloadedError: when too many wait there already.
        """

    def progress(self, host: str, task: str, epoch: int) -> CaptureProgress:
        """Return how far it is.

        :raises NotFoundError: when the host knows no such task.
        """

    def abort(self, host: str, task: str, epoch: int) -> None:
        """Give it up; what is committed stays. Without effect where the host knows of none."""

    def discard(self, host: str, task: str, epoch: int) -> bool:
        """Have the host forget it; False: it is ending, ask again."""


class RpcCaptures:
    """Captures over the message bus; see :class:`HostCaptures`.

    :param call: calls an agent: host, method, arguments by name.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        """Keep how to call."""
        self._call = call

    @classmethod
    def over(cls, client: AgentClient) -> "RpcCaptures":
        """Return captures over a client of agents."""
        return cls(client.call)

    def start(self, host: str, request: CaptureRequest, epoch: int) -> CaptureProgress:
        """Begin a capture; see :meth:`HostCaptures.start`."""
        arguments = request.to_arguments()
        return _progress_in(host, self._call(host, "capture_start", epoch=epoch, **arguments))

    def progress(self, host: str, task: str, epoch: int) -> CaptureProgress:
        """Return how far it is; see :meth:`HostCaptures.progress`."""
        return _progress_in(host, self._call(host, "capture_progress", task=task, epoch=epoch))

    def abort(self, host: str, task: str, epoch: int) -> None:
        """Give it up; see :meth:`HostCaptures.abort`."""
        try:
            self._call(host, "capture_abort", task=task, epoch=epoch)
        except exception.NotFoundError:
            return

    def discard(self, host: str, task: str, epoch: int) -> bool:
        """Have the host forget it; see :meth:`HostCaptures.discard`."""
        try:
            answer = self._call(host, "capture_discard", task=task, epoch=epoch)
        except exception.NotFoundError:
            return True
        return isinstance(answer, Mapping) and answer.get("is_gone") is True


def _progress_in(host: str, answer: object) -> CaptureProgress:
    """Read the answer of a host.

    :raises InternalError: when it is malformed.
    """
    try:
        return CaptureProgress.from_answer(answer)
    except exception.InvalidError as error:
        raise exception.InternalError(
            f"host {host} answered nonsense about a capture: {error}",
            hint="upgrade ACStor on that host",
        ) from error
