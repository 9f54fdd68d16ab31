"""Sweeping what is not needed any more: old rows, and an index that is behind.

Everything here may be done by anybody at any time, and again.
"""

import concurrent.futures
import logging
from collections.abc import Callable

from acstor import exception
from acstor.repository.versions.store import VersionStore
from acstor.versions.database import index_refresh
from acstor.versions.database.opening import Stores
from acstor.versions.lifecycle.followed_servers import FollowedServers
from acstor.versions.services.services import Services
from acstor.versions.worker.flow_books import FlowBooks
from acstor.versions.worker.left_images import LeftImages
from acstor.versions.worker.leftovers import Leftovers

LOG = logging.getLogger(__name__)


class Sweep:
    """Sweeps the databases."""

    def __init__(
        self,
        stores: Stores,
        versions: VersionStore,
        books: FlowBooks,
        services: Services,
        followed: FollowedServers | None = None,
        left_images: LeftImages | None = None,
    ) -> None:
        """Keep what to sweep."""
        self._stores = stores
        self._versions = versions
        self._books = books
        self._services = services
        self._followed = followed
        self._left_images = left_images

    def purge(self) -> None:
        """Remove old tasks, runs and keys, and what tasks that have ended left behind.

        :raises UnavailableError: when the database cannot be reached; the next one goes on.
        """
        leftovers = Leftovers(self._stores, self._versions, self._services)
        steps: tuple[tuple[str, Callable[[], int]], ...] = (
            ("tasks", self._stores.tasks.purge),
            ("runs of schedules", self._stores.schedules.purge_runs),
            ("idempotency keys", self._stores.keys.purge),
            ("rows of flows", lambda: self._books.sweep(self._is_ended)),
            ("leftovers of tasks", leftovers.remove),
            # Behind the leftovers: a version is then let go by tasks that have ended.
            ("images in Glance", self._remove_images),
        )
        for what, step in steps:
            if count := step():
                LOG.info("forgot %d %s", count, what)

    def _remove_images(self) -> int:
        return 0 if self._left_images is None else self._left_images.remove()

    def _is_ended(self, task_id: str) -> bool:
        try:
            return self._stores.tasks.get(task_id).is_finished
        except exception.NotFoundError:
            return True

    def tell_hosts(self) -> None:
        """Have hosts told of the servers whose disks they are to keep.

        :raises UnavailableError: when Nova, Glance or the database cannot be reached; the next one
            goes on.
        """
        if self._followed is not None:
            self._followed.look(self._services.compute.servers())

    def compare_index(self) -> None:
        """Make the index as the origin is.

        :raises UnavailableError: when origin or database cannot be reached; the next one goes on.
        """
        report = index_refresh.rebuild(self._stores.versions, self._versions.repository.origin)
        if report.written or report.removed:
            LOG.info(
                "the index of versions was behind: %d rows written, %d removed",
                report.written,
                report.removed,
            )
        for version_id in report.unreadable:
            LOG.error(
                "the record of version %s cannot be read; %s",
                version_id,
                exception.CorruptError.default_hint,
            )


class BackgroundSweep:
    """Sweeps on a thread of its own, when that is due.

    :param purge_interval: seconds between two purges.
    :param index_interval: seconds between two comparisons of the index.
    :param tell_interval: seconds between two words to hosts.
    """

    def __init__(self, purge_interval: float, index_interval: float, tell_interval: float) -> None:
        """Sweep nothing yet."""
        self._intervals = {"purge": purge_interval, "index": index_interval, "tell": tell_interval}
        self._next = dict.fromkeys(self._intervals, 0.0)
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "sweep")
        self._running: concurrent.futures.Future[None] | None = None
        self.problem: str | None = None
        """Reason for which the last one failed."""

    def begin_if_due(self, sweep: Sweep, now: float) -> None:
        """Begin what is due, unless one is under way.

        :param now: monotonic seconds.
        """
        if self._running is not None:
            if not self._running.done():
                return
            self._take_outcome(self._running)
            self._running = None
        steps = (("purge", sweep.purge), ("index", sweep.compare_index), ("tell", sweep.tell_hosts))
        for name, step in steps:
            if now >= self._next[name]:
                self._next[name] = now + self._intervals[name]
                self._running = self._pool.submit(step)
                return

    def stop(self) -> None:
        """Begin nothing any more; what is under way ends with the process."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take_outcome(self, ended: concurrent.futures.Future[None]) -> None:
        error = ended.exception()
        self.problem = None if error is None else exception.one_line(error)
        if error is not None and not isinstance(error, exception.AcstorError):
            LOG.error("a sweep failed", exc_info=error)
