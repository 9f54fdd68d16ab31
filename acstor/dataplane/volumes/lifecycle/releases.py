"""Giving volumes back: pushed whole, noted here, and released in their records, in this order."""

import logging
from collections.abc import Callable

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.clean_proof import CleanReason
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.persisted_volume import PersistedStandby
from acstor.native import DataPlane, map_errors

LOG = logging.getLogger(__name__)

_SYNC_FAILED = "failed"
"""State of a volume in the runtime whose local disk failed to sync."""


class VolumeReleases:
    """Releases volumes; whoever calls holds the volume's lock.

    ``LocalVolume.released`` says what the runtime gave back and the record does not say yet.

    :param runtime: returns the runtime.
    """

    def __init__(
        self,
        *,
        files: VolumeFiles,
        owner: VolumeOwner,
        observer: VolumeObserver,
        serving: VolumeServing,
        runtime: Callable[[], DataPlane],
    ) -> None:
        self._files = files
        self._owner = owner
        self._observer = observer
        self._serving = serving
        self._runtime = runtime

    def release(self, local: LocalVolume) -> None:
        """Push what is left and give the volume back.

        Where the push fails it is this host's still. Where the record is not known to be changed
        it is whoever's the record says, and nobody is served before that was read.
        """
        if local.released is None:
            self._start_anew(local)
            local.released = self.push_last(local)
        # Before the record says so: a process that is killed in between finds what it may remove.
        self._files.note_clean(local.volume, CleanReason.RELEASED)
        self._owner.release(local.volume, *local.released)
        local.released = None

    def push_last(self, local: LocalVolume) -> tuple[int, int]:
        """Push what is left, taking no more requests; return epoch and last log object."""
        with map_errors(f"giving volume {local.volume} back"):
            last = self._runtime().volume_release(local.volume)
        return last["epoch"], last["sequence"]

    def finish(self, local: LocalVolume, size_bytes: int) -> None:
        """Release what a standby has pushed whole.

        :raises AcstorError: when it is not known whether the record was changed.
        """
        assert local.released is not None
        try:
            self._owner.release(local.volume, *local.released)
        except exception.FencedError as error:
            LOG.warning("volume %s was released before: %s", local.volume, error)
        self.note_finished(local, size_bytes)

    def note_finished(self, local: LocalVolume, size_bytes: int) -> None:
        """Keep that this host is no more than the standby of a volume."""
        local.released = None
        local.is_unchecked = False
        self._files.keep_standby(PersistedStandby(local.volume, size_bytes))

    def take_back(self, local: LocalVolume) -> None:
        """Go on as the owner of what the runtime gave back and the record does not say.

        Takes the volume's lock itself.

        :raises AcstorError: when the local log does not open: requests wait until it does, or the
            volume is handed over, or closed.
        """
        with local.lock:
            if local.state is not LocalVolumeState.SERVING or local.released is None:
                return
            try:
                self._serving.start(local, self._files.require(local.volume))
            except exception.AcstorError as error:
                local.error = str(error)
                raise
            local.error = None
            local.released = None

    def _start_anew(self, local: LocalVolume) -> None:
        """Open a log again whose disk failed to sync: a push takes only what the disk has of it.

        What the disk lost, guests were told by a flush that failed. Nobody is served meanwhile.
        """
        if local.is_in_runtime and self._observer.status(local).get("state") != _SYNC_FAILED:
            return
        LOG.warning("volume %s: its local log is opened again, to be given back", local.volume)
        kept = self._files.require(local.volume)
        self._serving.drop(local)
        self._serving.start(local, kept)
