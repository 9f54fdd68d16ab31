"""Closing volumes, and giving them back; see ``contributor/volumes``."""

import logging

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.folds.exclusion import FoldExclusion
from acstor.dataplane.volumes.lifecycle.forgetting import VolumeForgetting
from acstor.dataplane.volumes.lifecycle.releases import VolumeReleases
from acstor.dataplane.volumes.lifecycle.resuming import VolumeResuming
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.lifecycle.standby import VolumeStandby
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.logs.directory import LogDirectory
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.table import VolumeTable

LOG = logging.getLogger(__name__)

_S = LocalVolumeState


class VolumeClosing:
    """Closes volumes."""

    def __init__(
        self,
        *,
        place: LogDirectory,
        table: VolumeTable,
        exclusion: FoldExclusion,
        observer: VolumeObserver,
        resuming: VolumeResuming,
        standby: VolumeStandby,
        releases: VolumeReleases,
        serving: VolumeServing,
        forgetting: VolumeForgetting,
    ) -> None:
        self._place = place
        self._table = table
        self._exclusion = exclusion
        self._observer = observer
        self._resuming = resuming
        self._standby = standby
        self._releases = releases
        self._serving = serving
        self._forgetting = forgetting

    def close(self, volume: str, force: bool) -> None:
        """Push what is left, own the volume no more, remove the socket. Nothing when not open.

        Nothing is lost by it, whatever ``force`` says: Nova uses that at each hard reboot.

        :param force: also while clients are connected.
        :raises InvalidError: while clients are connected, without ``force``.
        :raises UnavailableError: when the origin does not take what is left: the volume waits,
            closing, and its writes are kept here. Also when it is being opened, and that fails or
            takes too long, or the directory of the logs is not the one it was.
        """
        local = self._table.find(volume)
        if local is None:
            # What is not here was never here, if this is the directory that has the logs.
            self._place.check()
            return
        with self._exclusion.of(local), local.turn():
            if local.state is _S.OPENING:
                self._resuming.finish(local)
            if local.state is _S.CLOSED:
                return
            self._observer.follow(local)
            if local.state is not _S.FENCED:
                self._leave(local, force)
            if local.state is _S.FENCED:
                self._forgetting.forget_fenced(local)
            else:
                self._forgetting.forget(local, "it was closed")
        LOG.info("volume %s is closed", volume)

    def _leave(self, local: LocalVolume, force: bool) -> None:
        """Serve nobody any more, and own the volume no more."""
        if local.state is _S.STANDBY and local.is_unchecked:
            self._standby.settle(local)
        self._serving.end(local, force)
        is_owner = local.state is not _S.STANDBY
        local.move(LocalVolumeEvent.CLOSE)
        try:
            if is_owner:
                self._releases.release(local)
        except exception.FencedError as error:
            local.error = str(error)
            local.move(LocalVolumeEvent.FENCED)
        except exception.AcstorError as error:
            local.error = str(error)
            raise
