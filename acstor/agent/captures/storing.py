"""Storing captures that are on this host: their records, their content, the commits.

Captures of one batch look for chunks in what those before them have stored: what several disks have
in common is stored once (CloudVS, §3.5).
"""

import dataclasses
import os
from collections.abc import Callable

from acstor import exception
from acstor.agent.captures.orders import HeldCapture, HeldDisk, HeldMoment
from acstor.agent.captures.spool import SpooledDisk
from acstor.repository.versions.captures import Captures, Stored
from acstor.repository.versions.delta_capture import DeltaCapture, DeltaRequest, Settings
from acstor.repository.versions.known_chunks import KnownChunks
from acstor.repository.versions.record import VersionRecord
from acstor.repository.versions.states import RESTORABLE, VersionState
from acstor.repository.versions.whole_capture import BytesDisk, WholeCapture, WholeRequest
from acstor.versions.host_capture.request import CaptureRequest

NVRAM = "nvram"
"""File beside the spools that has the UEFI variables."""


def record_of(
    request: CaptureRequest, moment: HeldMoment, disk: HeldDisk, host: str
) -> VersionRecord:
    """Return the record of a version while it is on its host only."""
    fields = request.version
    return VersionRecord(
        state=VersionState.CAPTURED,
        disk=request.disk(disk.device),
        size_bytes=disk.size_bytes,
        project=fields.project,
        created_at=moment.created_at,
        name=fields.name,
        trigger=fields.trigger,
        consistency=moment.consistency,
        parent=disk.parent_version,
        base_image=request.base_image,
        host=host,
        group=request.task,
        group_size=len(moment.disks),
        schedule=fields.schedule,
        slot=fields.slot,
        expires_at=fields.expires_at,
        labels=dict(fields.labels),
        dedup_scope=moment.dedup_scope,
    )


def begin(captures: Captures, request: CaptureRequest, moment: HeldMoment, host: str) -> None:
    """Write the records of versions that a host holds, and keep what they are compared with.

    Repeating it is safe.

    :raises FencedError: when another host has captured a version of that id.
    :raises NotFoundError: when a version before is gone with what was compared with it.
    """
    for disk in moment.disks:
        found = captures.find(disk.version)
        if found is None:
            record = record_of(request, moment, disk, host)
            found = captures.begin(disk.version, record)
        if found.record.state in RESTORABLE:
            continue  # it was committed before this process was killed
        if found.record.pending is None and disk.parent is not None:
            # Named and then claimed: a collection leaves it, and what it refers to.
            captures.announce(disk.version, host, manifest=disk.parent)
            captures.find_lost(Stored(disk.parent))


def abandon(captures: Captures, moment: HeldMoment, host: str) -> None:
    """Give up the versions of a capture that are not committed; repeating it is safe."""
    for disk in moment.disks:
        try:
            captures.abandon(disk.version, host)
        except (exception.NotFoundError, exception.FencedError):
            continue


@dataclasses.dataclass(frozen=True)
class CommitSettings:
    """Settings of commits."""

    delta: Settings
    on_committed: Callable[[str], None] = lambda version: None
    """Told the id of each version."""
    check: Callable[[], None] = lambda: None
    """Ends the commit by raising."""
    advance: Callable[[int], None] = lambda size: None
    """Told bytes of spools that were stored."""


class Committer:
    """Stores captures of one batch, one after the other.

    :param host: name of this host.
    """

    def __init__(self, captures: Captures, host: str, settings: CommitSettings) -> None:
        self._captures = captures
        self._host = host
        self._settings = settings
        repository = captures.repository
        self._known = KnownChunks(
            repository.origin, repository.chunk_size, settings.delta.known_chunks_max
        )

    def commit(self, capture: HeldCapture) -> None:
        """Store a capture and make restore points of its versions; repeating it is safe.

        :raises FencedError: when it was abandoned meanwhile.
        :raises AcstorError: as of :meth:`.DeltaCapture.store` and :meth:`.WholeCapture.store`.
        """
        begin(self._captures, capture.request, capture.moment, self._host)
        for disk in capture.moment.disks:
            found = self._captures.find(disk.version)
            if found is None or found.record.state is VersionState.CAPTURED:
                self._commit_disk(capture, disk)
            self._settings.on_committed(disk.version)
            self._settings.advance(disk.held_bytes)

    def _commit_disk(self, capture: HeldCapture, disk: HeldDisk) -> None:
        request = capture.request
        if disk.has_nvram:
            self._store_nvram(capture, disk)
        spooled = SpooledDisk(os.path.join(capture.folder, disk.device))
        try:
            if disk.parent is None:
                stored = self._whole().store(
                    WholeRequest(
                        disk.version,
                        self._host,
                        spooled,
                        request.owner,
                        capture.moment.dedup_scope,
                    )
                )
            else:
                stored = self._delta().store(
                    DeltaRequest(
                        disk.version,
                        self._host,
                        spooled,
                        request.owner,
                        disk.parent,
                        capture.moment.dedup_scope,
                    )
                )
        finally:
            spooled.close()
        self._captures.commit(disk.version, self._host, stored)

    def _store_nvram(self, capture: HeldCapture, disk: HeldDisk) -> None:
        found = self._captures.find(disk.version)
        if found is not None and found.record.nvram is not None:
            return
        try:
            with open(os.path.join(capture.folder, NVRAM), "rb") as file:
                content = file.read()
        except OSError as error:
            raise exception.UnavailableError(
                f"{error.filename}: {error.strerror}", hint="capture again"
            ) from error
        request = WholeRequest(
            disk.version,
            self._host,
            BytesDisk(content),
            capture.request.owner,
            capture.moment.dedup_scope,
        )
        stored = self._whole().store(request)
        self._captures.note_part(disk.version, self._host, nvram=stored.manifest)

    def _whole(self) -> WholeCapture:
        delta = self._settings.delta
        return WholeCapture(
            self._captures,
            delta.pack_size,
            delta.workers,
            delta.reserve_percent,
            self._settings.check,
        )

    def _delta(self) -> DeltaCapture:
        return DeltaCapture(self._captures, self._settings.delta, self._known, self._settings.check)
