"""Ceilometer's samples by HTTP: what its ``http`` publisher posts to.

``POST /v1/samples`` with a JSON list of samples (or one sample, ``batch=False``) and basic
authentication. Nothing that a client does takes more than a thread of a bounded number for a
bounded time, and no memory before it has said the password.
"""

import base64
import binascii
import contextlib
import hmac
import io
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from acstor import untrusted_json
from acstor.policy import ceilometer_feed_samples
from acstor.policy.ceilometer_feed import CeilometerSamples

LOG = logging.getLogger(__name__)

PATH = "/v1/samples"
SAMPLES_MAX = 20_000
"""Samples of one request."""
_STOP_INTERVAL = 0.1


@dataclass(frozen=True)
class ReceiverSettings:
    """How samples are received."""

    address: str
    port: int
    username: str
    password: str
    body_max: int = 4 << 20
    connections_max: int = 32
    request_timeout: float = 10.0
    """Seconds that a connection may last, from its beginning to the end of the answer."""


class SampleReceiver:
    """An HTTP server on threads of its own; a feed of the policy service.

    :param tls: None: in the clear.
    :raises OSError: when the address cannot be had.
    """

    def __init__(
        self,
        settings: ReceiverSettings,
        samples: CeilometerSamples,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.problem: str | None = None
        self._server = _Server(settings, samples, tls)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_STOP_INTERVAL,),
            name="ceilometer-http",
            daemon=True,
        )

    @property
    def port(self) -> int:
        """That is listened on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop listening; requests that are being answered are left to their deadlines."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self, settings: ReceiverSettings, samples: CeilometerSamples, tls: ssl.SSLContext | None
    ) -> None:
        found = socket.getaddrinfo(settings.address, settings.port, type=socket.SOCK_STREAM)[0]
        self.address_family = found[0]
        self.settings = settings
        self.samples = samples
        self.tls = tls
        self.slots = threading.BoundedSemaphore(settings.connections_max)
        super().__init__((str(found[4][0]), settings.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.slots.acquire(blocking=False):
            self.samples.refuse("busy")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("request of %s failed", client_address, exc_info=True)


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
        self._connection.settimeout(_left(self._deadline))
        return self._connection.recv_into(buffer)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the request took too long")
    return left


class _RefusedError(Exception):
    """What a client is told."""

    def __init__(self, status: HTTPStatus, text: str, kind: str = "malformed") -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "acstor"
    sys_version = ""

    def setup(self) -> None:
        self._deadline = time.monotonic() + self.server.settings.request_timeout
        self.request.settimeout(_left(self._deadline))
        if self.server.tls is not None:
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()
        self.rfile = io.BufferedReader(_DeadlineReader(self.request, self._deadline))

    def finish(self) -> None:
        super().finish()
        if self.server.tls is not None:
            with contextlib.suppress(OSError):
                self.request.close()  # the server closes the socket that this one was made of

    def do_POST(self) -> None:
        refused: _RefusedError | None = None
        outcomes: Mapping[str, int] | None = None
        try:
            outcomes = self._taken()
        except _RefusedError as error:
            refused = error
        except TimeoutError:
            self.close_connection = True
        # Beyond the handlers: what is logged in them gets the exception's name as well.
        if refused is not None:
            self.server.samples.refuse(refused.kind)
            self._answer(refused.status, f"{refused}\n", "text/plain; charset=utf-8")
        elif outcomes is not None:
            text = json.dumps({"samples": dict(sorted(outcomes.items()))}) + "\n"
            self._answer(HTTPStatus.OK, text, "application/json")
        else:
            self.server.samples.refuse("timeout")

    def do_GET(self) -> None:
        self._answer(
            HTTPStatus.METHOD_NOT_ALLOWED, f"POST samples to {PATH}\n", "text/plain; charset=utf-8"
        )

    def _taken(self) -> Mapping[str, int]:
        if self.path.partition("?")[0].rstrip("/") != PATH:
            raise _RefusedError(HTTPStatus.NOT_FOUND, f"there is {PATH} only")
        self._authenticate()
        messages = _messages(self.rfile.read(self._length()))
        return self.server.samples.take(messages, ceilometer_feed_samples.from_publisher)

    def _authenticate(self) -> None:
        scheme, _, encoded = (self.headers.get("Authorization") or "").partition(" ")
        try:
            given = base64.b64decode(encoded.strip(), validate=True) if scheme else b""
        except (binascii.Error, ValueError):
            given = b""
        settings = self.server.settings
        expected = f"{settings.username}:{settings.password}".encode()
        # Both always, and in constant time: how long a refusal takes tells nothing.
        if not hmac.compare_digest(given, expected) or scheme.lower() != "basic":
            raise _RefusedError(
                HTTPStatus.UNAUTHORIZED,
                "wrong or no user name and password: write them into the publisher's URL "
                "(http://USER:PASSWORD@...), as [ceilometer] username and password say",
                "unauthenticated",
            )

    def _length(self) -> int:
        text = self.headers.get("Content-Length")
        if text is None or self.headers.get("Transfer-Encoding"):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed")
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the Content-Length is no number")
        limit = self.server.settings.body_max
        if int(text) > limit:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{text} bytes are more than {limit}: raise [ceilometer] body_max, or lower "
                "Ceilometer's [polling] batch_size",
                "too-large",
            )
        return int(text)

    def _answer(self, status: HTTPStatus, text: str, content_type: str) -> None:
        content = text.encode()
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="acstor"')
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.request.settimeout(_left(self._deadline))
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        LOG.debug(format, *arguments)


def _messages(body: bytes) -> Sequence[object]:
    try:
        found = untrusted_json.load(body, "the body")
    except ValueError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
    messages = found if isinstance(found, list) else [found]
    if not all(isinstance(each, Mapping) for each in messages):
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body is no list of samples")
    if len(messages) > SAMPLES_MAX:
        raise _RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {SAMPLES_MAX} samples", "too-large"
        )
    return messages
