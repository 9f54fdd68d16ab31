"""Handing a volume over: pushed, released, and followed as its standby."""

import logging

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.clean_proof import CleanReason
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.folds.exclusion import FoldExclusion
from acstor.dataplane.volumes.handover.ahead import PushAhead
from acstor.dataplane.volumes.lifecycle.releases import VolumeReleases
from acstor.dataplane.volumes.persisted_volume import PersistedStandby
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.table import VolumeTable

LOG = logging.getLogger(__name__)


class VolumeHandover:
    """Hands volumes over to the hosts that their guests move to."""

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        exclusion: FoldExclusion,
        ahead: PushAhead,
        releases: VolumeReleases,
    ) -> None:
        self._table = table
        self._files = files
        self._exclusion = exclusion
        self._ahead = ahead
        self._releases = releases

    def hand_over(self, volume: str) -> None:
        """Push what is left, release the volume and become its standby.

        :raises AcstorError: when the push fails, or it cannot be noted: the volume is served here
            then as before. Where its log does not open again for that, requests wait, and the
            next call goes on. When it is not known whether the record was changed, this host is
            the standby, and finds out (:meth:`.OwnershipChecks.checked`).
        """
        local = self._table.known(volume)
        self._ahead.get(local)
        with self._exclusion.of(local), local.lock:
            if local.state is not LocalVolumeState.SERVING:
                return
            kept = self._files.require(volume)
            if local.released is None:
                local.released = self._releases.push_last(local)
            try:
                # Before the release: killed after it, the next process is the standby.
                self._files.note_clean(volume, CleanReason.RELEASED)
                self._files.note_standby(PersistedStandby(volume, kept.size_bytes))
            except OSError as error:
                self._releases.take_back(local)
                raise exception.UnavailableError(
                    f"volume {volume} is not handed over: {error}",
                    hint="make room in [volumes] directory, or mend its file system",
                ) from error
            local.error = None
            local.is_unchecked = True
            local.role = local.role.STANDBY
            local.move(LocalVolumeEvent.HANDED_OVER)
            self._releases.finish(local, kept.size_bytes)
        LOG.info("volume %s is handed over; this host is its standby", volume)
