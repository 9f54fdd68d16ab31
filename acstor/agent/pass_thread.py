"""A thread that acts on the newest reconcile pass, for what may take longer than one."""

import logging
import threading
from collections.abc import Callable

from acstor.agent.reconciler import HostSnapshot

LOG = logging.getLogger(__name__)


class PassThread:
    """Calls ``act`` with each pass that it is shown, one after the other, with the newest only.

    :param name: of the thread, and in the log.
    """

    def __init__(self, name: str, act: Callable[[HostSnapshot], None]) -> None:
        self._act = act
        self._condition = threading.Condition()  # of _snapshot and _is_stopping
        self._snapshot: HostSnapshot | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def show(self, snapshot: HostSnapshot) -> None:
        """Have the thread act on a pass."""
        with self._condition:
            self._snapshot = snapshot
            self._condition.notify()

    def stop(self, timeout: float) -> None:
        """End the thread within ``timeout`` seconds."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while (snapshot := self._next()) is not None:
            try:
                self._act(snapshot)
            except Exception:
                # A fault of one round is not to end the next ones.
                LOG.exception("%s: a round failed", self._thread.name)

    def _next(self) -> HostSnapshot | None:
        with self._condition:
            self._condition.wait_for(lambda: self._snapshot is not None or self._is_stopping)
            snapshot, self._snapshot = self._snapshot, None
            return None if self._is_stopping else snapshot
