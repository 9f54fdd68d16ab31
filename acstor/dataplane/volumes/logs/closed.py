"""Logs of volumes that were closed here, kept because parts of them never travel.

Such a part is the volume's until another host owns it. These logs are no cache: none is removed
for want of room, as the disk of a stopped server is not.
"""

import logging

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.clean_proof import CleanProof
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.dataplane.volumes.lifecycle.forgetting import VolumeForgetting
from acstor.dataplane.volumes.ownership.owner import VolumeOwner
from acstor.dataplane.volumes.table import VolumeTable

LOG = logging.getLogger(__name__)


class ClosedLogs:
    """The logs of closed volumes, removed once they are of no use any more."""

    def __init__(
        self,
        *,
        table: VolumeTable,
        files: VolumeFiles,
        owner: VolumeOwner,
        forgetting: VolumeForgetting,
    ) -> None:
        self._table = table
        self._files = files
        self._owner = owner
        self._forgetting = forgetting

    def sweep(self) -> None:
        """Remove what is kept of closed volumes that were deleted, reverted or owned elsewhere.

        :raises AcstorError: when the origin does not answer; those before it are swept.
        """
        for clean in self._files.closed():
            with self._table.changing(clean.volume) as local:
                if local.state is not LocalVolumeState.CLOSED:
                    continue
                try:
                    self._remove_if_useless(clean)
                finally:
                    self._forgetting.discard(local)

    def _remove_if_useless(self, clean: CleanProof) -> None:
        # Looked at again: it may have been opened and closed since.
        if self._files.find_closed(clean.volume) != clean or clean.opened is None:
            return
        try:
            record = self._owner.record(clean.volume)
        except exception.NotFoundError:
            why = "it was deleted"
        else:
            if self._owner.is_closed_last(record, clean):
                return
            why = "it was owned elsewhere, or reverted"
        LOG.info("what was kept of volume %s is removed: %s", clean.volume, why)
        self._files.remove(clean.volume, why)
