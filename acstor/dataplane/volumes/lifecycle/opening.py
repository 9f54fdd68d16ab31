"""Opening volumes; the page ``contributor/volumes`` tells how.

The steps are ordered so that a kill between two of them leaves what the next one can go on with.
"""

import logging

from acstor import exception
from acstor.control.protocol import LocalVolumeState, VolumeRole
from acstor.dataplane.volumes.lifecycle.acquisition import VolumeAcquisition
from acstor.dataplane.volumes.lifecycle.checks import OwnershipChecks
from acstor.dataplane.volumes.lifecycle.forgetting import VolumeForgetting
from acstor.dataplane.volumes.lifecycle.reopening import VolumeReopening
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.lifecycle.standby import VolumeStandby
from acstor.dataplane.volumes.listeners import VolumeListeners
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.logs.directory import LogDirectory
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.statuses import VolumeStatuses
from acstor.dataplane.volumes.table import VolumeTable

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_LEFT_OVER = frozenset({_S.CLOSING, _S.FENCED})
_OPENABLE = frozenset({_S.CLOSED, _S.OPENING})
_SERVED = frozenset({_S.SERVING, _S.FROZEN})


class VolumeOpening:
    """Opens volumes, as their owner or as their standby.

    :param is_enabled: whether volumes may be opened on this host.
    """

    def __init__(
        self,
        *,
        is_enabled: bool,
        place: LogDirectory,
        table: VolumeTable,
        observer: VolumeObserver,
        statuses: VolumeStatuses,
        listeners: VolumeListeners,
        checks: OwnershipChecks,
        reopening: VolumeReopening,
        acquisition: VolumeAcquisition,
        standby: VolumeStandby,
        serving: VolumeServing,
        forgetting: VolumeForgetting,
    ) -> None:
        self._is_enabled = is_enabled
        self._place = place
        self._table = table
        self._observer = observer
        self._statuses = statuses
        self._listeners = listeners
        self._checks = checks
        self._reopening = reopening
        self._acquisition = acquisition
        self._standby = standby
        self._serving = serving
        self._forgetting = forgetting

    def open(self, volume: str, role: str) -> dict[str, object]:
        """Own a volume and serve it; return where. Nothing changes when it is served already.

        :raises NotFoundError: when there is no such volume.
        :raises FencedError: when another host owns it, or this one was not let attach.
        :raises UnavailableError: when the directory of the logs is not the one it was.
        """
        if not self._is_enabled:
            raise exception.UnsupportedError(
                f"host {self._table.host} opens no volumes: [volumes] enabled is false",
                hint="enable them on hosts whose servers have volumes",
            )
        self._place.claim()
        with self._table.changing(volume) as local:
            self._observer.follow(local)
            if local.state in _SERVED or (local.state is _S.CLOSING and local.released is None):
                # Clients that were there before go on without the origin; new ones do not begin:
                # another host may have taken the volume, and this one not have noticed yet.
                self._checks.check(volume)
            if local.state in _LEFT_OVER:
                self._reopening.reopen(local)
            if local.state in _OPENABLE:
                self._open(local, VolumeRole(role))
            return self._statuses.description(local)

    def _open(self, local: LocalVolume, role: VolumeRole) -> None:
        if local.state is _S.CLOSED:
            # First of all: what is kept of a volume without it is of a release that had none.
            self._listeners.attach(local.volume)
            local.move(LocalVolumeEvent.OPEN)
        try:
            self._open_as(local, role)
        except Exception:
            self._serving.drop(local)
            if local.listener is None:
                # Not so after a restart: clients wait, and the next attempt may serve them.
                self._forgetting.discard_unopened(local)
            raise

    def _open_as(self, local: LocalVolume, role: VolumeRole) -> None:
        try:
            kept = self._acquisition.acquire(local.volume)
        except exception.ConflictError:
            if role is VolumeRole.OWNER or not self._standby.open(local):
                raise
            return
        self._serving.start(local, kept)
        self._serving.serve(local, LocalVolumeEvent.SERVED)
        LOG.info("volume %s is open, epoch %d", local.volume, kept.epoch)
