"""``acstor-api``: serves the API by itself, for tests and small clouds; it may restart any time.

One process with a thread for each connection, without TLS. Elsewhere a WSGI server loads
:mod:`acstor.wsgi.api`.
"""

import logging
import os
import signal
import socketserver
import threading
from collections.abc import Sequence
from wsgiref import simple_server

from oslo_config import cfg

from acstor.cmd import daemon
from acstor.supervision.supervisor import Supervisor

LOG = logging.getLogger("acstor.api")
REQUEST_SECONDS = 60
"""Seconds for which a client may be silent."""
QUEUE = 128
"""Connections that wait to be taken."""


class _Handler(simple_server.WSGIRequestHandler):
    """Handler of one connection; the log has one line for each request."""

    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
        """Log a request: never its headers, in which tokens are."""
        LOG.info("%s %s", self.address_string(), format % args)


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Server with a thread for each connection."""

    daemon_threads = True
    request_queue_size = QUEUE


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal; return the exit status."""
    return daemon.run("acstor-api", LOG, _run, arguments)


def _run(conf: cfg.ConfigOpts) -> int:
    from acstor.api import assembly

    logging.getLogger("keystoneauth.identity").setLevel(logging.ERROR)
    server = simple_server.make_server(
        conf.api.bind_host, conf.api.bind_port, assembly.build(conf), _Server, _Handler
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    thread = threading.Thread(target=server.serve_forever, name="api", daemon=True)
    thread.start()
    address = f"http://{conf.api.bind_host}:{server.server_port}"
    LOG.info("the API is at %s", address)
    supervisor = Supervisor.from_environment(os.environ)
    supervisor.notify(READY="1", STATUS=f"the API is at {address}")
    stop.wait()
    supervisor.notify(STOPPING="1")
    server.shutdown()
    thread.join()
    server.server_close()
    return 0
