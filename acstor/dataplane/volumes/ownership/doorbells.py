"""Doorbells as a host rings and hears them; see :mod:`acstor.repository.volumes.doorbells`."""

import logging
from typing import TYPE_CHECKING

from acstor import exception
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess
from acstor.repository.volumes import doorbells

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

LOG = logging.getLogger(__name__)


class HostDoorbells:
    """The doorbell of this host, and those of the hosts whose volumes it asks for.

    :param host: name of this host in the records.
    """

    def __init__(self, host: str, access: OriginAccess) -> None:
        self._host = host
        self._access = access

    def ring(self, record: "VolumeRecord") -> None:
        """Have the owner of a volume look at its record now."""
        if record.owner in (None, self._host):
            return
        try:
            doorbells.ring(self._access.origin(), record.owner)
        except exception.AcstorError as error:
            # It looks by itself, later.
            LOG.info("the doorbell of host %s was not rung: %s", record.owner, error)

    def heard(self) -> str | None:
        """Return what changes whenever somebody waits for a volume of this host.

        :raises AcstorError: when the origin does not answer.
        """
        return doorbells.heard(self._access.origin(), self._host)
