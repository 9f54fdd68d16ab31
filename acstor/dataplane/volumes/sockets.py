"""The listening NBD sockets: bound here, kept by the supervisor between processes."""

import contextlib
import logging
import os
import socket
import stat

from acstor import exception
from acstor.dataplane.volumes.attachments import VolumeAttachment, VolumeAttachments

LOG = logging.getLogger(__name__)

NBD_PREFIX = "nbd-"
"""Descriptor names are this and the volume's id without dashes."""
LISTEN_BACKLOG = 64
"""Clients that wait while no process runs; QEMU has one connection per disk, or a few."""
_MODE = 0o660
_SUFFIX = ".sock"


def descriptor_name(volume: str) -> str:
    """Return the name under which the supervisor keeps a volume's listening socket."""
    return NBD_PREFIX + volume.replace("-", "")


class VolumeSockets:
    """The sockets of attached volumes, ``<directory>/<random name>.sock``.

    The directory cannot be listed by those who pass through it: a guest's QEMU finds the sockets
    that it was told of, though all are open to one group.

    :param directory: made when missing; only the group may pass through it.
    :param group: may connect, by its number; None: the data plane's own group.
    :param attachments: of volumes to this host.
    """

    def __init__(self, directory: str, group: int | None, attachments: VolumeAttachments) -> None:
        self._directory = directory
        self._group = group
        self._attachments = attachments

    def attach(self, volume: str) -> None:
        """Begin the attachment of a volume, unless it is attached.

        :raises UnavailableError: when it cannot be kept.
        """
        self._attachments.begin(volume)

    def path(self, volume: str) -> str | None:
        """Return the path of the socket of a volume; None where it is not attached."""
        found = self._attachments.find(volume)
        return None if found is None else self._path(found)

    def token(self, volume: str) -> str:
        """Return by which name clients ask for a volume.

        :raises NotFoundError: when it is not attached.
        """
        found = self._attachments.find(volume)
        if found is None:
            raise exception.NotFoundError(f"volume {volume} is not attached to this host")
        return found.token

    def bind(self, volume: str) -> socket.socket:
        """Return a new listening socket of a volume, in the place of any other at the path.

        :raises ConfigurationError: when it may not be given to the group.
        :raises UnavailableError: when its attachment cannot be kept.
        :raises OSError: when the socket cannot be bound.
        """
        path = self._path(self._attachments.begin(volume))
        self._make_directory()
        self.remove(volume)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            # The mode with which it is bound (Linux); clients are admitted once all is right.
            os.fchmod(listener.fileno(), 0)
            listener.bind(path)
            self._restrict(path)
            listener.listen(LISTEN_BACKLOG)
        except BaseException:
            listener.close()
            self.remove(volume)
            raise
        return listener

    def restore(self, volume: str, descriptor: int | None) -> socket.socket | None:
        """Go on with the attachment of the process before.

        :param descriptor: the listening socket that it left, now owned here.
        :returns: that socket if clients still reach it at its path; else it is closed.
        """
        listener: socket.socket | None = None
        if descriptor is not None:
            try:
                listener = socket.socket(fileno=descriptor)
            except OSError:
                os.close(descriptor)
        attachment = self._attachments.restore(volume, self._name_of(listener))
        try:
            if listener is not None and self._is_at_path(listener, self._path(attachment)):
                self._admit_group(self._path(attachment))
                return listener
        except OSError:
            pass
        if listener is not None:
            listener.close()
        return None

    def remove(self, volume: str) -> None:
        """Remove a volume's socket from the directory; its attachment stays."""
        path = self.path(volume)
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def detach(self, volume: str) -> None:
        """Remove a volume's socket from the directory, and end its attachment."""
        self.remove(volume)
        self._attachments.end(volume)

    def detach_others(self) -> None:
        """End the attachments of openings that were killed before they had opened anything."""
        for attachment in self._attachments.others():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(attachment))
            self._attachments.end(attachment.volume)

    def _path(self, attachment: VolumeAttachment) -> str:
        return os.path.join(self._directory, attachment.socket + _SUFFIX)

    def _name_of(self, listener: socket.socket | None) -> str | None:
        """Return the name of a socket in the directory, without its suffix."""
        try:
            path = None if listener is None else str(listener.getsockname())
        except OSError:
            return None
        if path is None or os.path.dirname(path) != self._directory:
            return None
        return os.path.basename(path).removesuffix(_SUFFIX)

    @staticmethod
    def _is_at_path(listener: socket.socket, path: str) -> bool:
        # Only one process of this host binds there (it holds the store's lock), so what is at the
        # path is what was bound last, which is what the supervisor keeps.
        return bool(
            listener.family == socket.AF_UNIX
            and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            and listener.getsockname() == path
            and stat.S_ISSOCK(os.lstat(path).st_mode)
        )

    def _make_directory(self) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        if self._group is not None:
            self._give_to_group(self._directory, self._group)
        # Passed through, not listed.
        os.chmod(self._directory, 0o710)  # noqa: S103

    def _restrict(self, path: str) -> None:
        if self._group is not None:
            self._give_to_group(path, self._group)
        os.chmod(path, _MODE)

    def _admit_group(self, path: str) -> None:
        """Let the group in where somebody gave a socket that is kept to another."""
        if self._group is None or os.stat(path).st_gid == self._group:
            return
        LOG.warning("%s was given to another group than that of [volumes]", path)
        try:
            self._make_directory()
            self._restrict(path)
        except (exception.ConfigurationError, PermissionError) as error:
            LOG.error("clients may not reach it: %s", error)

    def _give_to_group(self, path: str, group: int) -> None:
        try:
            os.chown(path, -1, group)
        except PermissionError as error:
            raise exception.ConfigurationError(
                f"the data plane may not give {path} to [volumes] socket_group",
                hint="run it as root with CAP_CHOWN, or as a member of the group",
            ) from error
