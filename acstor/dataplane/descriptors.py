"""The descriptors that outlive the process: which were passed, which the supervisor keeps."""

import logging
import os
import socket
from collections.abc import Mapping

from acstor.dataplane.settings import DataPlaneSettings
from acstor.dataplane.volumes.sockets import NBD_PREFIX
from acstor.supervision.supervisor import Supervisor

LOG = logging.getLogger(__name__)

FUSE = "fuse"
"""Name of the ``/dev/fuse`` descriptor."""
PEER_LISTENER = "peer-listener"
"""Name of the peer server's listening socket."""


class InheritedDescriptors:
    """Descriptors that the process before left; each is handed out once.

    :param passed: as :func:`acstor.supervision.supervisor.take_descriptors` returns it.
    """

    def __init__(self, passed: Mapping[str, int]) -> None:
        self._passed = dict(passed)
        for name in set(self._passed) - {FUSE, PEER_LISTENER}:
            if name.startswith(NBD_PREFIX):
                continue
            LOG.warning("closing a passed descriptor of unknown purpose: %s", name)
            os.close(self._passed.pop(name))

    def take_fuse(self) -> int | None:
        """Return the FUSE descriptor, now the caller's, or None."""
        return self._passed.pop(FUSE, None)

    def duplicate_listener(self, settings: DataPlaneSettings) -> int | None:
        """Return a duplicate of the listening socket, or None where it does not fit any more.

        A duplicate, because a start that fails closes what it was given.
        """
        descriptor = self._passed.get(PEER_LISTENER)
        if descriptor is None:
            return None
        if not _listens_as_configured(descriptor, settings):
            LOG.info("the peer address in the configuration has changed, listening anew")
            os.close(self._passed.pop(PEER_LISTENER))
            return None
        return os.dup(descriptor)

    def has_listener(self) -> bool:
        """Return whether a listening socket was passed that fits the configuration."""
        return PEER_LISTENER in self._passed

    def take_volumes(self) -> dict[str, int]:
        """Return the listening sockets of volumes by name, now the caller's."""
        names = [name for name in self._passed if name.startswith(NBD_PREFIX)]
        return {name: self._passed.pop(name) for name in names}

    def close(self) -> None:
        """Close what was not taken."""
        for descriptor in self._passed.values():
            os.close(descriptor)
        self._passed.clear()


def keep(supervisor: Supervisor, name: str, descriptor: int, *, is_inherited: bool) -> None:
    """See to it that the supervisor keeps ``descriptor`` and nothing else under ``name``."""
    if is_inherited:
        supervisor.adopt(name, descriptor)
    elif supervisor.is_configured:
        supervisor.remove(name)
        if not supervisor.store(name, descriptor):
            LOG.warning("the supervisor does not take the descriptor %s; trying again", name)


def _listens_as_configured(descriptor: int, settings: DataPlaneSettings) -> bool:
    try:
        # The descriptor itself stays open: the socket object closes its duplicate only.
        with socket.socket(fileno=os.dup(descriptor)) as listener:
            if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return False
            address, port = listener.getsockname()[:2]
    except (OSError, ValueError):
        return False
    return bool(
        address == settings["peer_listen_address"] and settings["peer_listen_port"] in {0, port}
    )
