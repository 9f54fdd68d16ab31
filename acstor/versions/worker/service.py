"""The worker's life: take tasks, run their flows; as the leader tick schedules and sweep."""

import concurrent.futures
import datetime
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from typing import Protocol

from oslo_config import cfg

from acstor import exception
from acstor.repository.versions.store import VersionStore
from acstor.service import Problems, ReconcileLoop, Watchdog
from acstor.versions.database.opening import Stores
from acstor.versions.database.tasks import Lease, Task
from acstor.versions.flows.work import Interrupted, Work
from acstor.versions.lifecycle.followed_servers import FollowedServers
from acstor.versions.lifecycle.own_tasks import OwnTasks
from acstor.versions.services.services import Services
from acstor.versions.worker.flow_books import FlowBooks
from acstor.versions.worker.flow_runner import FlowRunner
from acstor.versions.worker.leases import Leases, TaskControl
from acstor.versions.worker.left_images import LeftImages
from acstor.versions.worker.metrics import WorkerMetrics
from acstor.versions.worker.schedule_ticker import ScheduleTicker
from acstor.versions.worker.sweep import BackgroundSweep, Sweep

LOG = logging.getLogger(__name__)

STOP_TIMEOUT = 20.0
"""Seconds for which the end waits for steps that are under way; others go on with the tasks."""


class Leader(Protocol):
    """Election of one worker for what one does alone."""

    @property
    def is_leader(self) -> bool:
        """True if this worker is elected."""

    @property
    def problem(self) -> str | None:
        """Reason for which nobody can be elected."""

    def start(self) -> None:
        """Want it."""

    def stop(self, timeout: float) -> None:
        """Give it back."""


class Listener(Protocol):
    """Hears of events of servers, on threads of its own."""

    @property
    def problem(self) -> str | None:
        """Reason for which nothing is heard."""

    def start(self) -> None:
        """Listen."""

    def stop(self, timeout: float) -> None:
        """Listen no more."""


class WorkerService:
    """One worker.

    :param books: rows of flows, for the sweep.
    :param leader: of schedules and sweeps.
    :param listener: hears of events of servers; None: nobody does.
    :param followed: servers whose hosts are told; None: none is.
    :param open_versions: returns the versions in the origin; tried again until it succeeds.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        stores: Stores,
        runner: FlowRunner,
        books: FlowBooks,
        services: Services,
        leader: Leader,
        listener: Listener | None,
        followed: FollowedServers | None = None,
        open_versions: Callable[[], VersionStore],
        metrics: WorkerMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin nothing yet."""
        self._options = conf.worker
        self._stores = stores
        self._runner = runner
        self._books = books
        self._services = services
        self._leader = leader
        self._listener = listener
        self._followed = followed
        self._open_versions = open_versions
        self._versions: VersionStore | None = None
        self._metrics = metrics
        self._clock = clock
        self.name = f"{conf.host}/{os.getpid()}-{secrets.token_hex(4)}"
        self._loop = ReconcileLoop(self.reconcile, self._seconds_to_next_pass, logger=LOG)
        self._leases = Leases(stores.tasks, self._options.lease_seconds, clock)
        self._pool = concurrent.futures.ThreadPoolExecutor(self._options.jobs, "task")
        self._slots = threading.Semaphore(self._options.jobs)
        own_tasks = OwnTasks(stores.tasks, self._options.own_tasks_max)
        self._ticker = ScheduleTicker(stores.schedules, own_tasks)
        self._next_tick = 0.0
        self._sweep = BackgroundSweep(
            self._options.purge_interval,
            self._options.index_interval,
            self._options.follow_interval,
        )
        self._problems = Problems(LOG, with_hints=True)

    def is_healthy(self) -> bool:
        """Return whether nothing was wrong at the last pass."""
        return not self._problems

    def reconcile_soon(self) -> None:
        """Look for tasks now; from any thread, and from a signal handler."""
        self._loop.reconcile_soon()

    def stop(self) -> None:
        """End :meth:`run` soon; from any thread, and from a signal handler."""
        self._loop.stop()

    def run(self, watchdog: Watchdog | None = None) -> None:
        """Work until stopped."""
        self._leader.start()
        self._leases.start()
        if self._listener is not None:
            self._listener.start()
        try:
            self._loop.run(watchdog)
        finally:
            if self._listener is not None:
                self._listener.stop(STOP_TIMEOUT)
            if self._followed is not None:
                self._followed.stop()
            self._leases.stop_work()
            self._pool.shutdown(wait=False, cancel_futures=True)
            end = self._clock() + STOP_TIMEOUT
            for _ in range(self._options.jobs):
                if not self._slots.acquire(timeout=max(0.0, end - self._clock())):
                    LOG.warning("a step did not end in time; another worker goes on with its task")
                    break
            self._sweep.stop()
            self._leases.stop(STOP_TIMEOUT)
            self._leader.stop(STOP_TIMEOUT)

    def reconcile(self) -> None:
        """Take what tasks there are room for; as the leader do what is due."""
        found: dict[str, str] = {}
        if self._versions is None:
            self._versions = self._problems.attempt(found, "origin", self._open_versions)
        if self._leader.problem is not None:
            found["coordination"] = self._leader.problem
        if self._listener is not None and self._listener.problem is not None:
            found["message broker"] = self._listener.problem
        if self._versions is not None:
            versions = self._versions
            self._problems.attempt(found, "tasks", lambda: self._take_tasks(versions))
            self._metrics.leader.set(self._leader.is_leader)
            if self._leader.is_leader:
                self._lead(versions, found)
        self._problems.replace(found)

    # Tasks

    def _take_tasks(self, versions: VersionStore) -> None:
        while not self._loop.is_stopping and self._slots.acquire(blocking=False):
            is_begun = False
            try:
                begun_at = self._clock()
                taken = self._stores.tasks.take(self.name, self._options.lease_seconds)
                if taken is None:
                    return
                task, lease = taken
                control = self._leases.add(lease, begun_at, is_cancelled=task.is_cancelled)
                work = self._work(task, lease, versions, control)
                self._pool.submit(self._run_task, work, control)
                is_begun = True
            finally:
                if not is_begun:
                    self._slots.release()

    def _work(self, task: Task, lease: Lease, versions: VersionStore, control: TaskControl) -> Work:
        return Work(
            task,
            lease,
            stores=self._stores,
            versions=versions,
            services=self._services,
            control=control,
            lease_seconds=self._options.lease_seconds,
        )

    def _run_task(self, work: Work, control: TaskControl) -> None:
        task = work.task
        LOG.info("task %s (%s), epoch %d, begins", task.id, task.kind, task.epoch)
        try:
            ended = self._runner.run(work)
        except Interrupted:
            self._release(work)
        except Exception:
            # A fault of one task is not to end the worker: the task is taken again, and fails when
            # that happens too often.
            LOG.exception("task %s failed in the worker itself", task.id)
        else:
            LOG.info("task %s (%s) is %s", task.id, task.kind, ended.state)
            self._metrics.tasks.labels(task.kind.value, ended.state.value).inc()
        finally:
            self._leases.remove(control)
            self._slots.release()
            self._loop.reconcile_soon()

    def _release(self, work: Work) -> None:
        """Have another worker go on at once, if the database can be told."""
        LOG.info("task %s is left to others", work.task.id)
        try:
            self._stores.tasks.release(work.lease)
        except exception.AcstorError as error:
            LOG.warning("the lease of task %s is not given back: %s", work.task.id, error)

    # Leading

    def _lead(self, versions: VersionStore, found: dict[str, str]) -> None:
        now = self._clock()
        if now >= self._next_tick:
            started = self._problems.attempt(found, "schedules", self._tick)
            self._next_tick = now + self._options.tick_interval
            if started:
                self._loop.reconcile_soon()
        left_images = LeftImages(
            self._stores,
            versions,
            self._services,
            datetime.timedelta(seconds=self._options.left_image_grace),
            count=self._metrics.images.inc,
        )
        sweep = Sweep(
            self._stores, versions, self._books, self._services, self._followed, left_images
        )
        self._sweep.begin_if_due(sweep, now)
        if self._sweep.problem is not None:
            found["sweep"] = self._sweep.problem

    def _tick(self) -> int:
        started = self._ticker.tick(lambda: self._loop.is_stopping or not self._leader.is_leader)
        self._metrics.runs.inc(started)
        return started

    def _seconds_to_next_pass(self) -> float:
        if not self._leader.is_leader:
            return float(self._options.poll_interval)
        return float(max(0.0, min(self._options.poll_interval, self._next_tick - self._clock())))
