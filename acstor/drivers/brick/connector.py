"""The os-brick connector of volumes.

In Cinder's processes it opens the volume on this host and hands it over as a file object, as
os-brick does for RBD. nova-compute uses it for one thing: its properties tell Cinder how ACStor
calls this host; guests' disks are opened by the libvirt volume driver.
"""

import logging
import os
from typing import Any

from os_brick import exception as brick_exception
from os_brick.initiator.connectors import base
from oslo_config import cfg

from acstor import exception
from acstor.drivers.brick import options
from acstor.drivers.brick.volume_calls import (
    ROLE_OWNER,
    VolumeCalls,
    VolumeInUseError,
    record_name,
)
from acstor.drivers.brick.volume_file import VolumeFile

LOG = logging.getLogger(__name__)

HOST_PROPERTY = "acstor_host"
"""Connector property: the name of this host's data plane."""
_CHECKED_BYTES = 4096
_CLOSE_WAIT = 2.0
"""Seconds in which the data plane has seen that this process disconnected."""

Properties = dict[str, Any]


def volume_calls() -> VolumeCalls:
    """Return the volume socket that this service is configured for."""
    conf = cfg.CONF
    options.register_opts(conf)
    return VolumeCalls(conf[options.GROUP].volume_socket)


class AcstorConnector(base.BaseLinuxConnector):  # type: ignore[misc] # os-brick has no types
    """Attaches volumes to this host for a process of this host."""

    @staticmethod
    def get_connector_properties(root_helper: str, *args: Any, **kwargs: Any) -> Properties:
        """Return the name of this host's data plane; nothing where there is none.

        Every attachment of every kind of volume asks, so this never fails and never waits long.
        """
        try:
            return {HOST_PROPERTY: volume_calls().host()}
        except Exception as error:
            LOG.debug("no ACStor volumes on this host: %s", error)
            return {}

    def connect_volume(self, connection_properties: Properties) -> Properties:
        """Open the volume here and return ``{"path": <file object>}``.

        :raises BrickException: when it cannot be opened; says why and what to do.
        """
        name = _name(connection_properties)
        try:
            opened = volume_calls().open(name, str(connection_properties.get("role") or ROLE_OWNER))
            path = VolumeFile(
                opened.socket,
                opened.export,
                is_read_only=connection_properties.get("access_mode") == "ro",
            )
        except exception.AcstorError as error:
            raise brick_exception.BrickException(
                f"volume {name} cannot be opened on this host: {error}; {error.hint}"
            ) from error
        except OSError as error:
            raise brick_exception.BrickException(
                f"the NBD export of volume {name} cannot be reached: {error}; check that this "
                "service's user is in the group [volumes] socket_group of acstor.conf"
            ) from error
        return {"path": path}

    def disconnect_volume(
        self,
        connection_properties: Properties,
        device_info: Properties | None,
        force: bool = False,
        ignore_errors: bool = False,
    ) -> None:
        """Close the file, then the volume; others of this host that use it keep it open.

        :param force: go on after an error, and close it under other clients.
        :param ignore_errors: with ``force``: raise nothing at the end either.
        :raises BrickException: when the last writes could not be made durable or pushed.
        """
        name = _name(connection_properties)
        failed: list[Exception] = []
        path = (device_info or {}).get("path")
        if isinstance(path, VolumeFile):
            try:
                path.close()
            except OSError as error:
                failed.append(error)
        if not failed or force:
            try:
                volume_calls().close(name, force=force, wait=_CLOSE_WAIT)
            except VolumeInUseError as error:
                LOG.info("volume %s stays open, others of this host use it: %s", name, error)
            except exception.AcstorError as error:
                failed.append(error)
        if not failed:
            return
        LOG.warning("closing volume %s: %s", name, "; ".join(map(str, failed)))
        if not (force and ignore_errors):
            raise brick_exception.BrickException(
                f"volume {name} cannot be closed on this host: {failed[0]}"
            ) from failed[0]

    def extend_volume(self, connection_properties: Properties) -> int:
        """Return the size of the volume as the data plane serves it now, bytes."""
        name = _name(connection_properties)
        try:
            return int(volume_calls().status(name)["size_bytes"])
        except exception.AcstorError as error:
            raise brick_exception.BrickException(
                f"size of volume {name}: {error}; {error.hint}"
            ) from error

    def check_valid_device(self, path: object, run_as_root: bool = True) -> bool:
        """Return whether the volume behind ``path`` can be read; the position stays."""
        if not isinstance(path, VolumeFile):
            return False
        try:
            position = path.tell()
            path.seek(0)
            try:
                path.read(_CHECKED_BYTES)
            finally:
                path.seek(position, os.SEEK_SET)
        except (OSError, ValueError) as error:
            LOG.error("%s cannot be read: %s", path, error)
            return False
        return True

    def get_volume_paths(self, connection_properties: Properties) -> list[str]:
        """Return nothing: a volume is no file of this host."""
        return []

    def get_search_path(self) -> None:
        """Return nothing: volumes are in no directory."""

    def get_all_available_volumes(
        self, connection_properties: Properties | None = None
    ) -> list[str]:
        """Return nothing: volumes are in no directory."""
        return []


def _name(connection_properties: Properties) -> str:
    try:
        return record_name(connection_properties)
    except exception.InvalidError as error:
        raise brick_exception.BrickException(str(error)) from error
