"""The holder's end of the supervision protocol: receives datagrams with descriptors."""

import contextlib
import os
import socket
import struct
from dataclasses import dataclass, field

from acstor.supervision import protocol

_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid: struct ucred of unix(7)
_ANCILLARY_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(
    4 * protocol.DESCRIPTORS_PER_MESSAGE_MAX
)


class HolderRunningError(RuntimeError):
    """Another holder listens at the socket already."""


@dataclass
class Notification:
    """One datagram; the receiver owns its descriptors."""

    assignments: dict[str, str]
    pid: int
    """Process that sent it, as the kernel says."""
    descriptors: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Close the descriptors that nobody took over."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()


class NotifySocket:
    """A bound datagram socket, mode 0600, that hears only its own user and root.

    :raises HolderRunningError: when somebody listens at ``path``.
    :raises OSError: when it cannot be bound.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        _remove_stale(self.path)
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        mask = os.umask(0o177)
        try:
            self._socket.bind(self.path)
        finally:
            os.umask(mask)

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    def receive(self) -> Notification | None:
        """Return the next acceptable notification, or None when there is none to read.

        Datagrams of other users, malformed ones and truncated ones are dropped.
        """
        while True:
            try:
                message, ancillary, flags, _ = self._socket.recvmsg(
                    protocol.MESSAGE_BYTES_MAX + 1, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return None
            notification = _parse(message, ancillary, flags)
            if notification is not None:
                return notification

    def close(self) -> None:
        """Close the socket and remove it from the file system."""
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def _remove_stale(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise HolderRunningError(f"another holder is running at {path}; stop it or choose --socket")


def _parse(
    message: bytes, ancillary: list[tuple[int, int, bytes]], flags: int
) -> Notification | None:
    pid, uid = 0, -1
    descriptors: list[int] = []
    for level, kind, content in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            usable = len(content) - len(content) % 4
            descriptors += struct.unpack(f"={usable // 4}i", content[:usable])
        elif kind == socket.SCM_CREDENTIALS and len(content) >= _CREDENTIALS.size:
            pid, uid, _ = _CREDENTIALS.unpack_from(content)
    notification = Notification({}, pid, descriptors)
    try:
        if uid not in {0, os.geteuid()} or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise protocol.MalformedMessageError("not from this user, or truncated")
        notification.assignments = protocol.decode_message(message)
    except protocol.MalformedMessageError:
        notification.close()
        return None
    return notification
