"""Listening sockets of the volumes of a process, each known to the supervisor from its binding."""

import logging
import os
import socket
from collections.abc import Iterable, Mapping

from acstor.dataplane import descriptors
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.dataplane.volumes.sockets import VolumeSockets, descriptor_name
from acstor.supervision.supervisor import Supervisor

LOG = logging.getLogger(__name__)


class VolumeListeners:
    """The listening socket of each volume; one thread at a time per volume."""

    def __init__(self, sockets: VolumeSockets, supervisor: Supervisor) -> None:
        self._sockets = sockets
        self._supervisor = supervisor

    def attach(self, volume: str) -> None:
        """Begin the attachment of a volume, unless it is attached.

        :raises UnavailableError: when it cannot be kept.
        """
        self._sockets.attach(volume)

    def token(self, volume: str) -> str:
        """Return by which name clients ask for a volume.

        :raises NotFoundError: when it is not attached.
        """
        return self._sockets.token(volume)

    def bound(self, local: LocalVolume) -> socket.socket:
        """Return the listening socket of a volume, bound now where there is none.

        :raises AcstorError: when it cannot be given to its group, or its attachment not be kept.
        :raises OSError: when it cannot be bound.
        """
        if local.listener is None:
            local.listener = self._sockets.bind(local.volume)
            descriptors.keep(
                self._supervisor,
                descriptor_name(local.volume),
                local.listener.fileno(),
                is_inherited=False,
            )
        return local.listener

    def restore(self, local: LocalVolume, descriptor: int | None) -> None:
        """Listen for a volume as the process before did, or anew.

        :param descriptor: the socket that it left, now owned here.
        """
        local.listener = self._sockets.restore(local.volume, descriptor)
        if local.listener is not None:
            self._supervisor.adopt(descriptor_name(local.volume), local.listener.fileno())
        else:
            self.bound(local)

    def close_unknown(self, inherited: Mapping[str, int]) -> None:
        """Close sockets that the process before left of volumes that are not open."""
        for name, descriptor in inherited.items():
            LOG.warning("closing the socket of a volume that is not open: %s", name)
            os.close(descriptor)
            self._supervisor.remove(name)

    def detach_others(self) -> None:
        """End the attachments of openings that were killed before they had opened anything."""
        self._sockets.detach_others()

    def detach(self, local: LocalVolume) -> None:
        """Remove the socket of a volume, and end its attachment."""
        self._supervisor.remove(descriptor_name(local.volume))
        self._sockets.detach(local.volume)
        if local.listener is not None:
            local.listener.close()
            local.listener = None

    def remove(self, volumes: Iterable[LocalVolume]) -> None:
        """Remove sockets, as no process follows soon: clients need not wait for it."""
        for local in volumes:
            self._supervisor.remove(descriptor_name(local.volume))
            self._sockets.remove(local.volume)
