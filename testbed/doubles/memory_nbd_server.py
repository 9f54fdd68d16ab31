"""An NBD server over a unix socket with its export in memory, and what can go wrong with one.

Source: the NBD protocol document, as for :mod:`acstor.nbd_connection`.
"""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable

_REQUEST = struct.Struct(">IHHQQI")


class HangupError(Exception):
    """Raised by a fault: the connection ends here."""


class MemoryNbdServer:
    """Serves one export; ``on_request`` may fail requests or end connections.

    :param path: of the socket.
    :param export: its only name.
    :param size: bytes, all zero at first.
    :param block_size: the least block, bytes; requests that are not whole blocks fail.
    """

    def __init__(self, path: str, export: str, size: int, block_size: int = 1) -> None:
        self.content = bytearray(size)
        self.export = export
        self.block_size = block_size
        self.request_max = 32 << 20
        self.flags = 1 | 1 << 2  # HAS_FLAGS, SEND_FLUSH
        self.requests: list[tuple[int, int, int]] = []
        """Command, offset, length of each request."""
        self.connections = 0
        self.on_request: Callable[[int], int] = lambda command: 0
        """Called with each command; returns an error number, or raises :class:`HangupError`."""
        self.greeting: bytes | None = None
        """Sent instead of a proper greeting."""
        self._path = path
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Listen."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._path)
        listener.listen(4)
        self._listener = listener
        self._spawn(lambda: self._accept(listener))

    def stop(self) -> None:
        """Go away with all connections."""
        sockets = [*self._open, *([self._listener] if self._listener else [])]
        for connection in sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join(20)
        self._threads.clear()
        self._listener = None

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            self._spawn(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, HangupError):
            if self.greeting is not None:
                connection.sendall(self.greeting)
                return
            if self._negotiate(connection):
                while self._answer(connection):
                    pass
        self._open.discard(connection)

    def _negotiate(self, connection: socket.socket) -> bool:
        connection.sendall(struct.pack(">QQH", 0x4E42444D41474943, 0x49484156454F5054, 3))
        self._receive(connection, 4)
        _, option, length = struct.unpack(">QII", self._receive(connection, 16))
        data = self._receive(connection, length)
        name = data[4 : 4 + int.from_bytes(data[:4], "big")].decode()

        def reply(kind: int, body: bytes = b"") -> None:
            head = struct.pack(">QIII", 0x3E889045565A9, option, kind, len(body))
            connection.sendall(head + body)

        if option != 7 or name != self.export:
            reply(1 << 31 | (6 if option == 7 else 1), b"no such export")
            return False
        reply(3, struct.pack(">HQH", 0, len(self.content), self.flags))
        reply(3, struct.pack(">HIII", 3, self.block_size, 4096, self.request_max))
        reply(1)
        return True

    def _answer(self, connection: socket.socket) -> bool:
        magic, _, command, cookie, offset, length = _REQUEST.unpack(
            self._receive(connection, _REQUEST.size)
        )
        assert magic == 0x25609513
        if command == 2:
            return False
        data = self._receive(connection, length) if command == 1 else b""
        self.requests.append((command, offset, length))
        error = self.on_request(command) or self._refusal(command, offset, length)
        if command in (1, 6) and not error:
            self.content[offset : offset + length] = data or bytes(length)
        answer = struct.pack(">IIQ", 0x67446698, error, cookie)
        if command == 0 and not error:
            answer += bytes(self.content[offset : offset + length])
        connection.sendall(answer)
        return True

    def _refusal(self, command: int, offset: int, length: int) -> int:
        is_whole = offset % self.block_size == 0 and length % self.block_size == 0
        fits = offset + length <= len(self.content) and length <= self.request_max
        return 0 if command == 3 or (is_whole and fits) else 22

    @staticmethod
    def _receive(connection: socket.socket, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = connection.recv(size - len(received))
            if not chunk:
                raise HangupError
            received += chunk
        return bytes(received)
