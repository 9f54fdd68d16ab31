"""Hosts that restore disks in place, in memory: the agent's end as flows see it.

A restore goes one state further each time that it is asked about.
"""

import dataclasses

from acstor import exception
from acstor.versions.host_capture.progress import Failure
from acstor.versions.host_restore.progress import RestoreProgress
from acstor.versions.host_restore.request import RestoreRequest
from acstor.versions.host_restore.states import RestoreState

TORN = "torn"
"""Content of a disk that is half written."""
_S = RestoreState


@dataclasses.dataclass(slots=True)
class HostRestore:
    """One restore on a host."""

    request: RestoreRequest
    state: RestoreState = _S.QUEUED
    failure: exception.AcstorError | None = None


class MemoryRestores:
    """Restores of every host.

    :ivar disks: version that the first disk of each server has, where one was written; or
        :data:`TORN`.
    :ivar further: the same of further disks, by server and device.
    :ivar variables: version whose UEFI variables each server has, where some were written.
    :ivar older: hosts that know restores of one disk only.
    :ivar refusals: errors of the next restores, before they write.
    :ivar breaks: errors of the next restores, in mid-write.
    :ivar damaged: versions that no restore comes to the end of.
    :ivar silent: hosts that do not answer.
    """

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], HostRestore] = {}
        self.epochs: dict[str, int] = {}
        self.disks: dict[str, str] = {}
        self.further: dict[tuple[str, str], str] = {}
        self.variables: dict[str, str] = {}
        self.older: set[str] = set()
        self.refusals: list[exception.AcstorError] = []
        self.breaks: list[exception.AcstorError] = []
        self.damaged: set[str] = set()
        self.silent: set[str] = set()
        self.requests: list[RestoreRequest] = []

    def check(self, host: str, request: RestoreRequest, epoch: int) -> None:
        if host in self.silent:
            raise exception.DeadlineError(f"host {host} did not answer")
        if host in self.older and request.is_set:
            raise exception.UnsupportedError(f"the agent of host {host} does not know sets")

    def start(self, host: str, request: RestoreRequest, epoch: int) -> RestoreProgress:
        self.check(host, request, epoch)
        self._admit(host, request.task, epoch)
        known = self.held.get((host, request.task))
        if known is not None and known.state is _S.WRITING and known.request != request:
            raise exception.ConflictError("another version is being written: abort that first")
        is_same = known is not None and known.request == request
        if known is None or not is_same or known.state in (_S.FAILED, _S.TORN):
            known = self.held[host, request.task] = HostRestore(request)
            self.requests.append(request)
        return self._progress(host, known)

    def progress(self, host: str, task: str, epoch: int) -> RestoreProgress:
        self._admit(host, task, epoch)
        known = self._get(host, task)
        self._advance(known)
        return self._progress(host, known)

    def abort(self, host: str, task: str, epoch: int) -> None:
        self._admit(host, task, epoch)
        known = self.held.get((host, task))
        if known is not None and known.state in (_S.QUEUED, _S.WRITING):
            self._fail(known, exception.UnavailableError("the restore was given up"))

    def discard(self, host: str, task: str, epoch: int) -> bool:
        self._admit(host, task, epoch)
        known = self.held.get((host, task))
        if known is None:
            return True
        if known.state in (_S.QUEUED, _S.WRITING):
            self.abort(host, task, epoch)
            return False
        if known.state is _S.TORN:
            raise exception.ConflictError("the disk is half written")
        del self.held[host, task]
        return True

    def _admit(self, host: str, task: str, epoch: int) -> None:
        if host in self.silent:
            raise exception.DeadlineError(f"host {host} did not answer")
        if epoch < self.epochs.get(task, 0):
            raise exception.FencedError(f"task {task} is of epoch {self.epochs[task]}")
        self.epochs[task] = epoch

    def _get(self, host: str, task: str) -> HostRestore:
        try:
            return self.held[host, task]
        except KeyError:
            raise exception.NotFoundError(f"host {host} knows no task {task}") from None

    def _advance(self, known: HostRestore) -> None:
        if known.state is _S.QUEUED:
            known.state = _S.WRITING
            if self.refusals:
                self._fail(known, self.refusals.pop(0))
            else:
                self._write(known.request, is_torn=True)
        elif known.state is _S.WRITING:
            if self.breaks:
                self._fail(known, self.breaks.pop(0))
            elif {disk.version for disk in known.request.disks} & self.damaged:
                self._fail(known, exception.CorruptError("a chunk is damaged"))
            else:
                self._write(known.request)
                known.state = _S.DONE

    def _write(self, request: RestoreRequest, *, is_torn: bool = False) -> None:
        self.disks[request.server] = TORN if is_torn else request.version
        for disk in request.further:
            self.further[request.server, disk.device] = TORN if is_torn else disk.version
        if request.nvram is not None and not is_torn:
            self.variables[request.server] = request.nvram

    def _fail(self, known: HostRestore, error: exception.AcstorError) -> None:
        is_torn = self.disks.get(known.request.server) == TORN
        known.state = _S.TORN if is_torn else _S.FAILED
        known.failure = error

    def _progress(self, host: str, known: HostRestore) -> RestoreProgress:
        is_done = known.state is _S.DONE
        return RestoreProgress(
            task=known.request.task,
            epoch=self.epochs[known.request.task],
            host=host,
            version=known.request.version,
            state=known.state,
            done_bytes=100 * is_done,
            total_bytes=100,
            fetched_bytes=40 * is_done,
            local_bytes=20 * is_done,
            written_bytes=80 * is_done,
            failure=None if known.failure is None else Failure.of(known.failure),
        )
