"""A host as the owner of volumes: their records in the origin."""

import contextlib
import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acstor import exception
from acstor.dataplane.volumes import manifest_levels
from acstor.dataplane.volumes.clean_proof import CleanProof
from acstor.dataplane.volumes.ownership import outcomes
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

MANIFEST_BYTES_MAX = 4 << 30
"""Largest manifest that is read, bytes."""
TAKEN_OVER_FROM = "taken_over_from"
"""Entry of a record's metadata: the owner that was replaced last without having released."""
TAKEN_OVER_AT = "taken_over_at"
TAKEN_OVER_CONTENT_AT = "taken_over_content_at"
"""The same: when the last of what it had pushed was sent; UTC, ISO 8601."""


class VolumeOwner:
    """A host as the owner of volumes.

    :param host: its name in the records.
    :param access: to the records.
    """

    def __init__(self, host: str, access: OriginAccess) -> None:
        self.host = host
        self._access = access

    def acquire(
        self,
        volume: str,
        seal: outcomes.Seal,
        expected: int | None = None,
        forget_closed: Callable[[str], object] = lambda volume: None,
    ) -> outcomes.Acquired:
        """Own a volume in a new epoch, with nothing left to be sealed.

        :param expected: the epoch in which the log that this host closed is the volume's, see
            :meth:`epoch_to_take`; None: in none.
        :param forget_closed: makes that log void for good, before the record tells less of it.
        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: when this host may not attach it, or another one has it.
        """
        records = self._access.records()
        change = records.acquire(volume, self.host)
        record = change.after
        is_current = record.epoch == expected
        if record.unsealed is None:
            return outcomes.Acquired(record, is_current)
        end = seal(volume, record.unsealed, record.next, record.unsealed_member)
        if is_current and end.last is not None:
            # Somebody who did not know that the volume was given back has stored what is not here.
            forget_closed(volume)
            is_current = False
        last = record.next - 1 if end.last is None else end.last
        taken = records.record_takeover(volume, self.host, record.epoch, last=last, seal=end.seal)
        owner = change.before.owner
        if is_current or owner is None:
            return outcomes.Acquired(taken.after, is_current)
        return outcomes.Acquired(taken.after, take_over=self._take_over(owner, taken.after))

    def _take_over(self, owner: str, record: "VolumeRecord") -> outcomes.TakeOver:
        from acstor.repository import layout
        from acstor.repository.volumes.log_object import LOG_OBJECT_SIZE_MAX, log_created_at

        content_at = None
        if record.logs:
            last = record.logs[-1]
            key = layout.log_key(last.volume, last.epoch, last.last)
            # Only for people: nothing else depends on it.
            with contextlib.suppress(exception.AcstorError):
                store = self._access.origin().near_member(last.member)
                content_at = log_created_at(store.get(key, LOG_OBJECT_SIZE_MAX))
        return outcomes.TakeOver(owner, content_at)

    def note_take_over(self, volume: str, take_over: outcomes.TakeOver) -> None:
        """Keep in a volume's record, for people, that its owner was replaced."""
        at = take_over.content_at
        metadata = {
            TAKEN_OVER_FROM: take_over.owner,
            TAKEN_OVER_AT: _iso(time.time()),
            TAKEN_OVER_CONTENT_AT: None if at is None else _iso(at),
        }
        self._access.records().describe(volume, metadata=metadata)

    def epoch_to_take(self, closed: CleanProof) -> int | None:
        """Return the epoch in which this host goes on with a log that it closed; None: in none.

        To be kept with the log before :meth:`acquire`, which may take effect without an answer.

        :raises NotFoundError: when there is no such volume.
        """
        record = self.record(closed.volume)
        return record.epoch + 1 if self.is_closed_last(record, closed) else None

    def is_closed_last(self, record: "VolumeRecord", closed: CleanProof) -> bool:
        """Return whether nobody wrote to a volume since this host closed its log."""
        if closed.opened is None:
            return False
        epoch = closed.opened.epoch
        if record.owner == self.host:
            # Owned by a call that failed or whose answer was lost: the log would be gone else.
            if closed.taking is None:
                # By a release that kept no note of it. An epoch stays the unsealed one until
                # another owner begins to write.
                return record.unsealed == epoch
            # Each change of the owner makes the epoch grow, and nobody else had it at the note.
            return record.epoch in (closed.taking - 1, closed.taking)
        end = record.content_end
        # A revert makes the epoch grow and has no end.
        return record.owner is None and end is not None and end[0] == record.epoch == epoch

    def check_owner(self, volume: str, epoch: int) -> outcomes.OwnerCheck:
        """Return whether this host owns a volume in an epoch and may write its log.

        :raises AcstorError: when the origin does not answer.
        """
        found = self._access.records().find(volume)
        is_owner = (
            found is not None
            and found.record.owner == self.host
            and found.record.epoch == epoch
            and found.record.unsealed is None
        )
        return outcomes.OwnerCheck(epoch, found.record if found is not None and is_owner else None)

    def owned_record(self, volume: str, epoch: int) -> "VolumeRecord":
        """Return the record of a volume that this host owns in an epoch.

        :raises FencedError: when another host owns the volume by now.
        """
        record = self._access.records().get(volume).record
        if (record.owner, record.epoch) != (self.host, epoch):
            raise exception.FencedError(
                f"volume {volume} is not owned by {self.host} in epoch {epoch} any more"
            )
        return record

    def record(self, volume: str) -> "VolumeRecord":
        """Return a volume's record.

        :raises NotFoundError: when there is no such volume.
        """
        return self._access.records().get(volume).record

    def release(self, volume: str, epoch: int, sequence: int | None) -> None:
        """Give a volume back, everything up to a log object being pushed.

        :raises FencedError: when another host owns the volume by now.
        """
        self._access.records().release(volume, self.host, epoch, sequence)

    def reaffirm(self, volume: str, epoch: int) -> None:
        """Stay the owner, whatever becomes of a release that was tried.

        :raises FencedError: when it took effect, or another host owns the volume by now.
        """
        self._access.records().reaffirm(volume, self.host, epoch)

    def makes_paged(self) -> bool:
        """Return whether the first manifest of a volume is to be of version 2.

        :raises AcstorError: when the origin does not answer.
        """
        return self._access.records().makes_paged()

    def announce_fold(
        self, volume: str, epoch: int, packs: Sequence[str], manifest: str | None
    ) -> None:
        """Name what a fold is about to store, all of it so far.

        :raises FencedError: when another host owns the volume by now.
        """
        self._access.records().announce_fold(
            volume, self.host, epoch, packs=packs, manifest=manifest
        )

    def install_fold(
        self, volume: str, epoch: int, manifest: str, folded: Mapping[str, Any]
    ) -> "VolumeRecord":
        """Replace the log up to a log object by an announced and stored manifest.

        :param folded: ``volume``, ``epoch`` and ``sequence`` of the log object.
        :raises FencedError: when another host owns the volume by now.
        """
        from acstor.repository.volumes.ownership import LogPosition

        return (
            self._access.records()
            .install_fold(volume, self.host, epoch, manifest, LogPosition(**folded))
            .after
        )

    def manifests(self, digest: str | None) -> dict[str, bytes]:
        """Return a manifest of the origin and those that it is a delta of, by name; none for None.

        All of them are compared with their names.

        :raises NotFoundError: when the origin does not hold one.
        :raises CorruptError: when one is damaged there.
        """
        from acstor.repository import layout

        if digest is None:
            return {}
        origin = self._access.origin()
        return manifest_levels.fetch(
            lambda name: origin.get(layout.manifest_key(name), MANIFEST_BYTES_MAX), digest
        )


def _iso(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(timespec="seconds")
