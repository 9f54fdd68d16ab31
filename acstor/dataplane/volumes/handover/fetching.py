"""Fetching a volume whose standby this host is, because requests wait for it here."""

import logging
import random
import time
from collections.abc import Callable

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.lifecycle.standby import VolumeStandby
from acstor.dataplane.volumes.observer import VolumeObserver
from acstor.dataplane.volumes.ownership.migrations import MigrationRequests
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.table import VolumeTable

LOG = logging.getLogger(__name__)

_S = LocalVolumeState
_PATIENCE = 3.0
"""Seconds for which a volume that was released is left to the host that asked for it first."""
_WAIT_MIN = 0.02
_WAIT_MAX = 0.1
_AWAY_WAIT = 1.0
"""Longest pause of a standby after the origin did not answer, seconds."""


class VolumeFetching:
    """Fetches volumes from their owners."""

    def __init__(
        self,
        *,
        table: VolumeTable,
        observer: VolumeObserver,
        owner: VolumeOwner,
        migrations: MigrationRequests,
        standby: VolumeStandby,
    ) -> None:
        self._table = table
        self._observer = observer
        self._owner = owner
        self._migrations = migrations
        self._standby = standby

    def wanted(self) -> list[str]:
        """Return the volumes of which this host is the standby and for which requests wait."""
        standbys = self._table.in_state(_S.STANDBY)
        return [one.volume for one in standbys if self._observer.status(one).get("is_wanted")]

    def fetch(self, volume: str, wait: Callable[[float], object] = time.sleep) -> bool:
        """Ask for a volume and own it once its owner has released it; return whether it is here.

        However long that takes: requests wait for it.

        :raises AcstorError: when that cannot succeed later either.
        """
        started_at = time.monotonic()
        while True:
            pause = _WAIT_MIN, _WAIT_MAX
            try:
                with self._table.changing(volume) as local:
                    if local.state is not _S.STANDBY:
                        return local.state is _S.SERVING
                    record = self._owner.record(volume)
                    is_patient = time.monotonic() < started_at + _PATIENCE
                    if not self._migrations.may_take(record, is_patient=is_patient):
                        self._migrations.ask_for(volume, record)
                    elif self._standby.try_to_acquire(local):
                        return True
            except exception.UnavailableError as error:
                LOG.warning("volume %s is asked for again: %s", volume, error)
                pause = _AWAY_WAIT / 2, _AWAY_WAIT
            wait(random.uniform(*pause))
