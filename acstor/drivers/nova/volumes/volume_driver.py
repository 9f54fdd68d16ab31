"""The libvirt volume driver: volumes of ACStor as disks of guests.

A guest's disk is an NBD export of the data plane of its host, over a unix socket. Which, stands in
the connection information after :meth:`LibvirtAcstorVolumeDriver.connect_volume`; everything else
is a function of that, because the source of a live migration writes the destination's disks.
"""

from typing import Any

import nova.conf
from nova import exception as nova_exception
from nova.virt.libvirt.volume import volume as libvirt_volume
from oslo_log import log as logging

from acstor import exception
from acstor.drivers.brick import options
from acstor.drivers.brick.volume_calls import ROLE_OWNER, VolumeCalls, record_name
from acstor.drivers.nova.volumes import disk_xml, online_extend

LOG = logging.getLogger(__name__)

CONF = nova.conf.CONF

LIBVIRT_RECONNECT = (9, 2, 0)
"""The first libvirt that hands ``<reconnect delay>`` of an NBD disk to QEMU."""

ConnectionInfo = dict[str, Any]


class LibvirtAcstorVolumeDriver(
    libvirt_volume.LibvirtBaseVolumeDriver  # type: ignore[misc] # Nova has no types
):
    """Attaches volumes of ``driver_volume_type`` ``acstor``; one per process, made by Nova."""

    def __init__(self, host: Any) -> None:
        super().__init__(host, is_block_dev=False)
        disk_xml.install()
        options.register_opts(CONF)
        self._options = CONF[options.GROUP]
        self._volumes = VolumeCalls(self._options.volume_socket)
        self._can_reconnect = bool(host.has_min_version(lv_ver=LIBVIRT_RECONNECT))
        if not self._can_reconnect:
            LOG.error(
                "libvirt is older than %s: guests with ACStor volumes see I/O errors when the data "
                "plane of this host restarts, and their volumes cannot be extended online",
                ".".join(map(str, LIBVIRT_RECONNECT)),
            )

    def connect_volume(self, connection_info: ConnectionInfo, instance: Any) -> None:
        """Open the volume on this host and write into the connection information where it is.

        Idempotent: attaching, booting, hard reboot and the destination of a live migration call
        it, also for a volume that is open.

        :raises VolumeAttachFailed: when it cannot be opened; says why and what to do.
        """
        data = connection_info["data"]
        volume_id = data.get("volume_id")
        try:
            opened = self._volumes.open(record_name(data), str(data.get("role") or ROLE_OWNER))
        except exception.AcstorError as error:
            raise nova_exception.VolumeAttachFailed(
                volume_id=volume_id, reason=f"{error}; {error.hint}"
            ) from error
        data["socket"] = opened.socket
        data["export"] = opened.export
        data["reconnect_delay"] = self._options.volume_reconnect_delay
        LOG.info("volume %s is open on this host as %s", volume_id, opened.role, instance=instance)

    def disconnect_volume(
        self, connection_info: ConnectionInfo, instance: Any, force: bool = False
    ) -> None:
        """Close the volume on this host; a volume that is not open is closed.

        :param force: also while a client is connected; go on where it cannot be closed.
        :raises VolumeDetachFailed: when it cannot be closed; says why and what to do.
        """
        data = connection_info["data"]
        volume_id = data.get("volume_id")
        try:
            self._volumes.close(record_name(data), force=force)
        except exception.AcstorError as error:
            if force:
                LOG.warning(
                    "volume %s is not closed: %s; %s",
                    volume_id,
                    error,
                    error.hint,
                    instance=instance,
                )
                return
            raise nova_exception.VolumeDetachFailed(
                volume_id=volume_id, reason=f"{error}; {error.hint}"
            ) from error
        LOG.info("volume %s is closed on this host", volume_id, instance=instance)

    def get_config(self, connection_info: ConnectionInfo, disk_info: dict[str, Any]) -> Any:
        """Return the disk's configuration, out of the connection information alone.

        The source of a live migration calls it with what the destination has connected, so
        nothing of this host is looked at.

        :raises InternalError: of Nova, when the volume was not connected.
        """
        conf = super().get_config(connection_info, disk_info)
        data = connection_info["data"]
        if not data.get("socket") or not data.get("export"):
            raise nova_exception.InternalError(
                f"volume {data.get('volume_id')} was not connected before its disk was configured"
            )
        conf.source_type = "network"
        conf.source_protocol = "nbd"
        conf.source_name = data["export"]
        setattr(conf, disk_xml.SOCKET, data["socket"])
        setattr(conf, disk_xml.RECONNECT_DELAY, data.get("reconnect_delay"))
        return conf

    def extend_volume(
        self, connection_info: ConnectionInfo, instance: Any, requested_size: int
    ) -> int:
        """Have the guest's disk see that its volume was extended; return the new size, bytes.

        Nova resizes the disk in QEMU afterwards, which works once QEMU's connection knows the new
        size. Cinder has told the data plane already.

        :raises NotImplementedError: Nova's "not supported": for an old libvirt, and for encrypted
            volumes, whose disks Nova cannot resize.
        :raises VolumeExtendFailed: when data plane or guest do not see the new size in time.
        """
        data = connection_info["data"]
        volume_id = data["volume_id"]
        refusal = None
        if not self._can_reconnect:
            refusal = "libvirt 9.2 or newer is needed on this host"
        elif data.get("encrypted"):
            refusal = "it is encrypted, and Nova cannot resize encrypted disks other than RBD's"
        if refusal is not None:
            LOG.error(
                "volume %s is extended, but its guest sees that after a stop and a start only: %s",
                volume_id,
                refusal,
                instance=instance,
            )
            raise NotImplementedError
        extension = online_extend.OnlineExtension(
            self._volumes, record_name(data), volume_id, self._options.volume_extend_timeout
        )
        try:
            extension.wait_for_size(requested_size)
            extension.reconnect(
                self.host, instance, is_shared=bool(connection_info.get("multiattach"))
            )
        except exception.AcstorError as error:
            raise nova_exception.VolumeExtendFailed(
                volume_id=volume_id, reason=f"{error}; {error.hint}"
            ) from error
        return requested_size
