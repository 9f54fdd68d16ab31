"""Looks at the records of volumes that are served: fenced, asked for, moving, or with new settings.

Of a volume that may be asked for any moment what was written is pushed and folded by now.
"""

import time
from typing import TYPE_CHECKING

from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.handover.ahead import PushAhead
from acstor.dataplane.volumes.handover.handover import VolumeHandover
from acstor.dataplane.volumes.handover.moving import VolumeMoves
from acstor.dataplane.volumes.lifecycle.checks import OwnershipChecks
from acstor.dataplane.volumes.lifecycle.releases import VolumeReleases
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.mending import VolumeMending
from acstor.dataplane.volumes.ownership.migrations import MigrationRequests
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.persisted_volume import PersistedVolume
from acstor.dataplane.volumes.settings import VolumeSettings
from acstor.dataplane.volumes.table import VolumeTable

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord


class VolumeWatch:
    """Watches the records of volumes that are served here."""

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        owner: VolumeOwner,
        migrations: MigrationRequests,
        checks: OwnershipChecks,
        settings: VolumeSettings,
        mending: VolumeMending,
        releases: VolumeReleases,
        handover: VolumeHandover,
        ahead: PushAhead,
        moves: VolumeMoves,
    ) -> None:
        self._table = table
        self._files = files
        self._owner = owner
        self._migrations = migrations
        self._checks = checks
        self._settings = settings
        self._mending = mending
        self._releases = releases
        self._handover = handover
        self._ahead = ahead
        self._moves = moves

    def watch(self, volume: str) -> bool:
        """Look at the record of a volume that is served: fence or hand it over, as it says.

        :returns: whether a migration of it is under way, so that it should be watched closely.
        """
        local, kept = self._table.find_or_add(volume), self._files.find_readable(volume)
        if kept is None:
            return False
        record = self._owner.record(volume)
        # Before what takes its time: the standby may read meanwhile.
        local.is_movable = record.is_standby_allowed
        if (record.owner, record.epoch) != (self._owner.host, kept.epoch):
            # Looked at again: it may have been opened anew between the two.
            self._checks.check(volume)
        elif self._migrations.requester(record) is not None:
            self._handover.hand_over(volume)
        elif local.released is not None:
            self._releases.take_back(local)
        elif self._moves.is_due(local, record):
            self._moves.move(volume, record)
        else:
            self._follow_record(local, kept, record)
        return record.is_standby_allowed

    def _follow_record(
        self, local: LocalVolume, kept: PersistedVolume, record: "VolumeRecord"
    ) -> None:
        """Bring a volume into line with a record that names this host, and that nobody asks for."""
        self._settings.follow_record(local, kept, record)
        if self._mending.is_served_behind(local, kept, record):
            self._mending.mend(local)
        elif record.is_standby_allowed and time.monotonic() >= local.ahead_at:
            self._ahead.keep(local)
