"""A server of oslo.messaging on a thread of its own: it is there as soon as the broker is."""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from acstor.backoff import BackOff

LOG = logging.getLogger(__name__)

RECONNECT = BackOff(first=2.0, longest=30.0, shortest=0.5, spread=1.0)
"""Delays between two attempts to reach the broker."""


def started(transport: Any, make_server: Callable[[Any], Any]) -> Any:
    """Return the server that ``make_server`` makes of the transport, started.

    When that fails, nothing of either is left.
    """
    server: Any = None
    try:
        server = make_server(transport)
        server.start()
    except BaseException:
        _close(server, transport)
        raise
    return server


class BackgroundServer:
    """Listens from :meth:`start` to :meth:`stop`; tries again and again until it can.

    Once connected, oslo.messaging itself follows the broker through its restarts.

    :param name: of the thread.
    :param listen: returns what :func:`started` returns; called on the thread.
    :param on_listening: called when it listens.
    :param on_failure: called with the error of each attempt, and the number of attempts that
        failed one after the other.
    """

    def __init__(
        self,
        name: str,
        listen: Callable[[], Any],
        *,
        on_listening: Callable[[], None] = lambda: None,
        on_failure: Callable[[Exception, int], None],
    ) -> None:
        self._listen = listen
        self._on_listening = on_listening
        self._on_failure = on_failure
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.is_listening = threading.Event()

    def start(self) -> None:
        """Connect in the background."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop within ``timeout`` seconds."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        failures = 0
        while not self._is_stopping.is_set():
            server: Any = None
            try:
                server = self._listen()
                failures = 0
                self.is_listening.set()
                self._on_listening()
                self._is_stopping.wait()
            except Exception as error:
                # Drivers raise what their client libraries raise; a broker must not end this.
                failures += 1
                self._on_failure(error, failures)
                self._is_stopping.wait(RECONNECT.seconds(failures))
            finally:
                self.is_listening.clear()
                if server is not None:
                    _close(server, server.transport)


def _close(server: Any, transport: Any) -> None:
    steps = [server.stop, server.wait] if server is not None else []
    for step in (*steps, transport.cleanup):
        with contextlib.suppress(Exception):
            step()
