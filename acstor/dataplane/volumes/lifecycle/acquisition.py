"""Becoming the owner of a volume: in a new epoch, or in that of what is kept here."""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from acstor import exception
from acstor.dataplane.volumes.clean_proof import has_none
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.mending import VolumeMending
from acstor.dataplane.volumes.ownership.limits import limits_of
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.ownership.outcomes import Sealed, TakeOver
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.persisted_volume import PersistedVolume
from acstor.dataplane.volumes.take_overs import TakeOvers
from acstor.native import DataPlane, map_errors

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)


class VolumeAcquisition:
    """Acquires volumes, and keeps what they are to be opened with.

    :param take_overs: counts those whose owner had not given them back.
    :param access: to the logs that are sealed.
    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        files: VolumeFiles,
        owner: VolumeOwner,
        mending: VolumeMending,
        take_overs: TakeOvers,
        access: OriginAccess,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._files = files
        self._owner = owner
        self._mending = mending
        self._take_overs = take_overs
        self._access = access
        self._runtime = runtime

    def acquire(self, volume: str) -> PersistedVolume:
        """Return what to open a volume with: what is here if it is still right, else own it.

        :raises NotFoundError: when there is no such volume.
        :raises ConflictError: when another host owns it, or this one was not let attach.
        """
        # What cannot be read is not given up here: the local log may have what the origin lacks.
        kept = self._files.find(volume)
        if kept is not None:
            record = self._owner.check_owner(volume, kept.epoch).record
            if record is not None:
                self._mending.reaffirm(kept)
                return self._mending.mended(kept, record)
            LOG.warning("volume %s: what is here is of epoch %d, which is over", volume, kept.epoch)
        return self._acquire_anew(volume)

    def _acquire_anew(self, volume: str) -> PersistedVolume:
        clean = self._files.find_clean(volume)
        expected = None
        if clean is not None and has_none(clean):
            expected = self._owner.epoch_to_take(clean)
            if expected is not None:
                self._files.keep_clean(dataclasses.replace(clean, taking=expected))
        acquired = self._owner.acquire(volume, self._seal, expected, self._files.make)
        is_current = clean is not None and acquired.is_closed_log_current
        closed = clean.opened if clean is not None and is_current else None
        if acquired.take_over is not None:
            self._tell_take_over(volume, acquired.record, acquired.take_over)
        kept = _kept_of(volume, acquired.record, closed)
        if closed is None:
            self._files.make(volume)
        is_here = closed is not None and self._files.has_manifest(kept)
        self._files.keep(kept, {} if is_here else self._owner.manifests(kept.manifest))
        return kept

    def _seal(self, volume: str, epoch: int, first: int, member: str | None) -> Sealed:
        log = self._access.log_of(volume, epoch, member)
        with map_errors(f"sealing epoch {epoch} of volume {volume}"):
            end = self._runtime().volume_seal(volume, epoch, first, log)
        return Sealed(end["last"], end["seal"])

    def _tell_take_over(self, volume: str, record: "VolumeRecord", take_over: TakeOver) -> None:
        """Say, to whoever may care, that a volume may have lost writes."""
        is_complete = not record.durability.may_lag()
        self._take_overs.count(is_complete=is_complete)
        if is_complete:
            LOG.info("volume %s is taken over from %s, complete", volume, take_over.owner)
            return
        at = take_over.content_at
        age = "of a time that is not known" if at is None else f"{time.time() - at:.0f} s old"
        LOG.warning(
            "volume %s is taken over from %s, which had not given it back: the last that it pushed "
            "is %s; what it acknowledged later is no part of the volume",
            volume,
            take_over.owner,
            age,
        )
        try:
            self._owner.note_take_over(volume, take_over)
        except exception.AcstorError as error:
            LOG.warning("volume %s: its record does not say so: %s", volume, error)


def _kept_of(
    volume: str, record: "VolumeRecord", closed: PersistedVolume | None
) -> PersistedVolume:
    """Return what a volume is opened with.

    :param closed: under which the log was closed that it goes on with; None: it gets a new one.
    """
    iops, bytes_per_s = limits_of(record)
    durability = record.durability.to_fields()
    is_changed = closed is not None and closed.durability != durability
    return PersistedVolume(
        volume=volume,
        epoch=record.epoch,
        next=record.next,
        size_bytes=record.size_bytes,
        manifest=record.manifest,
        logs=[log.to_fields() for log in record.logs],
        # What was of class none and is to travel now is noticed when the class changes.
        durability=closed.durability if closed is not None else durability,
        iops=iops,
        bytes_per_s=bytes_per_s,
        adopts=None if closed is None else closed.epoch,
        wanted_durability=durability if is_changed else None,
        member=record.member,
    )
