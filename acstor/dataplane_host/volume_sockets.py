"""The listening NBD sockets: bound here, kept by the supervisor between processes."""

import contextlib
import os
import socket
import stat

from acstor import exception

NBD_PREFIX = "nbd-"
"""Descriptor names are this and the volume's id without dashes."""
LISTEN_BACKLOG = 64
"""Clients that wait while no process runs; QEMU has one connection per disk, or a few."""
_MODE = 0o660


def descriptor_name(volume: str) -> str:
    """Return the name under which the supervisor keeps a volume's listening socket."""
    return NBD_PREFIX + volume.replace("-", "")


class VolumeSockets:
    """The sockets ``<directory>/<volume>.sock``.

    :param directory: made when missing; only the group may pass through it.
    :param group: may connect, by its number; None: the data plane's own group.
    """

    def __init__(self, directory: str, group: int | None) -> None:
        self._directory = directory
        self._group = group

    def path(self, volume: str) -> str:
        """Return the path of a volume's socket."""
        return os.path.join(self._directory, f"{volume}.sock")

    def bind(self, volume: str) -> socket.socket:
        """Return a new listening socket in the place of any other at the path.

        :raises ConfigurationError: when it may not be given to the group.
        :raises OSError: when the socket cannot be bound.
        """
        path = self.path(volume)
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

    def adopt(self, volume: str, descriptor: int) -> socket.socket | None:
        """Return an inherited socket if clients still reach it at the path, else close it."""
        listener: socket.socket | None = None
        try:
            listener = socket.socket(fileno=descriptor)
            if self._is_at_path(listener, volume):
                return listener
        except OSError:
            pass
        if listener is not None:
            listener.close()
        else:
            os.close(descriptor)
        return None

    def remove(self, volume: str) -> None:
        """Remove a volume's socket from the directory."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(volume))

    def _is_at_path(self, listener: socket.socket, volume: str) -> bool:
        # Only one process of this host binds there (it holds the store's lock), so what is at the
        # path is what was bound last, which is what the supervisor keeps.
        path = self.path(volume)
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

    def _give_to_group(self, path: str, group: int) -> None:
        try:
            os.chown(path, -1, group)
        except PermissionError as error:
            raise exception.ConfigurationError(
                f"the data plane may not give {path} to [volumes] socket_group",
                hint="run it as root with CAP_CHOWN, or as a member of the group",
            ) from error
