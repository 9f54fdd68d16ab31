"""Volumes that this host has no more: their files, their socket and what is known of them."""

import logging

from acstor.dataplane.volumes.clean_proof import CleanReason
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.listeners import VolumeListeners
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.states import LocalVolumeEvent
from acstor.dataplane.volumes.table import VolumeTable

LOG = logging.getLogger(__name__)


class VolumeForgetting:
    """Forgets volumes; whoever calls holds the volume's lock.

    A volume that is forgotten is in the table no more, and whoever waits for its lock begins anew.
    """

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        listeners: VolumeListeners,
        observer: VolumeObserver,
        serving: VolumeServing,
    ) -> None:
        self._table = table
        self._files = files
        self._listeners = listeners
        self._observer = observer
        self._serving = serving

    def forget(self, local: LocalVolume, why: str) -> None:
        """Forget a volume that is closing and that this host does not own.

        :param why: for whoever finds its log, where that is put aside.
        """
        self._serving.drop(local)
        local.move(LocalVolumeEvent.CLOSED)
        # The socket last: who finds it gone finds the volume given back.
        self._files.close(local.volume, why)
        self.discard(local)

    def forget_fenced(self, local: LocalVolume) -> None:
        """Forget a volume that another host owns, whatever clients it has here."""
        dirty_bytes = self._observer.status(local).get("dirty_bytes")
        LOG.warning(
            "volume %s: another host owns it; %s bytes written here were never pushed",
            local.volume,
            "an unknown number of" if dirty_bytes is None else dirty_bytes,
        )
        self._serving.end(local, force=True)
        self._serving.drop(local)
        if dirty_bytes == 0 and self._files.find_clean(local.volume) is None:
            self._files.note_clean(local.volume, CleanReason.PUSHED)
        local.move(LocalVolumeEvent.CLOSE)
        self.forget(local, "another host owns the volume")

    def discard_unopened(self, local: LocalVolume) -> None:
        """Forget a volume that could not be opened, and what was made for that."""
        local.move(LocalVolumeEvent.FAILED)
        self._files.remove_unserved(local.volume)
        self.discard(local)

    def discard(self, local: LocalVolume) -> None:
        """Remove the socket of a volume that is closed, and know it no more."""
        self._listeners.detach(local)
        local.error = None
        local.released = None
        local.is_unchecked = False
        self._table.remove(local.volume)
