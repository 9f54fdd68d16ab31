"""Merges: another manifest of the same content takes the place of a version's.

What a merge makes is named in the record before it exists, as in a capture. Of two merges of one
version the later one goes on: the other finds at its next step that the record no longer names what
it has named.
"""

import dataclasses
from collections.abc import Sequence

from acstor import exception
from acstor.repository.versions.captures import Captures, check_pack_count
from acstor.repository.versions.record import VersionRecord
from acstor.repository.versions.states import VersionEvent, VersionState
from acstor.repository.versions.version_refs import Change
from acstor.repository.volumes.record import DiskState, Pending


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """Result of a merge, all of which is stored and claimed."""

    manifest: str
    packs: tuple[str, ...]
    """Packs of the version's own that the manifest uses."""
    alpha: float
    """Share of the chunk groups that are stored as a differential delta."""


class Merges(Captures):
    """Merges of versions."""

    def announce_merge(
        self,
        version_id: str,
        before: str,
        known: Pending | None,
        packs: Sequence[str],
        manifest: str | None = None,
    ) -> Pending:
        """Name objects of a merge before they are stored.

        :param before: manifest that the version had when the merge began.
        :param known: answer to the call before; None: this is the first, which takes the place of a
            merge that was killed, or still runs.
        :param packs: ids of all packs of the merge so far.
        :param manifest: name of the manifest; None: it is not known yet.
        :raises NotFoundError: when the version is gone.
        :raises ConflictError: when it is deleted or has another manifest, or another merge of it
            has begun.
        :raises ExhaustedError: when there are more packs than a record names.
        """
        check_pack_count(version_id, packs)
        pending = Pending(DiskState(manifest), tuple(packs))

        def announced(record: VersionRecord) -> VersionRecord:
            _check_mergeable(version_id, record, before)
            if known is not None and record.pending != known:
                raise _overtaken(version_id)
            return dataclasses.replace(record, pending=pending)

        self._change(version_id, VersionEvent.ANNOUNCE, announced)
        return pending

    def install_merge(
        self, version_id: str, before: str, known: Pending | None, merged: Merged
    ) -> Change:
        """Put the new manifest in the place of the one before.

        :param known: answer to the last :meth:`announce_merge`; None: nothing was made.
        :raises NotFoundError: when the version is gone.
        :raises ConflictError: as :meth:`announce_merge`.
        """

        def installed(record: VersionRecord) -> VersionRecord:
            _check_mergeable(version_id, record, before)
            if record.pending != known and known is not None:
                raise _overtaken(version_id)
            return dataclasses.replace(
                record,
                state=VersionState.MERGED,
                manifest=merged.manifest,
                packs=merged.packs,
                alpha=merged.alpha,
                pending=None,
            )

        return self._change(version_id, VersionEvent.MERGE, installed)


def _check_mergeable(version_id: str, record: VersionRecord, before: str) -> None:
    if not record.is_restorable:
        raise exception.ConflictError(f"version {version_id} is {record.state.value}")
    if record.manifest != before:
        raise exception.ConflictError(f"version {version_id} has another manifest by now")


def _overtaken(version_id: str) -> exception.ConflictError:
    return exception.ConflictError(
        f"another merge of version {version_id} has begun", hint="let that one end"
    )
