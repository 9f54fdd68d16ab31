"""A minimal NBD client: fixed newstyle handshake, pipelined reads over one unix socket.

Source: the NBD protocol document (github.com/NetworkBlockDevice/nbd, doc/proto.md), sections
"Fixed newstyle negotiation" and "Transmission phase". Only NBD_OPT_EXPORT_NAME and NBD_CMD_READ
with simple replies are spoken: qemu-nbd on this host is the only server.
"""

import socket
import struct

from acstor import exception, sockets

REQUEST_SIZE_MAX = 1 << 20
"""Bytes of one read request; several are in flight, so that QEMU decompresses on all cores."""

_REQUEST = struct.Struct(">IHHQQI")
_INIT_MAGIC = 0x4E42444D41474943
_OPTION_MAGIC = 0x49484156454F5054
_REQUEST_MAGIC = 0x25609513
_REPLY_MAGIC = 0x67446698
_FLAG_FIXED_NEWSTYLE = 1
_FLAG_NO_ZEROES = 2
_OPTION_EXPORT_NAME = 1
_COMMAND_READ = 0
_COMMAND_DISCONNECT = 2


class NbdClient:
    """One connection to the default export of a server.

    :param timeout_seconds: longest wait for any part of an answer.
    :raises UnavailableError: when the server cannot be reached or does not speak the protocol.
    """

    def __init__(self, socket_path: str, timeout_seconds: float) -> None:
        """Connect and negotiate."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_seconds)
        try:
            self._socket.connect(socket_path)
            self.size_bytes = self._negotiate()
        except (OSError, EOFError) as error:
            self._socket.close()
            raise exception.UnavailableError(f"qemu-nbd does not answer: {error}") from error
        except BaseException:
            self._socket.close()
            raise

    def _negotiate(self) -> int:
        init, option, flags = struct.unpack(">QQH", sockets.receive(self._socket, 18))
        if init != _INIT_MAGIC or option != _OPTION_MAGIC or not flags & _FLAG_FIXED_NEWSTYLE:
            raise exception.UnavailableError("the server speaks no fixed newstyle NBD")
        no_zeroes = flags & _FLAG_NO_ZEROES
        self._socket.sendall(
            struct.pack(">I", _FLAG_FIXED_NEWSTYLE | no_zeroes)
            + struct.pack(">QII", _OPTION_MAGIC, _OPTION_EXPORT_NAME, 0)
        )
        size, _transmission_flags = struct.unpack(">QH", sockets.receive(self._socket, 10))
        if not no_zeroes:
            sockets.receive(self._socket, 124)
        return int(size)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset`` on.

        :raises UnavailableError: when the server fails or goes away.
        """
        parts = [
            (start, buffer[start : start + REQUEST_SIZE_MAX])
            for start in range(0, len(buffer), REQUEST_SIZE_MAX)
        ]
        try:
            requests = [
                _REQUEST.pack(_REQUEST_MAGIC, 0, _COMMAND_READ, number, offset + start, len(part))
                for number, (start, part) in enumerate(parts)
            ]
            self._socket.sendall(b"".join(requests))
            waiting = set(range(len(parts)))
            while waiting:
                magic, error, number = struct.unpack(">IIQ", sockets.receive(self._socket, 16))
                if magic != _REPLY_MAGIC or number not in waiting:
                    raise exception.UnavailableError("qemu-nbd broke the protocol")
                if error:
                    raise exception.UnavailableError(f"qemu-nbd cannot read: error {error}")
                waiting.remove(number)
                sockets.receive_into(self._socket, parts[number][1])
        except (OSError, EOFError) as error:
            raise exception.UnavailableError(f"qemu-nbd does not answer: {error}") from error

    def close(self) -> None:
        """Say goodbye and close the connection."""
        try:
            self._socket.sendall(_REQUEST.pack(_REQUEST_MAGIC, 0, _COMMAND_DISCONNECT, 0, 0, 0))
        except OSError:
            pass
        finally:
            self._socket.close()
