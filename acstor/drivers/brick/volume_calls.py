"""Opening and closing volumes of this host, as Nova and Cinder may: calls of the volume socket.

The data plane's admin socket is for root; the volume socket speaks the same protocol
(``doc/source/reference/protocols/admin.rst``), knows the four methods used here and no other, and
is open to one group.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tenacity

from acstor import exception
from acstor.control.client import AdminClient

LOG = logging.getLogger(__name__)

ROLE_OWNER = "owner"
OPEN_TIMEOUT = 120.0
"""Seconds for opening and closing: what the origin lacks is pushed, the log is replayed."""
ASK_TIMEOUT = 5.0
"""Seconds for a question about a volume that is open."""
HOST_TIMEOUT = 10.0
"""Seconds for the host's name: every attachment of every kind of volume waits for it. A data plane
that does not run refuses at once; one that is silent for so long is not busy, but stuck."""
CLOSE_WAIT = 15.0
"""Seconds for which closing is repeated while a client is still leaving."""

_HINT = (
    "check that acstor-dataplane runs on this host and that [acstor] volume_socket of this "
    "service is [volumes] control_socket of acstor.conf"
)
_HINT_GROUP = (
    "add this service's user to the group [volumes] control_group of acstor.conf, then restart "
    "the service"
)


def record_name(data: Mapping[str, Any]) -> str:
    """Return by which name the data plane knows the volume of a connection.

    It differs from Cinder's id, which is the serial number of the disk, after a migration by copy
    and for volumes that Cinder was told to manage.

    :param data: ``data`` of Cinder's connection information.
    :raises InvalidError: when it is not from ACStor's Cinder driver.
    """
    name = data.get("name_id") or data.get("volume_id")
    if not name:
        raise exception.InvalidError(
            "the connection information names no volume: it is not from ACStor's Cinder driver"
        )
    return str(name)


class VolumeInUseError(exception.InvalidError):
    """A volume is not closed because a client is connected to it."""

    default_hint = "detach it from the guest, or stop what reads or writes it; then try again"


@dataclass(frozen=True)
class OpenedVolume:
    """NBD export of a volume that this host serves.

    :param socket: path of the NBD socket.
    :param export: name of the NBD export: a secret, which nothing logs.
    :param size_bytes: of the volume.
    :param role: ``owner`` or ``standby``: what the host has become, whatever was asked for.
    """

    socket: str
    export: str = field(repr=False)
    size_bytes: int
    role: str


class VolumeCalls:
    """The volume socket of this host; a connection per call.

    Every method raises ``UnavailableError`` when the data plane does not answer in time.

    :param path: of the socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._client = AdminClient(path)

    def open(self, volume_id: str, role: str = ROLE_OWNER) -> OpenedVolume:
        """Open a volume here, if it is not, and return where it is served.

        :param role: at most what is asked for; a standby becomes owner where nobody owns it.
        :raises NotFoundError: when there is no such volume.
        :raises FencedError: when another host owns it, or Cinder has not let this one attach.
        """
        found = self._call("volume.open", OPEN_TIMEOUT, volume=volume_id, role=role)
        try:
            return OpenedVolume(
                socket=str(found["socket"]),
                export=str(found["export"]),
                size_bytes=int(found["size_bytes"]),
                role=str(found["role"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise exception.InternalError(
                f"the data plane opened volume {volume_id} and does not say where",
                hint="nova, cinder and the data plane of a host need the same release of ACStor",
            ) from error

    def close(self, volume_id: str, *, force: bool = False, wait: float = CLOSE_WAIT) -> None:
        """Close a volume here: all of it is on the origin and nobody owns it any more.

        A volume that is not open or does not exist is closed. A client that is about to leave is
        waited for.

        :param force: also while a client is connected.
        :param wait: seconds for which closing is repeated while a client is connected.
        :raises VolumeInUseError: when a client stays.
        :raises AcstorError: when the origin does not take the last writes.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((VolumeInUseError, exception.OverloadedError)),
            stop=tenacity.stop_after_delay(0.0 if force else wait),
            wait=tenacity.wait_random_exponential(0.1, 2.0),
            reraise=True,
        )
        try:
            retrying(self._close, volume_id, force)
        except exception.NotFoundError:
            LOG.info("volume %s was not open on this host", volume_id)

    def status(self, volume_id: str) -> dict[str, Any]:
        """Return what the data plane says of a volume that is open here.

        :raises NotFoundError: when it is not.
        """
        found = self._call("volume.status", ASK_TIMEOUT, volume=volume_id)
        if not isinstance(found, dict):
            raise exception.InternalError(f"status of volume {volume_id}: {found!r}")
        return found

    def host(self) -> str:
        """Return how ACStor calls this host."""
        return str(self._call("volume.host", HOST_TIMEOUT)["host"])

    def _close(self, volume_id: str, force: bool) -> None:
        try:
            self._call("volume.close", OPEN_TIMEOUT, volume=volume_id, force=force)
        except exception.ConfigurationError:
            raise
        except exception.InvalidError as error:
            raise VolumeInUseError(error.message) from error

    def _call(self, method: str, timeout: float, **params: object) -> Any:
        try:
            return self._client.call(method, call_timeout=timeout, **params)
        except exception.UnavailableError as error:
            raise type(error)(error.message, hint=_HINT) from error
        except exception.InvalidError as error:
            if isinstance(error.__cause__, PermissionError):
                raise exception.ConfigurationError(
                    f"the volume socket {self._path} is not open to this user", hint=_HINT_GROUP
                ) from error
            raise
