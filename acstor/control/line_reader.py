"""Reading lines of bounded length within bounded time from a socket."""

import socket
import time

_RECEIVE_BYTES = 64 << 10


class LineTooLongError(Exception):
    """A line is longer than allowed."""


class LineReader:
    """Lines of one connection.

    :param connection: a stream socket; its timeout is changed by :meth:`read_line`.
    :param line_bytes_max: longest line with its newline, bytes.
    """

    def __init__(self, connection: socket.socket, line_bytes_max: int) -> None:
        self._connection = connection
        self._line_bytes_max = line_bytes_max
        self._received = bytearray()

    def read_line(self, idle_timeout: float, line_timeout: float) -> bytes:
        """Return the next line with its newline, or ``b""`` when the other side has ended.

        :param idle_timeout: seconds until the line's first byte.
        :param line_timeout: seconds from its first byte to its last.
        :raises TimeoutError: when either is over.
        :raises LineTooLongError: when more bytes than allowed come without a newline.
        """
        deadline = time.monotonic() + (line_timeout if self._received else idle_timeout)
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched >= self._line_bytes_max:
                raise LineTooLongError
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._connection.settimeout(remaining)
            chunk = self._connection.recv(_RECEIVE_BYTES)
            if not chunk:
                return b""
            if not self._received:
                deadline = time.monotonic() + line_timeout
            self._received += chunk
        if end >= self._line_bytes_max:
            raise LineTooLongError
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        return line
