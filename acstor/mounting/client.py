"""Mounting by acstor-mount, for a data plane that has no privilege."""

import logging
import os
import socket
import time
from collections.abc import Callable

from acstor import exception
from acstor.mounting import protocol
from acstor.mounting.protocol import Operation

LOG = logging.getLogger(__name__)

WAIT_MAX = 20.0
"""Seconds for which a mount waits for acstor-mount to listen: it may be restarting, and a data
plane that gives up is started again."""
_RETRY_INTERVAL = 0.2
_DESCRIPTORS_MAX = 4
"""Descriptors for which there is room in a response; one more than one is an error anyhow."""
_UNMOUNT_WAIT_MAX = 5.0
"""Seconds for which an unmount, the last step of a stop, waits for acstor-mount: as a restart
takes."""
_NOT_THERE = (FileNotFoundError, ConnectionRefusedError, BlockingIOError)
"""Errors of a connection to acstor-mount while it does not listen, or while too many wait for
it."""


class SocketMounter:
    """A :class:`acstor.mounting.mounter.Mounter` that has acstor-mount do it.

    :param path: of the socket.
    :param mount_point: that acstor-mount must be configured with, too.
    :param wait: seconds, see :data:`WAIT_MAX`.
    :param sleep: waits for some seconds.
    """

    def __init__(
        self,
        path: str,
        mount_point: str,
        wait: float = WAIT_MAX,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._path = path
        self._mount_point = mount_point
        self._wait = wait
        self._sleep = sleep

    def mount(self) -> int:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        (descriptor,) = self._ask(Operation.MOUNT, self._wait)
        return descriptor

    def set_read_ahead(self) -> None:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        self._ask(Operation.SET_READ_AHEAD)

    def unmount(self) -> None:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        self._ask(Operation.UNMOUNT, min(self._wait, _UNMOUNT_WAIT_MAX))

    def detach(self) -> None:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        self._ask(Operation.DETACH, self._wait)

    def _ask(self, operation: Operation, wait: float = 0.0) -> list[int]:
        """Have an operation carried out; return the descriptors of the response.

        :param wait: seconds for acstor-mount to listen.
        """
        traits = protocol.OPERATIONS[operation]
        try:
            with self._connect(operation, wait) as connection:
                connection.settimeout(traits.timeout)
                connection.send(protocol.encode_request(operation, self._mount_point))
                packet, descriptors, is_whole = _receive(connection)
        except TimeoutError as error:
            raise exception.DeadlineError(
                f"acstor-mount did not answer {operation} in {traits.timeout:g} s",
                hint="see the log of acstor-mount, then: systemctl restart acstor-mount",
            ) from error
        except PermissionError as error:
            raise exception.UnavailableError(
                f"{self._path} is not open to this user",
                hint="run the data plane as the user whom [dataplane] user names",
            ) from error
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            failure = _failure(packet, is_whole)
            if failure is None and len(descriptors) != int(traits.returns_descriptor):
                failure = exception.InternalError(
                    f"acstor-mount answered {operation} with {len(descriptors)} descriptors"
                )
            if failure is not None:
                raise failure
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return descriptors

    def _connect(self, operation: Operation, wait: float) -> socket.socket:
        until = time.monotonic() + wait
        is_said = False
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            try:
                connection.settimeout(protocol.OPERATIONS[operation].timeout)
                connection.connect(self._path)
            except _NOT_THERE as error:
                connection.close()
                if time.monotonic() >= until:
                    raise
                if not is_said:
                    LOG.warning("waiting for acstor-mount: %s: %s", self._path, error.strerror)
                is_said = True
                self._sleep(_RETRY_INTERVAL)
            except BaseException:
                connection.close()
                raise
            else:
                return connection

    def _unreachable(self, error: OSError) -> exception.UnavailableError:
        return exception.UnavailableError(
            f"acstor-mount at {self._path} cannot be reached: {error.strerror}",
            hint="this data plane is not root and cannot mount: systemctl start acstor-mount",
        )


def _receive(connection: socket.socket) -> tuple[bytes, list[int], bool]:
    """Return the packet, its descriptors, and whether all of both arrived."""
    room = socket.CMSG_SPACE(_DESCRIPTORS_MAX * 4)
    packet, ancillary, flags, _ = connection.recvmsg(
        protocol.RESPONSE_BYTES_MAX, room, socket.MSG_CMSG_CLOEXEC
    )
    descriptors: list[int] = []
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            usable = len(content) - len(content) % 4
            descriptors += memoryview(content[:usable]).cast("i")
    return packet, descriptors, not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)


def _failure(packet: bytes, is_whole: bool) -> exception.AcstorError | None:
    if not packet:
        return exception.UnavailableError("acstor-mount ended before it answered")
    if not is_whole:
        return exception.InternalError("acstor-mount answered more than the protocol allows")
    try:
        return protocol.decode_response(packet)
    except protocol.MalformedMessageError as error:
        return exception.UnsupportedError(
            f"acstor-mount answers by another protocol: {error}",
            hint="run both of one release: systemctl restart acstor-mount",
        )
