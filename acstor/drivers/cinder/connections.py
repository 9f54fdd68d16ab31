"""Attaching and detaching."""

import logging
from collections.abc import Sequence
from typing import Any

from cinder import exception as cinder_exception
from cinder import objects

from acstor import exception
from acstor.drivers.cinder import attachment_rules, connection_data
from acstor.drivers.cinder.attachment_rules import Access, Attached, Present
from acstor.drivers.cinder.connection_data import CONNECTOR_HOST, PROTOCOL
from acstor.drivers.cinder.failures import reported
from acstor.drivers.cinder.feature import Feature, disk_of
from acstor.drivers.cinder.locks import one_at_a_time

LOG = logging.getLogger(__name__)

_SETTLED_MIGRATIONS = frozenset({None, "success", "error"})


class Connections(Feature):
    """Access lists of volumes: hosts that may open one, per its record; data planes enforce it."""

    def validate_connector(self, connector: Any) -> None:
        """Refuse hosts without data plane.

        :raises InvalidConnectorException: naming what is missing.
        """
        if not connector.get(CONNECTOR_HOST):
            LOG.error(
                "host %s has no data plane that its connector reaches: check acstor-dataplane "
                "there, [volumes] control_group of acstor.conf, and that 'driver = acstor' is in "
                "[oslo_messaging_notifications] of nova.conf (cinder.conf for cinder-backup)",
                connector.get("host"),
            )
            raise cinder_exception.InvalidConnectorException(missing=CONNECTOR_HOST)

    def update_provider_info(self, volumes: Any, snapshots: Any) -> tuple[None, None]:
        """At start, forget hosts that a process which was killed let open an unused volume.

        :returns: what Cinder should change in its records: nothing.
        """
        for volume in volumes:
            try:
                self._forget_lost_hosts(volume)
            except exception.AcstorError as error:  # one must not keep the service from starting
                LOG.warning("volume %s is not looked at: %s", volume.id, error)
        return None, None

    def ensure_export(self, context: Any, volume: Any) -> None:
        """Do nothing: what hosts have open stays open whatever becomes of cinder-volume."""

    def create_export(self, context: Any, volume: Any, connector: Any) -> None:
        """Do nothing: hosts open volumes by themselves."""

    def remove_export(self, context: Any, volume: Any) -> None:
        """Do nothing: hosts close volumes by themselves."""

    @reported("attaching volume {volume.id}")
    @one_at_a_time("{volume.name_id}")
    def initialize_connection(
        self, volume: Any, connector: Any, initiator_data: Any = None
    ) -> dict[str, Any]:
        """Let a host open a volume and tell what it needs to know for that.

        :raises VolumeBackendAPIException: when another host has it, see
            :mod:`acstor.drivers.cinder.attachment_rules`.
        """
        disk, host = disk_of(volume), _host_of(connector)
        volumes = self.back_end.volumes
        record = volumes.get(disk).record
        present = Present(record.hosts, record.owner, record.is_standby_allowed)
        access = attachment_rules.access_of(
            str(volume.id), host, present, self._attached(volume), bool(volume.multiattach)
        )
        let = volumes.begin_standby if access is Access.STANDBY else volumes.allow_host
        scope = self.dedup_scope_of(volume)
        if record.dedup_scope != scope:
            # Volumes that were transferred, taken over, or made before it was configured.
            volumes.set_dedup_scope(disk, scope)
        record = let(disk, host).after
        return {
            "driver_volume_type": PROTOCOL,
            "data": connection_data.of_disk(
                record,
                disk,
                str(volume.id),
                access,
                volume.encryption_key_id is not None,
            ),
        }

    @reported("detaching volume {volume.id}")
    @one_at_a_time("{volume.name_id}")
    def terminate_connection(
        self, volume: Any, connector: Any, force: bool = False, **kwargs: Any
    ) -> bool:
        """Let a host open a volume no more.

        :param connector: None: no host at all, when a detachment is forced.
        :returns: whether another attachment on the same host goes on using it.
        """
        disk, volumes = disk_of(volume), self.back_end.volumes
        found = volumes.find(disk)
        if found is None:
            LOG.warning("volume %s is not in the repository: nothing to detach", disk)
            return False
        if connector is None:
            for host in found.record.hosts:
                volumes.disallow_host(disk, host)
            return False
        host = _host_of(connector)
        if attachment_rules.is_shared(host, self._attached(volume)):
            return True
        volumes.disallow_host(disk, host)  # and with it the permission of a standby
        return False

    def _forget_lost_hosts(self, volume: Any) -> None:
        if volume.status != "available" or volume.migration_status not in _SETTLED_MIGRATIONS:
            return
        disk = disk_of(volume)
        found = self.back_end.volumes.find(disk)
        if found is None or not found.record.hosts or self._attached(volume):
            return
        for host in found.record.hosts:
            LOG.warning("volume %s is not attached: %s may not open it any more", disk, host)
            self.back_end.volumes.disallow_host(disk, host)

    def _attached(self, volume: Any) -> Sequence[Attached]:
        """Return the attachments of a volume, as they are in Cinder's database now."""
        found = objects.VolumeAttachmentList.get_all_by_volume_id(volume.obj_context, volume.id)
        return [
            Attached(
                id=str(attachment.id),
                instance=attachment.instance_uuid,
                host=(attachment.connector or {}).get(CONNECTOR_HOST),
            )
            for attachment in found
            if attachment.attach_status not in {"detached", "deleted"}
        ]


def _host_of(connector: Any) -> str:
    host = connector.get(CONNECTOR_HOST)
    if not host:
        raise exception.InvalidError(
            f"the connector of host {connector.get('host')} names no data plane",
            hint="check acstor-dataplane and [volumes] control_group of acstor.conf there",
        )
    return str(host)
