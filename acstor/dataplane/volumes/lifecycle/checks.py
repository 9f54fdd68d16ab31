"""Looks at the records of volumes that are open: whose they are by now, and what follows here."""

from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.lifecycle.standby import VolumeStandby
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.mending import VolumeMending
from acstor.dataplane.volumes.ownership.outcomes import OwnerCheck
from acstor.dataplane.volumes.table import VolumeTable

_S = LocalVolumeState
_SERVED = frozenset({_S.SERVING, _S.FROZEN})
_MAY_BE_FENCED = frozenset({_S.SERVING, _S.FROZEN, _S.CLOSING})


class OwnershipChecks:
    """Checks of who owns the volumes that are open here."""

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        mending: VolumeMending,
        serving: VolumeServing,
        standby: VolumeStandby,
    ) -> None:
        self._table = table
        self._files = files
        self._mending = mending
        self._serving = serving
        self._standby = standby

    def check(self, volume: str) -> None:
        """Look at the record of a volume and do what it says.

        :raises AcstorError: when the origin does not answer, or as :meth:`checked` does.
        """
        self.checked(volume, self._mending.check_owner(volume))

    def checked(self, volume: str, check: OwnerCheck | None) -> None:
        """Take over what the record of a volume says of its owner.

        A standby finishes the hand-over that it began.

        :param check: None: nothing is here of the volume.
        :raises AcstorError: when what is here is behind the record, and cannot be mended; when
            the volume is served and what was kept of it cannot be read.
        """
        local = self._table.find_or_add(volume)
        if self._is_settled_as_standby(local):
            return
        with local.lock:
            if check is None:
                # Without its epoch nobody knows whether it is another host's: it is not fenced.
                if local.state in _MAY_BE_FENCED:
                    self._files.require(volume)
                local.is_unchecked = False
                return
            kept = self._files.find(volume)
            if kept is None or kept.epoch != check.epoch:
                return  # opened anew meanwhile
            if check.record is None:
                local.is_unchecked = False
                if local.state in _MAY_BE_FENCED:
                    self._serving.fence(local)
                return
        if local.state in _SERVED:
            self._mending.mend(local)
        local.is_unchecked = False

    def _is_settled_as_standby(self, local: LocalVolume) -> bool:
        with local.lock:
            if local.state is _S.STANDBY and local.is_unchecked:
                self._standby.settle(local)
                return True
        return False
