"""Restores in place on hosts, as the agent answers to them over the message bus.

A host of version 1.7 restores one disk; of several, and of UEFI variables, 1.8 is asked.

Everything is answered at once, and may be repeated; what takes long goes on there. Each call has
the epoch of its task, and a host refuses an older one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor import exception
from acstor.rpc.agent_client import AgentClient
from acstor.versions.host_restore.progress import RestoreProgress
from acstor.versions.host_restore.request import RestoreRequest


class HostRestores(Protocol):
    """Restores in place on hosts.

    Every method may raise :class:`~acstor.exception.UnavailableError` (the host does not answer; it
    may be repeated), :class:`~acstor.exception.FencedError` (a newer epoch was there, or another
    task is at the disk) and :class:`~acstor.exception.UnsupportedError` (its release is older).
    """

    def check(self, host: str, request: RestoreRequest, epoch: int) -> None:
        """Have a host that does not know such a restore refuse it before anything is done.

        :raises UnsupportedError: when its release is older.
        """

    def start(self, host: str, request: RestoreRequest, epoch: int) -> RestoreProgress:
        """Begin a restore, go on with the one of that task, or begin it anew once it has failed.

        :raises OverloadedError: when the host knows too many.
        """

    def progress(self, host: str, task: str, epoch: int) -> RestoreProgress:
        """Return how far it is.

        :raises NotFoundError: when the host knows no such task.
        """

    def abort(self, host: str, task: str, epoch: int) -> None:
        """Have it end; the disk may stay half written. Without effect where there is none."""

    def discard(self, host: str, task: str, epoch: int) -> bool:
        """Have the host forget it; False: it is ending, ask again.

        :raises FencedError: when the disk is half written.
        """


class RpcRestores:
    """Restores over the message bus; see :class:`HostRestores`.

    :param call: calls an agent: host, method, arguments by name.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        """Keep how to call."""
        self._call = call

    @classmethod
    def over(cls, client: AgentClient) -> "RpcRestores":
        """Return restores over a client of agents."""
        return cls(client.call)

    def check(self, host: str, request: RestoreRequest, epoch: int) -> None:
        """Refuse a host of an older release; see :meth:`HostRestores.check`."""
        if request.is_set:
            self._call(host, "restore_set_check", epoch=epoch, **request.to_arguments())

    def start(self, host: str, request: RestoreRequest, epoch: int) -> RestoreProgress:
        """Begin a restore; see :meth:`HostRestores.start`."""
        method = "restore_set_start" if request.is_set else "restore_start"
        return _progress_in(host, self._call(host, method, epoch=epoch, **request.to_arguments()))

    def progress(self, host: str, task: str, epoch: int) -> RestoreProgress:
        """Return how far it is; see :meth:`HostRestores.progress`."""
        return _progress_in(host, self._call(host, "restore_progress", task=task, epoch=epoch))

    def abort(self, host: str, task: str, epoch: int) -> None:
        """Have it end; see :meth:`HostRestores.abort`."""
        try:
            self._call(host, "restore_abort", task=task, epoch=epoch)
        except exception.NotFoundError:
            return

    def discard(self, host: str, task: str, epoch: int) -> bool:
        """Have the host forget it; see :meth:`HostRestores.discard`."""
        try:
            answer = self._call(host, "restore_discard", task=task, epoch=epoch)
        except exception.NotFoundError:
            return True
        return isinstance(answer, Mapping) and answer.get("is_gone") is True


def _progress_in(host: str, answer: object) -> RestoreProgress:
    """Read the answer of a host.

    :raises InternalError: when it is malformed.
    """
    try:
        return RestoreProgress.from_answer(answer)
    except exception.InvalidError as error:
        raise exception.InternalError(
            f"host {host} answered nonsense about a restore: {error}",
            hint="upgrade ACStor on that host",
        ) from error
