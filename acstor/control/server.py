"""The data plane's end of the admin protocol."""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from acstor import exception, sockets
from acstor.control import protocol
from acstor.control.line_reader import LineReader, LineTooLongError

LOG = logging.getLogger(__name__)

Method = Callable[[Mapping[str, Any]], object]
"""Called with the request's parameters; returns what JSON can express.

It raises ProtocolError for wrong parameters and AcstorError for everything that it refuses.
"""

_LISTEN_BACKLOG = 16
_STOP_TIMEOUT = 2.0


class AdminServer:
    """Serves methods on a unix socket, a thread per connection.

    A method may wait (pinning does), so connections have threads of their own; their number is
    bounded, and one more is refused at once.

    Without a group the socket has mode 0600, and only root and the process's own user are
    answered. With one it has mode 0660, and whoever the kernel lets connect is answered.

    :param path: of the socket; what is left there of a process that is gone is replaced.
    :param methods: by name.
    :param group: number of the group that may ask too.
    """

    def __init__(self, path: str, methods: Mapping[str, Method], group: int | None = None) -> None:
        self._path = path
        self._methods = methods
        self._group = group
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()  # of _connections; the event is set under it
        self._is_stopping = threading.Event()

    def start(self) -> None:
        """Bind the socket and start accepting.

        The caller must hold what makes it the only server (the chunk store's lock): a socket
        that is found at the path is taken for a leftover.

        :raises OSError: when the socket cannot be bound.
        """
        os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            # The mode with which it is bound (Linux).
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(self._path)
            if self._group is not None:
                os.chown(self._path, -1, self._group)
                os.chmod(self._path, 0o660)
        except OSError:
            listener.close()
            raise
        listener.listen(_LISTEN_BACKLOG)
        self._listener = listener
        self._thread = threading.Thread(
            target=self._accept_all, args=(listener,), name="admin-accept", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the socket and all connections; requests under way get no answer."""
        with self._lock:
            self._is_stopping.set()
            connections = list(self._connections)
        if self._listener is None:
            return
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT)
        self._listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def _accept_all(self, listener: socket.socket) -> None:
        for connection in sockets.accepted(listener, self._is_stopping):
            if self._admit(connection):
                threading.Thread(
                    target=self._serve, args=(connection,), name="admin-serve", daemon=True
                ).start()

    def _admit(self, connection: socket.socket) -> bool:
        """Count a connection in, or refuse and close it."""
        refusal = None
        if self._group is None and not _is_permitted(connection):
            refusal = protocol.encode_error(
                protocol.Code.INVALID_REQUEST, "only root and the data plane's user may ask"
            )
        with self._lock:
            if refusal is None and len(self._connections) >= protocol.CONNECTIONS_MAX:
                refusal = protocol.encode_error(protocol.Code.BUSY, "too many connections")
            if refusal is None and not self._is_stopping.is_set():
                self._connections.add(connection)
                return True
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.send(refusal or b"")
        connection.close()
        return False

    def _serve(self, connection: socket.socket) -> None:
        reader = LineReader(connection, protocol.REQUEST_BYTES_MAX)
        try:
            while line := reader.read_line(protocol.IDLE_TIMEOUT, protocol.REQUEST_DEADLINE):
                response = self._answer(line)
                connection.settimeout(protocol.RESPONSE_DEADLINE)
                connection.sendall(response)
        except LineTooLongError:
            with contextlib.suppress(OSError):
                connection.settimeout(protocol.RESPONSE_DEADLINE)
                message = f"a request has at most {protocol.REQUEST_BYTES_MAX} bytes"
                connection.sendall(protocol.encode_error(protocol.Code.INVALID_REQUEST, message))
        except OSError as error:  # TimeoutError too
            LOG.debug("admin connection ended: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _answer(self, line: bytes) -> bytes:
        try:
            request = protocol.decode_request(line)
        except protocol.ProtocolError as error:
            return protocol.encode_error(error.code, str(error), error.request_id)
        method = self._methods.get(request.method)
        if method is None:
            return protocol.encode_error(
                protocol.Code.METHOD_NOT_FOUND, f"no method {request.method[:100]!r}", request.id
            )
        try:
            return protocol.encode_result(request.id, method(request.params))
        except protocol.ProtocolError as error:
            return protocol.encode_error(error.code, str(error), request.id)
        except exception.AcstorError as error:
            return protocol.encode_error(
                protocol.Code.FAILED, error.message, request.id, error.kind
            )
        except Exception:
            # A fault in one method must not take the data plane's control away.
            LOG.exception("admin method %s failed", request.method)
            return protocol.encode_error(
                protocol.Code.INTERNAL_ERROR, "internal error, see the data plane's log", request.id
            )


def _is_permitted(connection: socket.socket) -> bool:
    return sockets.user_of(connection) in {0, os.geteuid()}
