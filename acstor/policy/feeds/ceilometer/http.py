"""Ceilometer's samples by HTTP: what its ``http`` publisher posts to.

``POST /v1/samples`` with a JSON list of samples (or one sample, ``batch=False``) and basic
authentication. Nothing that a client does takes more than a thread of a bounded number for a
bounded time, and no memory before it has said the password.
"""

import base64
import binascii
import hmac
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from acstor import untrusted_json
from acstor.http_server.server import BoundedHandler, BoundedHTTPServer, TlsSource
from acstor.policy.feeds.ceilometer import samples as ceilometer_feed_samples
from acstor.policy.feeds.ceilometer.feed import CeilometerSamples

PATH = "/v1/samples"
SAMPLES_MAX = 20_000
"""Samples of one request."""


@dataclass(frozen=True)
class ReceiverSettings:
    """Settings of the receiver of samples."""

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
        tls: TlsSource | None = None,
    ) -> None:
        self.problem: str | None = None
        self._server = _Server(settings, samples, tls)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="ceilometer-http", daemon=True
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


class _Server(BoundedHTTPServer):
    def __init__(
        self, settings: ReceiverSettings, samples: CeilometerSamples, tls: TlsSource | None
    ) -> None:
        self.settings = settings
        self.samples = samples
        super().__init__(
            settings.address,
            settings.port,
            _Handler,
            connections_max=settings.connections_max,
            request_timeout=settings.request_timeout,
            tls=tls,
        )

    def note_busy(self) -> None:
        self.samples.refuse("busy")


class _RefusedError(Exception):
    """Refusal that a client is told."""

    def __init__(self, status: HTTPStatus, text: str, kind: str = "malformed") -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


class _Handler(BoundedHandler):
    server: _Server

    def do_POST(self) -> None:  # noqa: N802 - the name that http.server calls
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

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        self._answer(
            HTTPStatus.METHOD_NOT_ALLOWED, f"POST samples to {PATH}\n", "text/plain; charset=utf-8"
        )

    def _taken(self) -> Mapping[str, int]:
        if self.path.partition("?")[0].rstrip("/") != PATH:
            raise _RefusedError(HTTPStatus.NOT_FOUND, f"there is {PATH} only")
        self._authenticate()
        self.settle()
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
        self.write(content)


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
