"""HTTP servers that clients can neither fill nor hold: what metrics and samples are served by.

A connection gets a place before it gets a thread, and a deadline for everything: the handshake of
TLS, the request, the answer. Where all places are taken, the oldest connection of the address with
most of those that have not shown who they are makes room: silent ones keep nobody out. No library
that was looked at does that: RFD 0017.
"""

import collections
import contextlib
import io
import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

LOG = logging.getLogger(__name__)

_ROOM_TIMEOUT = 1.0
"""Seconds that a connection which makes room may take to be gone."""

_LOOKS_INTERVAL = 3600.0
"""Seconds between two looks whether the server is to end, of which it is told at once besides."""

_DISPLACED = "it made room for another connection"


class TlsSource(Protocol):
    """Gives the context for a connection."""

    def context(self) -> ssl.SSLContext: ...  # noqa: D102


@dataclass
class _Guest:
    address: str
    connection: socket.socket
    """Socket that can be shut down: with TLS another object than the one that was accepted."""
    deadline: float
    is_stranger: bool = True


class Places:
    """The connections of a server, at most so many at a time.

    :param places_max: connections.
    """

    def __init__(self, places_max: int) -> None:
        self._free = threading.BoundedSemaphore(places_max)
        self._lock = threading.Lock()
        self._guests: dict[socket.socket, _Guest] = {}  # oldest first

    def enter(self, connection: socket.socket, address: str, deadline: float) -> bool:
        """Give a connection a place; return whether there is one, or could be made."""
        if not self._free.acquire(blocking=False):
            if not self._make_room():
                return False
            if not self._free.acquire(timeout=_ROOM_TIMEOUT):
                return False
        with self._lock:
            self._guests[connection] = _Guest(address, connection, deadline)
        return True

    def deadline(self, connection: socket.socket) -> float:
        """Return the deadline of a connection, monotonic seconds.

        :raises ConnectionAbortedError: when it has had to make room.
        """
        with self._lock:
            guest = self._guests.get(connection)
        if guest is None:
            raise ConnectionAbortedError(_DISPLACED)
        return guest.deadline

    def secure(self, connection: socket.socket, secured: socket.socket) -> None:
        """Note that a connection is another object from now on.

        :raises ConnectionAbortedError: when it has had to make room meanwhile.
        """
        with self._lock:
            guest = self._guests.pop(connection, None)
            if guest is None:
                raise ConnectionAbortedError(_DISPLACED)
            guest.connection = secured
            self._guests[secured] = guest

    def settle(self, connection: socket.socket) -> None:
        """Note that the other side has shown who it is: it makes room for nobody."""
        with self._lock:
            if connection in self._guests:
                self._guests[connection].is_stranger = False

    def forget(self, connection: socket.socket) -> None:
        """Shut this connection down no more; to be called before it is closed."""
        with self._lock:
            self._guests.pop(connection, None)

    def leave(self) -> None:
        """Free a place."""
        self._free.release()

    def _make_room(self) -> bool:
        with self._lock:
            strangers = [guest for guest in self._guests.values() if guest.is_stranger]
            if not strangers:
                return False
            counts = collections.Counter(guest.address for guest in strangers)
            most = max(counts.values())
            displaced = next(guest for guest in strangers if counts[guest.address] == most)
            self._guests.pop(displaced.connection)
            with contextlib.suppress(OSError):
                # Not that of TLS, which is for the thread that has the connection.
                socket.socket.shutdown(displaced.connection, socket.SHUT_RDWR)
        return True


class BoundedHTTPServer(ThreadingHTTPServer):
    """Serves HTTP by threads of a bounded number.

    :param connections_max: at a time.
    :param request_timeout: seconds that a connection may last, from its beginning to the end of the
        answer.
    :param tls: None: in the clear.
    :raises OSError: when the address cannot be had.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        address: str,
        port: int,
        handler: type["BoundedHandler"],
        *,
        connections_max: int,
        request_timeout: float,
        tls: TlsSource | None = None,
    ) -> None:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        self.address_family = found[0]
        self.places = Places(connections_max)
        self._request_timeout = request_timeout
        self._tls = tls
        super().__init__((str(found[4][0]), port), handler)

    def serve_forever(self, poll_interval: float = _LOOKS_INTERVAL) -> None:
        """Take connections until :meth:`shutdown`, and wait for nothing else."""
        super().serve_forever(poll_interval)

    def shutdown(self) -> None:
        """End :meth:`serve_forever`, which another thread is in; no connection is taken then."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes that thread: accept(2) fails from now on
        super().shutdown()

    def note_busy(self) -> None:
        """Note that a connection was refused because all places are taken."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a place and a thread, or close it."""
        deadline = time.monotonic() + self._request_timeout
        if not self.places.enter(request, client_address[0], deadline):
            self.note_busy()
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.places.forget(request)
            self.places.leave()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, after the handshake of TLS."""
        connection = request
        try:
            request.settimeout(left(self.places.deadline(request)))
            if self._tls is not None:
                context = self._tls.context()
                connection = context.wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
                self.places.secure(request, connection)
                connection.do_handshake()  # the timeout is that of all of it
            self.finish_request(connection, client_address)
        except Exception:
            self.handle_error(connection, client_address)
        finally:
            self.places.forget(connection)
            self.shutdown_request(connection)
            self.places.leave()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note that a connection ended by an error, which is nobody's business but the client's."""
        LOG.debug("request of %s failed", client_address, exc_info=True)


class BoundedHandler(BaseHTTPRequestHandler):
    """Reads requests and writes answers until the deadline of the connection."""

    server: BoundedHTTPServer
    server_version = "acstor"
    sys_version = ""

    def setup(self) -> None:
        """Have everything that is read of the connection bounded by its deadline."""
        self._deadline = self.server.places.deadline(self.request)
        super().setup()
        self.rfile = io.BufferedReader(_DeadlineReader(self.request, self._deadline))

    def settle(self) -> None:
        """Note that the client has shown who it is, as far as that is asked for."""
        self.server.places.settle(self.request)

    def write(self, content: bytes) -> None:
        """Send headers and content.

        :raises TimeoutError: when the client does not take them in time.
        """
        self.request.settimeout(left(self._deadline))
        self.end_headers()
        self.request.settimeout(left(self._deadline))
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Log what :mod:`http.server` says of a request."""
        LOG.debug(format, *arguments)


class _DeadlineReader(io.RawIOBase):
    """Reads a socket until a deadline: no timeout of single reads bounds what they take together.

    :param deadline: monotonic seconds.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(left(self._deadline))
        return self._connection.recv_into(buffer)


def left(deadline: float) -> float:
    """Return the seconds until a deadline, above 0.

    :raises TimeoutError: when it has passed.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the request took too long")
    return seconds
