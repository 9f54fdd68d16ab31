"""Hosts that capture, in memory: the agent's end of captures as flows see it.

A capture goes one state further each time that it is asked about. Its records are in the origin, as
those of a host are.
"""

import contextlib
import dataclasses

from acstor import exception
from acstor.repository.versions.captures import Stored
from acstor.repository.versions.record import (
    Consistency,
    VersionRecord,
)
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.versions.host_capture.progress import CapturedDisk, CaptureProgress, Failure
from acstor.versions.host_capture.request import CaptureRequest
from acstor.versions.host_capture.states import ENDED, CaptureState

_NEXT = {
    CaptureState.QUEUED: CaptureState.READING,
    CaptureState.READING: CaptureState.HELD,
    CaptureState.HELD: CaptureState.COMMITTING,
    CaptureState.COMMITTING: CaptureState.COMMITTED,
}


@dataclasses.dataclass(slots=True)
class HostCapture:
    """One capture on a host."""

    request: CaptureRequest
    epoch: int
    devices: tuple[str, ...]
    state: CaptureState = CaptureState.QUEUED
    failure: exception.AcstorError | None = None

    @property
    def versions(self) -> dict[str, str]:
        """Ids by device."""
        return {device: self.request.version_id(device) for device in self.devices}


class MemoryCaptures:
    """Captures of every host.

    :ivar devices: disks of each server.
    :ivar variables: by server, manifest of its UEFI variables; they go with its first disk.
    :ivar unreadable: disks that cannot be had, wherever they are.
    :ivar silent: hosts that do not answer.
    :ivar fails_in: state in which the next captures fail, see ``failures``.
    :ivar failures: reasons of these; then they go on. None: always, as the origin is full.
    """

    def __init__(self, store: VersionStore) -> None:
        self._store = store
        self.held: dict[tuple[str, str], HostCapture] = {}
        self.epochs: dict[str, int] = {}
        self.devices: dict[str, tuple[str, ...]] = {}
        self.variables: dict[str, str] = {}
        self.unreadable: set[str] = set()
        self.silent: set[str] = set()
        self.fails_in: CaptureState | None = None
        self.failures: list[exception.AcstorError] | None = None
        self.requests: list[CaptureRequest] = []

    def start(self, host: str, request: CaptureRequest, epoch: int) -> CaptureProgress:
        self._admit(host, request.task, epoch)
        known = self.held.get((host, request.task))
        if known is None or known.state in (CaptureState.FAILED, CaptureState.ABORTED):
            self.requests.append(request)
            devices = self._devices(request)
            known = self.held[host, request.task] = HostCapture(request, epoch, devices)
        return self._progress(host, known)

    def progress(self, host: str, task: str, epoch: int) -> CaptureProgress:
        self._admit(host, task, epoch)
        known = self._get(host, task)
        self._advance(host, known)
        return self._progress(host, known)

    def abort(self, host: str, task: str, epoch: int) -> None:
        self._admit(host, task, epoch)
        known = self.held.get((host, task))
        if known is None or known.state in ENDED:
            return
        self._abandon(host, known)
        known.state = CaptureState.ABORTED

    def discard(self, host: str, task: str, epoch: int) -> bool:
        self._admit(host, task, epoch)
        known = self.held.get((host, task))
        if known is not None and known.state not in ENDED:
            self.abort(host, task, epoch)
            return False
        self.held.pop((host, task), None)
        return True

    def _devices(self, request: CaptureRequest) -> tuple[str, ...]:
        """Return the disks of a request; one that is named must be had."""
        found = self.devices.get(request.owner, ("vda",))
        wanted = found if request.devices is None else request.devices
        taken = tuple(each for each in wanted if each in found and each not in self.unreadable)
        if not taken or (request.devices is not None and taken != wanted):
            raise exception.UnsupportedError(f"disk {wanted[0]} cannot be had")
        return taken

    def _admit(self, host: str, task: str, epoch: int) -> None:
        if host in self.silent:
            raise exception.DeadlineError(f"host {host} did not answer")
        if epoch < self.epochs.get(task, 0):
            raise exception.FencedError(f"task {task} is of epoch {self.epochs[task]}")
        self.epochs[task] = epoch

    def _get(self, host: str, task: str) -> HostCapture:
        try:
            return self.held[host, task]
        except KeyError:
            raise exception.NotFoundError(f"host {host} knows no task {task}") from None

    def _advance(self, host: str, known: HostCapture) -> None:
        if known.state in ENDED:
            return
        after = _NEXT[known.state]
        if after is self.fails_in and (self.failures is None or self.failures):
            self._abandon(host, known)
            known.state = CaptureState.FAILED
            full = exception.ExhaustedError("the origin is full")
            known.failure = full if self.failures is None else self.failures.pop(0)
            return
        if after is CaptureState.HELD:
            for device, version_id in known.versions.items():
                self._store.begin(version_id, self._record(host, known, device))
        if after is CaptureState.COMMITTED:
            variables = self.variables.get(known.request.owner)
            for number, version_id in enumerate(known.versions.values()):
                if variables is not None and not number:
                    self._store.note_part(version_id, host, nvram=variables)
                self._store.commit(version_id, host, Stored(None))
        known.state = after

    def _abandon(self, host: str, known: HostCapture) -> None:
        for version_id in known.versions.values():
            with contextlib.suppress(exception.NotFoundError, exception.FencedError):
                self._store.abandon(version_id, host)

    def _record(self, host: str, known: HostCapture, device: str) -> VersionRecord:
        request = known.request
        wanted = request.version
        return VersionRecord(
            state=VersionState.CAPTURED,
            disk=request.disk(device),
            size_bytes=1 << 20,
            project=wanted.project,
            created_at=self._store._now(),
            name=wanted.name,
            trigger=wanted.trigger,
            consistency=Consistency.CRASH,
            parent=request.parents.get(device),
            host=host,
            group=request.task,
            group_size=len(known.devices),
            schedule=wanted.schedule,
            slot=wanted.slot,
            expires_at=wanted.expires_at,
            labels=wanted.labels,
        )

    def _progress(self, host: str, known: HostCapture) -> CaptureProgress:
        share = list(CaptureState).index(known.state)
        return CaptureProgress(
            task=known.request.task,
            epoch=self.epochs[known.request.task],
            host=host,
            state=known.state,
            disks=tuple(CapturedDisk(one, device) for device, one in known.versions.items()),
            consistency=Consistency.CRASH,
            done_bytes=share * 100,
            total_bytes=400,
            failure=None if known.failure is None else Failure.of(known.failure),
        )
