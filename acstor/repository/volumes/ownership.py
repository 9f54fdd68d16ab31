"""The owner's half of a volume's record: getting it, keeping it up to date, giving it back.

An owner is a host's data plane in one epoch. It stores log objects of that epoch, consecutively
from the record's ``next`` on, with ``put_if_absent`` and without looking at the record; a new
owner stops it by occupying the first free slot with a seal. Every method here refuses whoever is
not the owner in the epoch that it names.
"""

import contextlib
import dataclasses
from collections.abc import Sequence

from acstor import exception
from acstor.repository.volumes import log_range
from acstor.repository.volumes import record as records
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record import DiskState, Pending, VolumeRecord
from acstor.repository.volumes.record_refs import Change
from acstor.repository.volumes.sizes import RecordSizes
from acstor.repository.volumes.states import VolumeRecordEvent


@dataclasses.dataclass(frozen=True, slots=True)
class LogPosition:
    """A place in the log of a disk: right after one log object."""

    volume: str
    epoch: int
    sequence: int


class Ownership(RecordSizes):
    """Operations of hosts' data planes on volumes' records."""

    def acquire(self, volume_id: str, host: str, *, resumed_epoch: int | None = None) -> Change:
        """Become the owner, in a new epoch.

        Afterwards nobody else is: the owner before may still store log objects until its epoch is
        sealed, and they count; whatever it does later is refused. That holds also for an owner
        that released the volume: it may not know that its release took effect (RFD 12).
        ``after.unsealed`` is the epoch before, and the caller must seal it and call
        :meth:`record_takeover` before it stores any log object. Only a volume that nobody ever
        owned has none. Repeating a call whose answer was lost is safe; it costs an epoch.

        :param resumed_epoch: the epoch whose local log the caller still has, after a restart: if
            the host owns the volume in that epoch, nothing is changed.
        :returns: what was there (``content_end`` tells whether a local copy is current, if the
            seal finds nothing behind it) and what is.
        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: when the host may not attach the volume, or another host that may
            owns it.
        :raises UnsupportedError: when the volume is, or is to be, in a member of the origin that
            this process has not opened.
        :raises UnavailableError: also when such a member is not in use any more.
        """

        def acquired(record: VolumeRecord) -> VolumeRecord:
            if record.owner == host and record.epoch == resumed_epoch and record.unsealed is None:
                return record
            _check_may_own(volume_id, record, host)
            self._check_members(record)
            return record.taken_by(host)

        def event_of(record: VolumeRecord) -> VolumeRecordEvent:
            return VolumeRecordEvent.TAKE_OVER if record.epoch else VolumeRecordEvent.ACQUIRE

        return self._change(volume_id, event_of, acquired)

    def _check_members(self, record: VolumeRecord) -> None:
        """Refuse to begin an epoch that could not be written, or not be begun at all.

        Before the record is changed: whoever can write it shall find the volume as it is.
        """
        ended = record.member if record.unsealed is None else record.unsealed_member
        for member in {record.assigned, ended}:
            self._origin.of_member(member)

    def _check_assigned(self, record: VolumeRecord) -> None:
        """Refuse an epoch in a member that was given up or sleeps: nobody could end it.

        One that this process has not opened is for whoever owns the volume next.
        """
        with contextlib.suppress(exception.UnsupportedError):
            self._origin.of_member(record.assigned)

    def record_takeover(
        self, volume_id: str, host: str, epoch: int, *, last: int, seal: int
    ) -> Change:
        """Record where the sealed log of the owner before ends; the new owner may then write.

        Afterwards the disk contains every log object of the old owner up to ``last``, and the
        seal is never collected while the volume exists. Repeating the call is safe.

        :param epoch: the new owner's.
        :param last: last log object of the old epoch that counts; ``next`` - 1 when none does.
            Those between it and the seal (an incomplete batch) do not belong to the disk.
        :param seal: sequence number of the seal.
        :raises FencedError: when somebody else owns the volume by now.
        :raises InvalidError: when the numbers make no sense.
        """

        def recorded(record: VolumeRecord) -> VolumeRecord:
            _check_owner(volume_id, record, host, epoch)
            if record.unsealed is None:
                if record.next == seal + 1:
                    return record
                raise exception.InvalidError(f"volume {volume_id} has no unsealed epoch")
            if not record.next - 1 <= last < seal:
                raise exception.InvalidError(
                    f"a seal at {seal} after {last} does not end a log that begins at {record.next}"
                )
            closed = None
            if last >= record.next:
                ended, member = record.unsealed, record.unsealed_member
                closed = LogRange(volume_id, ended, record.next, last, member=member)
            seals = (*record.seals, (record.unsealed, seal))
            return dataclasses.replace(
                record,
                logs=log_range.appended(record.logs, closed),
                next=seal + 1,
                unsealed=None,
                unsealed_member=None,
                seals=seals[-records.SEALS_MAX :],
            )

        return self._change(volume_id, VolumeRecordEvent.RECORD_TAKEOVER, recorded)

    def advance(self, volume_id: str, host: str, epoch: int, sequence: int) -> Change:
        """Record that the owner pushed everything up to a log object: it becomes a closed range.

        Nothing depends on it but how much a new owner has to look for. Repeating it is safe.

        :raises FencedError: when somebody else owns the volume by now.
        """

        def advanced(record: VolumeRecord) -> VolumeRecord:
            _check_writing(volume_id, record, host, epoch)
            if sequence < record.next:
                return record
            logs = record.closed_until(volume_id, sequence)
            return dataclasses.replace(record, logs=logs, next=sequence + 1)

        return self._change(volume_id, VolumeRecordEvent.ADVANCE, advanced)

    def reaffirm(self, volume_id: str, host: str, epoch: int) -> Change:
        """Stay the owner after a release without an answer that has not taken effect.

        The record gets another token, so that it cannot take effect later either. Repeating the
        call is safe.

        :raises FencedError: when somebody else owns the volume by now, or nobody.
        """

        def reaffirmed(record: VolumeRecord) -> VolumeRecord:
            _check_writing(volume_id, record, host, epoch)
            return dataclasses.replace(record, nonce=records.random_nonce())

        return self._change(volume_id, VolumeRecordEvent.ADVANCE, reaffirmed)

    def announce_fold(
        self,
        volume_id: str,
        host: str,
        epoch: int,
        *,
        packs: Sequence[str],
        manifest: str | None = None,
    ) -> Change:
        """Name the packs and the manifest of a fold before they are stored.

        What is named here before it exists is never collected until the fold is installed or
        given up. Called as often as need be, each time with everything that the fold stores.

        :param packs: ids, hexadecimal.
        :param manifest: digest, hexadecimal; None: not known yet.
        :raises FencedError: when somebody else owns the volume by now.
        """

        def announced(record: VolumeRecord) -> VolumeRecord:
            _check_writing(volume_id, record, host, epoch)
            pending = Pending(DiskState(manifest), tuple(packs)) if packs or manifest else None
            return dataclasses.replace(record, pending=pending)

        return self._change(volume_id, VolumeRecordEvent.FOLD, announced)

    def give_up_fold(self, volume_id: str, host: str, epoch: int) -> Change:
        """Forget an announced fold; what it stored is collected.

        :raises FencedError: when somebody else owns the volume by now.
        """
        return self.announce_fold(volume_id, host, epoch, packs=())

    def install_fold(
        self, volume_id: str, host: str, epoch: int, manifest: str, folded: LogPosition
    ) -> Change:
        """Replace the manifest and the log objects up to a position by a new manifest.

        The disk is the same before and after. The manifest must have been announced before it
        was stored, and must be stored now, with all its packs. Repeating the call is safe.

        :param folded: the last log object whose content is in the manifest: in a closed range or
            among those that the owner stored since.
        :raises FencedError: when somebody else owns the volume by now.
        :raises InvalidError: when the fold was not announced, the position is not in the log, or
            the volume is larger by now than manifests of that version describe.
        """

        def installed(record: VolumeRecord) -> VolumeRecord:
            _check_writing(volume_id, record, host, epoch)
            if record.manifest == manifest and record.pending is None:
                return record
            if record.pending is None or record.pending.disk.manifest != manifest:
                raise exception.InvalidError(
                    f"manifest {manifest} of a fold of volume {volume_id} was not announced",
                    hint="announce it, then store it: it may have been collected",
                )
            self.check_size(record.size_bytes, manifest)
            is_recent = (folded.volume, folded.epoch) == (volume_id, epoch) and (
                folded.sequence >= record.next
            )
            logs = () if is_recent else _remaining(volume_id, record.logs, folded)
            following = folded.sequence + 1 if is_recent else record.next
            return dataclasses.replace(
                record, manifest=manifest, logs=logs, next=following, pending=None
            )

        return self._change(volume_id, VolumeRecordEvent.FOLD, installed)

    def release(self, volume_id: str, host: str, epoch: int, sequence: int | None) -> Change:
        """Give the volume back: everything up to a log object is pushed, no more will follow.

        Afterwards any host that may attach the volume can own it. After an error the caller does
        not know whether it still owns the volume: it looks at the record before it stores any
        log object. Repeating the call is safe.

        :param sequence: the last log object of the epoch; None: none was stored.
        :raises FencedError: when somebody else owns the volume by now.
        """

        def released(record: VolumeRecord) -> VolumeRecord:
            end = record.content_end
            if record.owner is None and record.epoch == epoch and end and end[0] == epoch:
                return record
            _check_writing(volume_id, record, host, epoch)
            last = record.next - 1 if sequence is None else max(sequence, record.next - 1)
            return dataclasses.replace(
                record,
                logs=record.closed_until(volume_id, last),
                next=last + 1,
                owner=None,
                pending=None,
                content_end=(epoch, max(last, 0)),
            )

        return self._change(volume_id, VolumeRecordEvent.RELEASE, released)


def _remaining(
    volume_id: str, logs: Sequence[LogRange], folded: LogPosition
) -> tuple[LogRange, ...]:
    for index, one in enumerate(logs):
        if (one.volume, one.epoch) == (folded.volume, folded.epoch) and (
            one.first <= folded.sequence <= one.last
        ):
            rest = tuple(logs[index + 1 :])
            if folded.sequence < one.last:
                return (dataclasses.replace(one, first=folded.sequence + 1), *rest)
            return rest
    raise exception.InvalidError(
        f"log object {folded.sequence} of epoch {folded.epoch} of volume {folded.volume} is not "
        f"in the log of volume {volume_id}"
    )


def _check_may_own(volume_id: str, record: VolumeRecord, host: str) -> None:
    if host not in record.hosts:
        raise exception.ConflictError(
            f"host {host} may not attach volume {volume_id}",
            hint="attach the volume through Cinder, which allows the host",
        )
    if record.owner not in (None, host) and record.owner in record.hosts:
        raise exception.ConflictError(
            f"volume {volume_id} is in use on host {record.owner}",
            hint=f"detach it there; if {record.owner} is lost, let Cinder remove its attachment",
        )


def _check_owner(volume_id: str, record: VolumeRecord, host: str, epoch: int) -> None:
    if (record.owner, record.epoch) != (host, epoch):
        raise exception.FencedError(
            f"volume {volume_id} is not owned by {host} in epoch {epoch} any more, but "
            f"by {record.owner or 'nobody'} in epoch {record.epoch}"
        )


def _check_writing(volume_id: str, record: VolumeRecord, host: str, epoch: int) -> None:
    _check_owner(volume_id, record, host, epoch)
    if record.unsealed is not None:
        raise exception.InvalidError(
            f"epoch {record.unsealed} of volume {volume_id} is not sealed yet",
            hint="seal it and record the takeover first",
        )
