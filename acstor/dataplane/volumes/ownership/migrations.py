"""Live migrations in the records of volumes: hosts that may be a standby, and that ask for one."""

from typing import TYPE_CHECKING

from acstor.dataplane.volumes.ownership.doorbells import HostDoorbells
from acstor.dataplane.volumes.ownership.origin_access import OriginAccess

if TYPE_CHECKING:
    from acstor.repository.volumes.record import VolumeRecord

_WANTED_BY = "wanted_by"
"""Entry of a record's metadata: the host whose guest waits for the volume in a live migration."""


class MigrationRequests:
    """The part of a host in the live migrations of its volumes.

    :param host: its name in the records.
    :param doorbells: ring at the owners of volumes that this host asks for.
    """

    def __init__(self, host: str, access: OriginAccess, doorbells: HostDoorbells) -> None:
        self._host = host
        self._access = access
        self._doorbells = doorbells

    def may_be_standby(self, record: "VolumeRecord") -> bool:
        """Return whether this host is the destination of a migration that is under way."""
        return record.is_standby_allowed and self._host in record.hosts

    def may_take(self, record: "VolumeRecord", *, is_patient: bool) -> bool:
        """Return whether a standby may try to become the owner.

        :param is_patient: whether it waits for the other host, where that asked first.
        """
        if record.owner is None:
            return not is_patient or self.requester(record) is None
        return record.owner == self._host or record.owner not in record.hosts

    def ask_for(self, volume: str, record: "VolumeRecord") -> None:
        """Ask the owner to hand a volume over, unless somebody else waits for that already.

        :param record: as it was a moment ago.
        """
        # What the owner itself asked for is fulfilled.
        if record.owner is not None and record.metadata.get(_WANTED_BY) in (None, record.owner):
            self._access.records().describe(volume, metadata={_WANTED_BY: self._host})
            self._doorbells.ring(record)

    def requester(self, record: "VolumeRecord") -> str | None:
        """Return the other host that asks for a volume, if it may."""
        host = record.metadata.get(_WANTED_BY)
        if host in (None, self._host) or host not in record.hosts:
            return None
        return host if record.is_standby_allowed else None
