"""Sockets: bytes as many as a protocol says, connections one after the other, who connected."""

import errno
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

LOG = logging.getLogger(__name__)

_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid: struct ucred of unix(7)
_QUEUE_PAUSE = 0.02
"""Seconds between two attempts at a listener whose queue is full."""
_ACCEPT_PAUSE = 0.2
"""Seconds after a connection that could not be accepted: the host is out of something."""


def connect_within(connection: socket.socket, path: str, seconds: float) -> None:
    """Connect a unix socket, which then has that timeout, waiting for room in the listener's queue.

    A socket with a timeout is one that does not block, and to that Linux answers EAGAIN at once
    where the queue is full: as if nobody were there, though a busy listener only comes late.

    :param seconds: above 0.
    :raises TimeoutError: when there was no room within that time.
    :raises OSError: as of connect(2).
    """
    until = time.monotonic() + seconds
    connection.settimeout(seconds)
    while True:
        try:
            connection.connect(path)
        except BlockingIOError:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path) from None
            # Not left to the kernel by a socket that blocks: with eventlet's that has no end.
            time.sleep(min(_QUEUE_PAUSE, left))
        else:
            return


def accepted(listener: socket.socket, stopping: threading.Event) -> Iterator[socket.socket]:
    """Yield connections until somebody stops it: sets the event, then shuts the listener down.

    One that cannot be accepted, for want of memory or descriptors, is not the last.
    """
    while not stopping.is_set():
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if not stopping.is_set():
                LOG.error("a connection could not be accepted: %s", error)
                stopping.wait(_ACCEPT_PAUSE)
            continue
        yield connection


def user_of(connection: socket.socket) -> int:
    """Return the number of the user at the other end of a unix socket."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(found)
    return int(uid)


def receive(connection: socket.socket, size: int) -> bytes:
    """Return the next ``size`` bytes; errors as in :func:`receive_into`."""
    buffer = bytearray(size)
    receive_into(connection, memoryview(buffer))
    return bytes(buffer)


def receive_into(connection: socket.socket, view: memoryview) -> None:
    """Fill ``view`` with the next bytes.

    :raises EOFError: when the other side closes the connection before.
    :raises OSError: when the connection breaks, or nothing comes within the socket's timeout.
    """
    done = 0
    while done < len(view):
        # Where the socket has a timeout, this returns earlier.
        count = connection.recv_into(view[done:], 0, socket.MSG_WAITALL)
        if count == 0:
            raise EOFError("the connection was closed")
        done += count
