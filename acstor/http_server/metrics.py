"""The Prometheus endpoint of a control process: ``/metrics`` and ``/healthz``."""

import threading
from collections.abc import Callable
from http import HTTPStatus

from oslo_config import cfg
from prometheus_client.openmetrics import exposition

from acstor import exception
from acstor.http_server.server import BoundedHandler, BoundedHTTPServer, TlsSource
from acstor.http_server.tls import ServerTls

CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST
REQUESTS_MAX = 8
"""Connections at a time; one more is closed at once where all of them are being answered."""
REQUEST_TIMEOUT = 10.0
"""Seconds that a connection may last, from its beginning to the end of the answer."""


class MetricsEndpoint:
    """A small HTTP server on threads of its own.

    :param address: IP address or name to listen on.
    :param port: TCP port; 0: any free one.
    :param text: returns the OpenMetrics text.
    :param is_healthy: decides between 200 and 503 of ``/healthz``.
    :param tls: None: in the clear.
    :raises OSError: when the address cannot be had.
    """

    def __init__(
        self,
        address: str,
        port: int,
        *,
        text: Callable[[], str],
        is_healthy: Callable[[], bool],
        tls: TlsSource | None = None,
    ) -> None:
        self._scheme = "http" if tls is None else "https"
        self._server = _Server(address, port, text, is_healthy, tls)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    @property
    def address(self) -> str:
        """``ip:port`` that is listened on."""
        host, port = self._server.server_address[:2]
        name = host.decode() if isinstance(host, (bytes, bytearray)) else str(host)
        return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"

    @property
    def url(self) -> str:
        """URL of the metrics."""
        return f"{self._scheme}://{self.address}/metrics"

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def of_options(
    conf: cfg.ConfigOpts, group: str, *, text: Callable[[], str], is_healthy: Callable[[], bool]
) -> MetricsEndpoint:
    """Return the endpoint that a group's options (:mod:`acstor.conf.metrics`) describe.

    :raises ConfigurationError: when the files of TLS cannot be used.
    :raises OSError: when the address cannot be had.
    """
    options = conf[group]
    tls = None
    if options.metrics_cert_file:
        try:
            tls = ServerTls(
                options.metrics_cert_file, options.metrics_key_file, options.metrics_ca_file
            )
        except OSError as error:
            raise exception.ConfigurationError(
                f"[{group}] metrics_cert_file {options.metrics_cert_file}, metrics_key_file or "
                f"metrics_ca_file: {error}",
                hint="name PEM files that the user of this process may read",
            ) from error
    return MetricsEndpoint(
        options.metrics_address,
        options.metrics_port,
        text=text,
        is_healthy=is_healthy,
        tls=tls,
    )


class _Server(BoundedHTTPServer):
    def __init__(
        self,
        address: str,
        port: int,
        text: Callable[[], str],
        is_healthy: Callable[[], bool],
        tls: TlsSource | None,
    ) -> None:
        self.text = text
        self.is_healthy = is_healthy
        super().__init__(
            address,
            port,
            _Handler,
            connections_max=REQUESTS_MAX,
            request_timeout=REQUEST_TIMEOUT,
            tls=tls,
        )


class _Handler(BoundedHandler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        self.settle()
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
        self.write(content)
