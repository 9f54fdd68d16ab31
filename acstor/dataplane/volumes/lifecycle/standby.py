"""The standby of a volume, until it owns it or has released it wholly."""

import logging

from acstor import exception
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.lifecycle.acquisition import VolumeAcquisition
from acstor.dataplane.volumes.lifecycle.releases import VolumeReleases
from acstor.dataplane.volumes.lifecycle.serving import VolumeServing
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.ownership.doorbells import HostDoorbells
from acstor.dataplane.volumes.ownership.migrations import MigrationRequests
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.persisted_volume import PersistedStandby
from acstor.dataplane.volumes.states import LocalVolumeEvent

LOG = logging.getLogger(__name__)


class VolumeStandby:
    """Standbys of this host; whoever calls holds the volume's lock."""

    def __init__(
        self,
        *,
        files: VolumeFiles,
        owner: VolumeOwner,
        migrations: MigrationRequests,
        doorbells: HostDoorbells,
        acquisition: VolumeAcquisition,
        releases: VolumeReleases,
        serving: VolumeServing,
    ) -> None:
        self._files = files
        self._owner = owner
        self._migrations = migrations
        self._doorbells = doorbells
        self._acquisition = acquisition
        self._releases = releases
        self._serving = serving

    def open(self, local: LocalVolume) -> bool:
        """Open a volume as its standby; return whether its record allows that.

        :raises NotFoundError: when there is no such volume.
        """
        record = self._owner.record(local.volume)
        if not self._migrations.may_be_standby(record):
            return False
        # First of all: whoever was told that this host follows finds it so after a restart.
        self._files.keep_standby(PersistedStandby(local.volume, record.size_bytes))
        self._serving.start_standby(local, record.size_bytes)
        # The owner is to look closely from now on: requests may want the volume any moment.
        self._doorbells.ring(record)
        return True

    def try_to_acquire(self, local: LocalVolume) -> bool:
        """Own and serve a volume; return whether its record allows that."""
        try:
            kept = self._acquisition.acquire(local.volume)
        except exception.ConflictError:
            return False
        self._serving.start(local, kept)
        local.released = None
        local.is_unchecked = False
        local.role = local.role.OWNER
        local.move(LocalVolumeEvent.SERVED)
        LOG.info("volume %s was handed over to this host, epoch %d", local.volume, kept.epoch)
        return True

    def settle(self, local: LocalVolume) -> None:
        """Find out whether a standby is the owner still, and give the volume back if so.

        :raises AcstorError: when the origin does not answer.
        """
        kept = self._files.find_readable(local.volume)
        if kept is None:
            local.is_unchecked = False
            return
        record = self._owner.check_owner(local.volume, kept.epoch).record
        if record is None:
            self._releases.note_finished(local, kept.size_bytes)
        elif local.released is not None:
            self._releases.finish(local, kept.size_bytes)
        else:
            # Killed before the release; what was pushed last is not known any more. Whoever waits
            # for the volume gets it in the ordinary way.
            self.try_to_acquire(local)
