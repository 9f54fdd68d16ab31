"""The reconcile loop of a service of the control plane.

A *pass* compares what is with what should be and acts on the difference. The loop makes one pass
after the other until it is stopped: when the last one says that another is due, or when somebody
asks for it. A pass that fails ends nothing. What a pass finds wrong is kept as :class:`Problems`.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from acstor import exception
from acstor.alarm import Alarm

Result = TypeVar("Result")


class Problems:
    """Problems of the last pass, by their subject.

    Each problem is told when it appears and when it is over, not at each pass.

    :param logger: of the service.
    :param with_hints: whether the text of an error has what to do about it.
    """

    def __init__(self, logger: logging.Logger, *, with_hints: bool = False) -> None:
        self._logger = logger
        self._with_hints = with_hints
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Return whether anything was wrong."""
        return bool(self._known)

    def __contains__(self, concern: object) -> bool:
        """Return whether something was wrong with it."""
        return concern in self._known

    def copy(self) -> dict[str, str]:
        """Return them."""
        return dict(self._known)

    def replace(self, found: Mapping[str, str]) -> None:
        """Take what a pass found, all of it; from any thread."""
        with self._lock:
            former, self._known = self._known, dict(found)
        for concern in sorted(found.keys() - former.keys()):
            self._logger.warning("%s: %s", concern, found[concern])
        for concern in sorted(former.keys() - found.keys()):
            self._logger.info("%s: in order again", concern)

    def text(self, error: Exception) -> str:
        """Return an error as it is told."""
        return exception.one_line(error, with_hint=self._with_hints)

    def note(self, found: dict[str, str], concern: str, error: Exception) -> None:
        """Put into ``found`` what a step of a pass failed by, so that it stops no other step.

        A fault of the program is told with its traceback, once.
        """
        found[concern] = self.text(error)
        if not isinstance(error, exception.AcstorError | OSError):
            found[concern] = f"a fault of ACStor: {type(error).__name__}: {found[concern]}"
            if concern not in self._known:
                self._logger.error("%s failed", concern, exc_info=error)

    def attempt(
        self, found: dict[str, str], concern: str, step: Callable[[], Result]
    ) -> Result | None:
        """Return what a step returns; None where it fails, which is noted."""
        try:
            return step()
        except Exception as error:
            self.note(found, concern, error)
            return None


@dataclass(frozen=True)
class Watchdog:
    """Watchdog that is told of each pass, and ends the process when there is none."""

    interval: float
    """Seconds without a word after which the process is ended."""
    pat: Callable[[], object]
    """Says that all is well."""


class ReconcileLoop:
    """Passes, one after the other, on the thread that calls :meth:`run`.

    :param reconcile: one pass.
    :param seconds_until_due: asked after each pass: how long until the next one, unless somebody
        asks for it.
    :param logger: of the service.
    :param on_fault: called after a pass that raised, which is told.
    """

    def __init__(
        self,
        reconcile: Callable[[], None],
        seconds_until_due: Callable[[], float],
        *,
        logger: logging.Logger,
        on_fault: Callable[[], None] = lambda: None,
    ) -> None:
        self._reconcile = reconcile
        self._seconds_until_due = seconds_until_due
        self._logger = logger
        self._on_fault = on_fault
        self._alarm = Alarm()

    @property
    def is_stopping(self) -> bool:
        """True if it was asked to end."""
        return self._alarm.is_over

    def reconcile_soon(self, within: float = 0.0) -> None:
        """Have a pass now; from any thread, and from a signal handler.

        :param within: seconds of which a random part is waited first.
        """
        self._alarm.ask(within)

    def stop(self) -> None:
        """End :meth:`run` after the pass; from any thread, and from a signal handler."""
        self._alarm.end()

    def pause(self, seconds: float) -> bool:
        """Wait within a pass, for so long or until asked to end; return whether that was asked."""
        return self._alarm.pause(seconds)

    def run(self, watchdog: Watchdog | None = None) -> None:
        """Make passes until stopped.

        :param watchdog: told after each pass and during the waits between two.
        """
        while not self.is_stopping:
            self._alarm.begin()
            try:
                self._reconcile()
            except Exception:
                # A fault of one pass is not to end the service.
                self._logger.exception("a reconcile pass failed")
                self._on_fault()
            self._wait(self._seconds_until_due(), watchdog)

    def _wait(self, seconds: float, watchdog: Watchdog | None) -> None:
        if watchdog is None:
            self._alarm.wait(seconds)
            return
        watchdog.pat()
        left = seconds
        while left > 0.0:
            part = min(left, watchdog.interval / 2)
            if self._alarm.wait(part):
                return
            watchdog.pat()
            left -= part
