"""Captures on hosts, as the agent answers to them over the message bus (version 1.6).

Everything is answered at once, and may be repeated; what takes long goes on there. Each call has
the epoch of its task, and a host refuses an older one.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from acstor import exception, untrusted_json
from acstor.repository import layout
from acstor.repository.versions.record import GROUP_SIZE_MAX
from acstor.rpc.agent_client import AgentClient


class CaptureState(enum.StrEnum):
    """State of a capture as its host tells it."""

    QUEUED = "queued"
    READING = "reading"
    HELD = "held"
    """All of it is on the host."""
    COMMITTING = "committing"
    COMMITTED = "committed"
    """Its versions are restore points."""
    FAILED = "failed"
    ABORTED = "aborted"


READ = frozenset({CaptureState.HELD, CaptureState.COMMITTING, CaptureState.COMMITTED})
"""States in which the moment is over: the guest may go on as it likes."""
LOST = frozenset({CaptureState.FAILED, CaptureState.ABORTED})
"""States in which nothing is left of it."""


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureOrder:
    """Order of a capture: all disks of one moment."""

    task: str
    kind: str
    """``instance`` or ``volume``."""
    owner: str
    version: Mapping[str, Any]
    """Fields of the records: project, trigger, name and so on."""
    parents: Mapping[str, str]
    """Newest version of each disk, by its device; that of a volume is empty."""
    base_image: str | None
    consistency: str
    deadline_seconds: float
    """For reading the disks."""


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureProgress:
    """Progress of a capture as its host tells it."""

    state: CaptureState
    versions: Mapping[str, str]
    """Ids of the versions, by the device of each disk."""
    left_out: Mapping[str, str]
    """Reasons for which disks are not among them, by device."""
    consistency: str | None
    done_bytes: int
    total_bytes: int
    failure: exception.AcstorError | None
    """Reason for which it came to nothing."""

    @classmethod
    def from_answer(cls, host: str, answer: object) -> "CaptureProgress":
        """Read the answer of a host.

        :raises InternalError: when it is malformed.
        """
        try:
            return cls._parse(answer)
        except (ValueError, TypeError, AttributeError, exception.InvalidError) as error:
            raise exception.InternalError(
                f"host {host} answered nonsense about a capture: {error}",
                hint="upgrade ACStor on that host",
            ) from error

    @classmethod
    def _parse(cls, answer: object) -> "CaptureProgress":
        if not isinstance(answer, Mapping):
            raise ValueError("no object")
        disks = answer.get("disks")
        if not isinstance(disks, list) or len(disks) > GROUP_SIZE_MAX:
            raise ValueError("disks is no list of at most 256")
        left_out = answer.get("left_out") or {}
        return cls(
            state=CaptureState(str(answer.get("state"))),
            versions={
                str(disk["device"]): layout.canonical_id(str(disk.get("version")), "version")
                for disk in disks
            },
            left_out={str(name): str(reason) for name, reason in left_out.items()},
            consistency=answer.get("consistency"),
            done_bytes=untrusted_json.whole(answer.get("done_bytes", 0), "done_bytes"),
            total_bytes=untrusted_json.whole(answer.get("total_bytes", 0), "total_bytes"),
            failure=_failure(answer.get("failure")),
        )


class HostCaptures(Protocol):
    """Captures on hosts.

    Every method may raise :class:`~acstor.exception.UnavailableError` (the host does not answer; it
    may be repeated) and :class:`~acstor.exception.FencedError` (a newer epoch was there).
    """

    def start(self, host: str, order: CaptureOrder, epoch: int) -> CaptureProgress:
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

    def start(self, host: str, order: CaptureOrder, epoch: int) -> CaptureProgress:
        """Begin a capture; see :meth:`HostCaptures.start`."""
        answer = self._call(
            host,
            "capture_start",
            task=order.task,
            epoch=epoch,
            kind=order.kind,
            owner=order.owner,
            version=dict(order.version),
            devices=None,
            parents=dict(order.parents),
            base_image=order.base_image,
            consistency=order.consistency,
            deadline_s=order.deadline_seconds,
        )
        return CaptureProgress.from_answer(host, answer)

    def progress(self, host: str, task: str, epoch: int) -> CaptureProgress:
        """Return how far it is; see :meth:`HostCaptures.progress`."""
        answer = self._call(host, "capture_progress", task=task, epoch=epoch)
        return CaptureProgress.from_answer(host, answer)

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


def _failure(fields: object) -> exception.AcstorError | None:
    if fields is None:
        return None
    if not isinstance(fields, Mapping):
        raise ValueError("failure is no object")
    kind = exception.ErrorKind(str(fields.get("kind")))
    hint = fields.get("hint")
    return exception.CLASS_OF_KIND[kind](
        str(fields.get("message")), hint=hint if isinstance(hint, str) else None
    )
