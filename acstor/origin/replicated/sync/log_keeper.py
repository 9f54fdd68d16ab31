"""The thread that stores the change logs of a process."""

import atexit
import logging
import threading

from acstor import exception
from acstor.origin.replicated.sync.change_log import ChangeLogWriter

LOG = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Time between two looks which segments are to be stored."""


class LogKeeper:
    """Stores segments of change logs that are due; its thread begins with the first note.

    :param log: keeps the segments.
    :param look_seconds: time between two looks.
    """

    def __init__(self, log: ChangeLogWriter, look_seconds: float = LOOK_SECONDS) -> None:
        self._log = log
        self._look_seconds = look_seconds
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_ended = threading.Event()

    def note(self, member: str, key: str, size: int) -> None:
        """Note what was stored in a member and is owed to others."""
        self._log.note(member, key, size)
        with self._lock:
            if self._thread is None and not self._is_ended.is_set():
                self._thread = threading.Thread(target=self._run, name="change-log", daemon=True)
                self._thread.start()
                # Commands end without closing what they opened.
                atexit.register(self.close)

    def close(self) -> None:
        """Store what there is. What cannot be stored is found by a comparison of listings."""
        with self._lock:
            if self._is_ended.is_set():
                return
            self._is_ended.set()
            thread = self._thread
        if thread is not None:
            atexit.unregister(self.close)
            thread.join()
            self._store(is_ending=True)

    def _run(self) -> None:
        while not self._is_ended.wait(self._look_seconds):
            self._store()

    def _store(self, *, is_ending: bool = False) -> None:
        try:
            self._log.store_due(is_ending=is_ending)
        except exception.AcstorError as error:
            LOG.warning("a change log is stored later: %s", exception.one_line(error))
        except Exception:
            LOG.exception("change logs cannot be stored")
