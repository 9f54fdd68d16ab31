"""Captures: versions on their way from a host to the origin.

A capture names what it makes in its record before that exists, as folds of volumes do (RFD 8), and
claims what others have stored once its manifest is stored and named (RFD 5). So collections may run
at every moment, and whatever is killed leaves either a version that is whole, or one that is shown
as captured until it is abandoned.
"""

import dataclasses
from collections.abc import Callable, Sequence

from acstor import exception
from acstor.origin import base
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.gc import claim
from acstor.repository.versions.record import DeltaCounts, VersionRecord
from acstor.repository.versions.states import VersionEvent, VersionState
from acstor.repository.versions.version_refs import Change, Version, VersionRefs
from acstor.repository.volumes.record import PENDING_PACKS_MAX, DiskState, Pending


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """Content that is in the origin: of a version's disk, or of what is beside it."""

    manifest: str | None
    """Manifest; None: zeros."""
    packs: tuple[str, ...] = ()
    """Packs that were stored for it."""
    delta: DeltaCounts | None = None


class Captures(VersionRefs):
    """Captures of versions."""

    def begin(self, version_id: str, record: VersionRecord) -> Version:
        """Note that a host has the content of one moment.

        :param record: in state CAPTURED, with its host.
        :raises ConflictError: when there is a version with that id.
        """
        self._repository.check_scope_allowed(record.dedup_scope)
        return self._publish(version_id, VersionEvent.BEGIN, record)

    def announce(
        self,
        version_id: str,
        host: str,
        packs: Sequence[str] = (),
        manifest: str | None = None,
    ) -> Change:
        """Name objects before they are stored: with those named before, and no others.

        :param packs: ids of all packs of this attempt so far.
        :param manifest: name of the manifest; None: it is not known yet.
        :raises NotFoundError: when the version is gone: it was abandoned.
        :raises FencedError: when it is no capture of this host any more.
        :raises ExhaustedError: when there are more packs than a record names.
        """
        check_pack_count(version_id, packs)

        def announced(record: VersionRecord) -> VersionRecord:
            _check_capture(version_id, record, host)
            pending = Pending(DiskState(manifest), tuple(packs))
            return dataclasses.replace(record, pending=pending)

        return self._change(version_id, VersionEvent.ANNOUNCE, announced)

    def note_part(
        self, version_id: str, host: str, *, nvram: str | None = None, vtpm: str | None = None
    ) -> Change:
        """Note a part beside the disk whose manifest is stored, was named, and is claimed.

        :param nvram: manifest of the UEFI variables; None: as it is.
        :param vtpm: manifest of the state of the virtual TPM; None: as it is.
        :raises NotFoundError: when the version is gone: it was abandoned.
        :raises FencedError: when it is no capture of this host any more.
        """

        def noted(record: VersionRecord) -> VersionRecord:
            _check_capture(version_id, record, host)
            return dataclasses.replace(
                record, nvram=nvram or record.nvram, vtpm=vtpm or record.vtpm, pending=None
            )

        return self._change(version_id, VersionEvent.ANNOUNCE, noted)

    def find_lost(self, stored: Stored) -> set[bytes]:
        """Claim what a manifest refers to, and return the names of what is lost.

        It is stored, and the record names it: from here on a collection sees what it refers to.

        :raises NotFoundError: when a manifest itself is lost.
        """
        return find_lost(self._origin, self._repository.load_manifest, _one(stored.manifest))

    def commit(self, version_id: str, host: str, stored: Stored) -> Change:
        """Make a version of a capture, all of whose content is in the origin and claimed.

        Repeating it is safe.

        :raises NotFoundError: when the version is gone: it was abandoned.
        :raises FencedError: when it is no capture of this host any more.
        """

        def committed(record: VersionRecord) -> VersionRecord:
            is_done = record.state is not VersionState.CAPTURED
            if is_done and record.manifest == stored.manifest:
                return record
            _check_capture(version_id, record, host)
            return dataclasses.replace(
                record,
                state=VersionState.COMMITTED,
                host=None,
                pending=None,
                committed_at=self._now(),
                manifest=stored.manifest,
                packs=stored.packs,
                delta=stored.delta,
            )

        return self._change(version_id, VersionEvent.COMMIT, committed)

    def abandon(self, version_id: str, host: str | None = None) -> Change:
        """Forget a capture that has failed; what it stored is collected.

        :param host: host whose capture it is; None: an operator gives up what a lost host had.
        :raises NotFoundError: when it is gone.
        :raises FencedError: when it is no capture, or one of another host.
        """

        def abandoned(record: VersionRecord) -> None:
            _check_capture(version_id, record, record.host if host is None else host)

        return self._change(version_id, VersionEvent.ABANDON, abandoned)

    def publish(self, version_id: str, record: VersionRecord) -> Version:
        """Make a version of a state that is in the origin: of a volume that was pushed.

        As a snapshot is made: published, then claimed, and taken back where that comes too late.

        :param record: in state COMMITTED.
        :raises ConflictError: when there is a version with that id, or something that it names was
            collected meanwhile: push again.
        """
        self._repository.check_scope_allowed(record.dedup_scope)
        lost = self._claim_content(record)
        if not lost:
            version = self._publish(version_id, VersionEvent.PUBLISH, record)
            lost = self._claim_content(record)
            if not lost:
                return version
            self._change(
                version_id, VersionEvent.REMOVE, lambda found: _unless_changed(found, record)
            )
        raise exception.ConflictError(
            f"the content of version {version_id} was collected meanwhile: {lost[0]}",
            hint="push the volume and try again",
        )

    def _claim_content(self, record: VersionRecord) -> list[str]:
        lost = claim.claim_logs(self._origin, record.logs)
        try:
            names = find_lost(self._origin, self._repository.load_manifest, record.manifests)
        except exception.NotFoundError as error:
            return [*lost, error.message]
        return [*lost, *sorted(name.hex() for name in names)]


def find_lost(
    origin: base.Origin,
    load: Callable[[str], DiskManifest],
    manifests: Sequence[str],
) -> set[bytes]:
    """Claim what manifests refer to, and return the names of what is lost.

    :raises NotFoundError: when a manifest itself is lost.
    """
    lost: set[bytes] = set()
    for digest in manifests:
        lost |= claim.claim(origin, load(digest))
    return lost


def check_pack_count(version_id: str, packs: Sequence[str]) -> None:
    """Refuse more packs than a record names.

    :raises ExhaustedError: when there are more.
    """
    if len(packs) > PENDING_PACKS_MAX:
        raise exception.ExhaustedError(
            f"version {version_id} would have more than {PENDING_PACKS_MAX} packs",
            hint="raise the size of the packs of captures",
        )


def _check_capture(version_id: str, record: VersionRecord, host: str | None) -> None:
    if record.state is not VersionState.CAPTURED:
        raise exception.FencedError(
            f"version {version_id} is {record.state.value}, and no capture any more"
        )
    if record.host != host:
        raise exception.FencedError(f"version {version_id} is a capture of host {record.host}")


def _unless_changed(found: VersionRecord, record: VersionRecord) -> VersionRecord | None:
    """Return nothing of a record that is as it was written, so that it is removed."""
    return None if found.nonce == record.nonce else found


def _one(manifest: str | None) -> tuple[str, ...]:
    return () if manifest is None else (manifest,)
