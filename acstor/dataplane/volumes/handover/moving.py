"""Moves of volumes to other members of the origin, under their guests.

A move is a hand-over of a host to itself: pushed, released, and owned in a new epoch, which begins
in the member that the volume is assigned to (RFD 38, *Epochs*). Requests wait meanwhile.
"""

import contextlib
import logging
from typing import TYPE_CHECKING

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.handover.handover import VolumeHandover
from acstor.dataplane.volumes.lifecycle.standby import VolumeStandby
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.dataplane.volumes.table import VolumeTable

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)


class VolumeMoves:
    """Moves volumes that are served here.

    :param access: to the members.
    """

    def __init__(
        self,
        *,
        table: VolumeTable,
        access: OriginAccess,
        handover: VolumeHandover,
        standby: VolumeStandby,
    ) -> None:
        self._table = table
        self._access = access
        self._handover = handover
        self._standby = standby

    def is_due(self, local: LocalVolume, record: "VolumeRecord") -> bool:
        """Return whether a volume is to go on in another member.

        One with parts that never leave their host waits until it is opened anew, and one that a
        second host may open until its migration is over.

        :param record: names this host as owner, in the epoch that is served.
        """
        if record.assigned == record.member or record.unsealed is not None:
            return False
        from acstor.repository.volumes.durability import DurabilityClass

        is_bound = DurabilityClass.NONE in record.durability.classes or record.is_standby_allowed
        return local.state is LocalVolumeState.SERVING and not is_bound

    def move(self, volume: str, record: "VolumeRecord") -> None:
        """Move a volume; without its new member it stays where it is.

        :raises AcstorError: when that member does not answer, the hand-over fails, or the volume
            cannot be owned anew: then requests wait, and it is fetched like any that was released.
        """
        self._require(volume, record)
        self._handover.hand_over(volume)
        with self._table.changing(volume) as local:
            if local.state is LocalVolumeState.STANDBY and self._standby.try_to_acquire(local):
                LOG.info("volume %s goes on in member %s", volume, record.assigned or "home")

    def _require(self, volume: str, record: "VolumeRecord") -> None:
        """Refuse to go where nothing could be written.

        :raises UnavailableError: when the member does not answer.
        """
        from acstor.repository import layout
        from acstor.repository.volumes.log_object import LOG_OBJECT_SIZE_MAX

        epoch = record.epoch + 1
        log = self._access.log_of(volume, epoch, record.assigned)
        # By a call that is short: a listing may take minutes, in which nobody watches the record.
        with contextlib.suppress(exception.NotFoundError):
            log.get(layout.log_key(volume, epoch, record.next), LOG_OBJECT_SIZE_MAX)
