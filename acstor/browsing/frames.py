"""Frames between this program and a process that reads file systems."""

import socket
import struct
import time

from acstor import exception

PROTOCOL_VERSION = 1
"""Version of the protocol: the same at both ends, which are of one release."""
FRAME_MAX = 1 << 20
"""Bytes of a frame that are believed."""

HELLO = b"H"
"""From the process, first: version of the protocol, size of the disk; JSON."""
QUESTION = b"Q"
"""To the process: what is asked for; JSON."""
WANTED = b"R"
"""From the process: bytes of the disk are wanted; see :func:`wanted`."""
DATA = b"D"
"""To the process: those bytes."""
ITEM = b"J"
"""From the process: a part of the answer; JSON."""
BYTES = b"B"
"""From the process: a part of the answer."""
END = b"."
"""From the process: the answer is whole."""
ERROR = b"E"
"""From the process: the answer ends with an error; JSON."""

_HEAD = struct.Struct("<cI")
_WANTED = struct.Struct("<QI")


class FrameSocket:
    """A socket, as frames. What comes is not believed: the other end reads what guests wrote.

    :param seconds: until all has to be over.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        """Keep the socket, closed along with this."""
        self._socket = connection
        self._until = time.monotonic() + seconds

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, kind: bytes, content: bytes) -> None:
        """Send a frame.

        :raises DeadlineError: when the other end does not take it.
        :raises OSError: when the other end is gone.
        """
        self._limit()
        try:
            self._socket.sendall(_HEAD.pack(kind, len(content)))
            self._socket.sendall(content)
        except TimeoutError as error:
            raise _late() from error

    def receive(self) -> tuple[bytes, bytes] | None:
        """Return the next frame; None: the other end is gone.

        :raises DeadlineError: when none comes.
        :raises ValueError: when it is larger than any is.
        """
        head = self._exactly(_HEAD.size)
        if head is None:
            return None
        kind, size = _HEAD.unpack(head)
        if size > FRAME_MAX:
            raise ValueError(f"a frame of {size} bytes")
        content = self._exactly(size)
        return None if content is None else (kind, content)

    def _exactly(self, size: int) -> bytes | None:
        content = bytearray(size)
        done = 0
        with memoryview(content) as view:
            while done < size:
                self._limit()
                try:
                    count = self._socket.recv_into(view[done:])
                except TimeoutError as error:
                    raise _late() from error
                except ConnectionError:
                    return None
                if count == 0:
                    return None
                done += count
        return bytes(content)

    def _limit(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise _late()
        self._socket.settimeout(left)


def wanted(content: bytes) -> tuple[int, int]:
    """Return offset and length, bytes, of what is wanted of the disk.

    :raises ValueError: when the frame is none of that, or wants more than a frame has.
    """
    if len(content) != _WANTED.size:
        raise ValueError(f"{len(content)} bytes are no place on a disk")
    offset, size = _WANTED.unpack(content)
    if size > FRAME_MAX:
        raise ValueError(f"{size} bytes of the disk at once")
    return offset, size


def _late() -> exception.DeadlineError:
    return exception.DeadlineError(
        "the files of the disk took too long to read",
        hint="ask for less at once; look whether the origin answers",
    )
