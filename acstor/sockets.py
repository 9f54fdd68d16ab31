"""Receiving from a socket as many bytes as a protocol says that there are."""

import socket


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
