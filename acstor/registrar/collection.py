"""Garbage collections of the registrar that leads, and compactions, on a thread of their own."""

import logging
import threading
import time
from collections.abc import Callable

from acstor import exception
from acstor.conf.types import MIB
from acstor.registrar.compaction import PacedCompaction
from acstor.registrar.metrics import RegistrarMetrics
from acstor.repository.gc.garbage import Collector, Report
from acstor.repository.gc.remembered_packs import remembered
from acstor.repository.repository import Repository

LOG = logging.getLogger(__name__)

FIRST_SHARE = 0.1
"""Share of the interval after which the first collection runs."""


class GarbageCollection:
    """Runs a collection now and then.

    Collections of several registrars at once do no harm (RFD 5), so nothing stops one whose
    registrar leads no more.

    :param interval: seconds; 0: never.
    :param cache_path: directory of what a collection remembers for the next one; None: nothing.
    :param compaction: follows each collection; None: packs are not compacted.
    :param on_end: called from the thread of a collection.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        host: str,
        grace_seconds: float,
        interval: float,
        metrics: RegistrarMetrics,
        cache_path: str | None,
        compaction: PacedCompaction | None = None,
        on_end: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._grace_seconds = grace_seconds
        self._interval = interval
        self._metrics = metrics
        self._cache_path = cache_path
        self._compaction = compaction
        self._on_end = on_end
        self._clock = clock
        self._due_at = clock() + FIRST_SHARE * interval
        self._thread: threading.Thread | None = None
        self.problem: str | None = None
        """Reason for which the last one failed."""

    def seconds_until_due(self) -> float:
        """Return the seconds until the next one; infinity while one runs, or for never."""
        if not self._interval or self._is_running():
            return float("inf")
        return max(0.0, self._due_at - self._clock())

    def run_if_due(self, repository: Repository) -> None:
        """Begin one if it is time."""
        if self.seconds_until_due() > 0:
            return
        self._due_at = self._clock() + self._interval
        self._thread = threading.Thread(
            target=self._collect, args=(repository,), name="garbage-collection", daemon=True
        )
        self._thread.start()

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _collected(self, repository: Repository) -> Report:
        with remembered(self._cache_path, repository) as known:
            collector = Collector(repository, self._host, self._grace_seconds, remembered=known)
            return collector.collect()

    def _collect(self, repository: Repository) -> None:
        outcome = "failed"
        try:
            report = self._collected(repository)
        except exception.AcstorError as error:
            self.problem = f"{error.message}; {error.hint}"
        except Exception as error:
            LOG.exception("garbage collection failed")
            self.problem = f"{type(error).__name__}: {error}"
        else:
            self.problem, outcome = None, "complete"
            self._metrics.freed.inc(report.bytes_freed)
            LOG.info(
                "collected garbage: %d manifests read, %d objects condemned, %d deleted, %.1f MiB "
                "freed, %.1f s", report.manifests_read, report.condemned, report.deleted,
                report.bytes_freed / MIB, report.seconds,
            )  # fmt: skip
        self._metrics.collections.labels(outcome).inc()
        if self.problem is None:
            self._compact(repository)
        self._on_end()

    def _compact(self, repository: Repository) -> None:
        """Compact after a collection that has ended well: what it saw is whole."""
        if self._compaction is None or not repository.may_be_compacted:
            return
        outcome = "failed"
        try:
            with remembered(self._cache_path, repository) as known:
                report = self._compaction.run(repository, self._host, known)
        except exception.AcstorError as error:
            LOG.warning("packs could not be compacted: %s; %s", error.message, error.hint)
        except Exception:
            LOG.exception("compaction failed")
        else:
            outcome = "complete"
            self._metrics.compacted.inc(report.bytes_to_free)
            self._metrics.compaction_written.inc(report.bytes_written)
        self._metrics.compactions.labels(outcome).inc()

    def stop(self) -> None:
        """End a compaction at its next step; a collection goes on, and does no harm."""
        if self._compaction is not None:
            self._compaction.stop()
