"""The Prometheus endpoint of a control process: ``/metrics`` and ``/healthz``."""

import logging
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client.openmetrics import exposition

LOG = logging.getLogger(__name__)

CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST
REQUESTS_MAX = 8
"""Requests answered at a time; one more is refused with 503."""
REQUEST_TIMEOUT = 10.0
"""Seconds for a client to send its request and to take the answer."""


class MetricsEndpoint:
    """A small HTTP server on threads of its own.

    :param address: IP address or name to listen on.
    :param port: TCP port; 0: any free one.
    :param text: returns the OpenMetrics text.
    :param is_healthy: decides between 200 and 503 of ``/healthz``.
    :raises OSError: when the address cannot be had.
    """

    def __init__(
        self,
        address: str,
        port: int,
        *,
        text: Callable[[], str],
        is_healthy: Callable[[], bool],
    ) -> None:
        self._server = _Server(address, port, text, is_healthy)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    @property
    def address(self) -> str:
        """``ip:port`` that is listened on."""
        host, port = self._server.server_address[:2]
        name = host.decode() if isinstance(host, (bytes, bytearray)) else str(host)
        return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def __init__(
        self, address: str, port: int, text: Callable[[], str], is_healthy: Callable[[], bool]
    ) -> None:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        self.address_family = found[0]
        self.text = text
        self.is_healthy = is_healthy
        self.slots = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__((str(found[4][0]), port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("metrics request of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT
    server: _Server
    server_version = "acstor"
    sys_version = ""

    def do_GET(self) -> None:
        if not self.server.slots.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests\n")
            return
        try:
            self._answer_path()
        finally:
            self.server.slots.release()

    def _answer_path(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(HTTPStatus.OK, self.server.text(), CONTENT_TYPE)
            case "/healthz" if self.server.is_healthy():
                self._answer(HTTPStatus.OK, "ok\n")
            case "/healthz":
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "degraded\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "there is /metrics and /healthz\n")

    def _answer(
        self, status: HTTPStatus, text: str, content_type: str = "text/plain; charset=utf-8"
    ) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        LOG.debug(format, *arguments)
