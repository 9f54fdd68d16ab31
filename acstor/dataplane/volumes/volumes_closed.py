"""Logs of volumes that were closed here, kept because parts of them never travel.

Such a part is the volume's until another host owns it. These logs are no cache: none is removed
for want of room, as the disk of a stopped server is not.
"""

import logging

from acstor import exception
from acstor.control.protocol import LocalVolumeState
from acstor.dataplane.volumes.heads import VolumeHeads
from acstor.dataplane.volumes.kept_clean import KeptClean

LOG = logging.getLogger(__name__)


class VolumesClosed(VolumeHeads):
    """Removing the logs of closed volumes that are of no use any more."""

    def sweep_closed(self) -> None:
        """Remove what is kept of closed volumes that were deleted, reverted or owned elsewhere.

        :raises AcstorError: when the origin does not answer; those before it are swept.
        """
        for clean in self._files.closed():
            with self._changing(clean.volume) as local:
                if local.state is not LocalVolumeState.CLOSED:
                    continue
                try:
                    self._sweep(clean)
                finally:
                    self._discard(local)

    def _sweep(self, clean: KeptClean) -> None:
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
