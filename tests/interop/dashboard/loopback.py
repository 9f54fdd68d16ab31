"""WSGI applications on the loopback interface."""

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref import simple_server

PAST_PROXIES = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")
"""Environment in which clients go to the loopback interface past a proxy of the machine's."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """A server with a thread for each connection: browsers open some that they do not use."""

    daemon_threads = True
    request_queue_size = 64


class SilentHandler(simple_server.WSGIRequestHandler):
    """A handler without a log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
        """Log nothing."""


def listen(application: Application) -> simple_server.WSGIServer:
    """Return a server on a port of its own, which serves when it is told to."""
    return simple_server.make_server("127.0.0.1", 0, application, Server, SilentHandler)


@contextlib.contextmanager
def served(application: Application) -> Iterator[str]:
    """Serve an application, and yield its URL."""
    with listen(application) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
