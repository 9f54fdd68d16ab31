"""One connection to an NBD export over a unix socket: reads, writes, zeroes, flushes.

Source: the NBD protocol document (github.com/NetworkBlockDevice/nbd, doc/proto.md), sections
"Fixed newstyle negotiation", "NBD_OPT_GO" and "Transmission phase", simple replies. libnbd does
more, but its Python binding comes with the distribution's Python only: not for the virtual
environments and containers that Cinder runs in.
"""

import collections
import errno
import os
import socket
import struct
from dataclasses import dataclass

from acstor import sockets

REQUEST_BYTES_MAX = 1 << 20
"""Bytes of one read or write request; longer ones become several."""
REQUESTS_INFLIGHT_MAX = 8
"""Requests that wait for their answers. Their 16-byte replies always fit into the socket, so the
server never waits for this side to read while this side waits for it to read."""

_OPTION_DATA_MAX = 64 << 10
_OPTION_REPLIES_MAX = 64
_BLOCK_SIZE_MAX = 64 << 10
_SIZE_BYTES_MAX = 1 << 62

_INIT_MAGIC = 0x4E42444D41474943
_OPTION_MAGIC = 0x49484156454F5054
_OPTION_REPLY_MAGIC = 0x3E889045565A9
_REQUEST_MAGIC = 0x25609513
_REPLY_MAGIC = 0x67446698

_FLAG_FIXED_NEWSTYLE = 1
_FLAG_NO_ZEROES = 2
_OPTION_GO = 7
_REPLY_ACK = 1
_REPLY_INFO = 3
_REPLY_ERROR = 1 << 31
_REPLY_ERROR_UNKNOWN = _REPLY_ERROR + 6
_INFO_EXPORT = 0
_INFO_BLOCK_SIZE = 3
_EXPORT_READ_ONLY = 1 << 1
_EXPORT_SEND_FLUSH = 1 << 2
_EXPORT_SEND_WRITE_ZEROES = 1 << 6

_COMMAND_READ = 0
_COMMAND_WRITE = 1
_COMMAND_DISCONNECT = 2
_COMMAND_FLUSH = 3
_COMMAND_WRITE_ZEROES = 6
_ERROR_SHUTDOWN = 108  # NBD_ESHUTDOWN

_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")
_OPTION_REPLY = struct.Struct(">QIII")


class ConnectionLostError(OSError):
    """The server went away, is late or breaks the protocol; another connection may do."""


@dataclass(frozen=True)
class _Request:
    command: int
    offset: int
    length: int
    data: memoryview | None = None
    """Content to write, or memory to read into."""


class NbdConnection:
    """A connection to one export.

    :param socket_path: of the server.
    :param export: its name.
    :param timeout_seconds: longest wait for any progress.
    :raises ConnectionLostError: when the server cannot be reached, is late, or speaks something
        else.
    :raises FileNotFoundError: when it has no such export.
    """

    def __init__(self, socket_path: str, export: str, timeout_seconds: float) -> None:
        self.size_bytes = 0
        self.is_read_only = False
        self.block_size = 1
        """Offsets and lengths of requests are multiples of it, bytes."""
        self._can_flush = False
        self._can_write_zeroes = False
        self._request_bytes_max = REQUEST_BYTES_MAX
        self._cookie = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._connect(socket_path, timeout_seconds)
            self._negotiate(export)
        except BaseException:
            self._socket.close()
            raise

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset`` on.

        :raises OSError: with the server's error.
        :raises ConnectionLostError: see the class; the connection is of no more use.
        """
        self._run(self._pieces(_COMMAND_READ, offset, buffer))

    def write(self, offset: int, data: memoryview) -> None:
        """Write ``data`` at ``offset``; raises as :meth:`read_into`.

        Requests whose data is all zeroes go without it where the server takes that: Cinder's
        copies and restored backups hand over the holes of a volume too.
        """
        requests = self._pieces(_COMMAND_WRITE, offset, data)
        if self._can_write_zeroes:
            requests = collections.deque(map(_without_zeroes, requests))
        self._run(requests)

    def flush(self) -> None:
        """Make durable what was written before; raises as :meth:`read_into`."""
        if self._can_flush:
            self._run(collections.deque([_Request(_COMMAND_FLUSH, 0, 0)]))

    def close(self) -> None:
        """Say goodbye and close the connection."""
        try:
            self._socket.sendall(_REQUEST.pack(_REQUEST_MAGIC, 0, _COMMAND_DISCONNECT, 0, 0, 0))
        except OSError:
            pass  # the server is gone
        finally:
            self._socket.close()

    # Requests

    def _pieces(self, command: int, offset: int, data: memoryview) -> collections.deque[_Request]:
        step = self._request_bytes_max
        return collections.deque(
            _Request(command, offset + start, len(data[start : start + step]), piece)
            for start in range(0, len(data), step)
            for piece in (data[start : start + step],)
        )

    def _run(self, waiting: collections.deque[_Request]) -> None:
        """Send requests and take their answers, several in flight."""
        sent: dict[int, _Request] = {}
        failed = 0
        while waiting or sent:
            if waiting and not failed and len(sent) < REQUESTS_INFLIGHT_MAX:
                self._send(waiting.popleft(), sent)
                continue
            if not sent:
                break  # failed: the others are not sent any more
            failed = self._receive_reply(sent) or failed
        if failed == _ERROR_SHUTDOWN:
            raise ConnectionLostError(errno.ESHUTDOWN, "the NBD server is shutting down")
        if failed:
            raise OSError(failed, os.strerror(failed))

    def _send(self, request: _Request, sent: dict[int, _Request]) -> None:
        self._cookie += 1
        header = _REQUEST.pack(
            _REQUEST_MAGIC, 0, request.command, self._cookie, request.offset, request.length
        )
        sent[self._cookie] = request
        try:
            self._socket.sendall(header)
            if request.command == _COMMAND_WRITE and request.data is not None:
                self._socket.sendall(request.data)
        except OSError as error:
            raise _lost(error) from error

    def _receive_reply(self, sent: dict[int, _Request]) -> int:
        """Take the next reply; return the server's error number, 0 for none."""
        magic, error, cookie = _REPLY.unpack(self._receive(_REPLY.size))
        if magic != _REPLY_MAGIC or cookie not in sent:
            raise ConnectionLostError(errno.EPROTO, "the NBD server breaks the protocol")
        request = sent.pop(cookie)
        if not error and request.command == _COMMAND_READ and request.data is not None:
            self._receive_into(request.data)
        return int(error)

    # Negotiation

    def _connect(self, socket_path: str, timeout_seconds: float) -> None:
        try:
            sockets.connect_within(self._socket, socket_path, timeout_seconds)
        except OSError as error:
            raise ConnectionLostError(
                error.errno or errno.ETIMEDOUT, f"{socket_path}: {error.strerror or error}"
            ) from error

    def _negotiate(self, export: str) -> None:
        init, option, flags = struct.unpack(">QQH", self._receive(18))
        if init != _INIT_MAGIC or option != _OPTION_MAGIC or not flags & _FLAG_FIXED_NEWSTYLE:
            raise ConnectionLostError(errno.EPROTO, "the server speaks no fixed newstyle NBD")
        name = export.encode()
        data = struct.pack(">I", len(name)) + name + struct.pack(">HH", 1, _INFO_BLOCK_SIZE)
        self._send_bytes(struct.pack(">I", _FLAG_FIXED_NEWSTYLE | flags & _FLAG_NO_ZEROES))
        self._prepare(export)
        self._send_bytes(struct.pack(">QII", _OPTION_MAGIC, _OPTION_GO, len(data)) + data)
        for _ in range(_OPTION_REPLIES_MAX):
            if self._take_option_reply():
                return
        raise ConnectionLostError(errno.EPROTO, "the NBD server does not come to an end")

    def _prepare(self, export: str) -> None:
        """Negotiate what comes before the export is opened: nothing."""

    def _take_option_reply(self) -> bool:
        """Take one reply to NBD_OPT_GO; return whether it was the last one."""
        magic, option, kind, length = _OPTION_REPLY.unpack(self._receive(_OPTION_REPLY.size))
        if magic != _OPTION_REPLY_MAGIC or option != _OPTION_GO or length > _OPTION_DATA_MAX:
            raise ConnectionLostError(errno.EPROTO, "the NBD server breaks the protocol")
        data = self._receive(length)
        if kind == _REPLY_ACK:
            return True
        if kind == _REPLY_ERROR_UNKNOWN:
            # Not which: the name may be a secret.
            raise FileNotFoundError(errno.ENOENT, "the NBD server has no such export")
        if kind & _REPLY_ERROR:
            text = data.decode(errors="replace")
            raise ConnectionLostError(
                errno.EPROTO, f"the NBD server refuses the export: {kind:#x} {text}"
            )
        if kind == _REPLY_INFO:
            self._take_info(data)
        return False

    def _take_info(self, data: bytes) -> None:
        kind = int.from_bytes(data[:2], "big")
        if kind == _INFO_EXPORT and len(data) == 12:
            _, size, flags = struct.unpack(">HQH", data)
            if size > _SIZE_BYTES_MAX:
                raise ConnectionLostError(errno.EPROTO, f"an export of {size} bytes")
            self.size_bytes = size
            self.is_read_only = bool(flags & _EXPORT_READ_ONLY)
            self._can_flush = bool(flags & _EXPORT_SEND_FLUSH)
            self._can_write_zeroes = bool(flags & _EXPORT_SEND_WRITE_ZEROES)
        elif kind == _INFO_BLOCK_SIZE and len(data) == 14:
            _, least, _, most = struct.unpack(">HIII", data)
            if not 1 <= least <= _BLOCK_SIZE_MAX or least & (least - 1) or most < least:
                raise ConnectionLostError(errno.EPROTO, f"block sizes {least} to {most}")
            self.block_size = least
            self._request_bytes_max = min(REQUEST_BYTES_MAX, most // least * least)

    # Bytes

    def _send_bytes(self, content: bytes) -> None:
        try:
            self._socket.sendall(content)
        except OSError as error:
            raise _lost(error) from error

    def _receive(self, size: int) -> bytes:
        buffer = bytearray(size)
        self._receive_into(memoryview(buffer))
        return bytes(buffer)

    def _receive_into(self, view: memoryview) -> None:
        try:
            sockets.receive_into(self._socket, view)
        except OSError as error:
            raise _lost(error) from error
        except EOFError as error:
            raise ConnectionLostError(errno.ECONNRESET, "the NBD server went away") from error


def _without_zeroes(request: _Request) -> _Request:
    """Return a write, or what does the same where its data is all zeroes."""
    data = request.data
    # Most data tells at its ends; comparing it item by item, as memoryviews do, would be slow.
    if not data or data[0] or data[-1] or data.tobytes() != bytes(len(data)):
        return request
    return _Request(_COMMAND_WRITE_ZEROES, request.offset, request.length)


def _lost(error: OSError) -> ConnectionLostError:
    if isinstance(error, TimeoutError):
        return ConnectionLostError(errno.ETIMEDOUT, "the NBD server does not answer in time")
    return ConnectionLostError(error.errno or errno.EIO, f"NBD: {error.strerror or error}")
