"""The registrar's life: stand by, lead, look, register, collect garbage.

One thread decides and writes the image registry; registrations, garbage collection, coordination
and the message bus have threads of their own and wake it.
"""

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable

from oslo_config import cfg

from acstor import exception
from acstor.backoff import BackOff, jittered
from acstor.cluster.leader_lock import Leadership
from acstor.cluster.membership import CoordinationSettings
from acstor.origin.base import ObjectStore, Origin
from acstor.registrar import assembly
from acstor.registrar.collection import GarbageCollection
from acstor.registrar.compaction import compaction_of
from acstor.registrar.image_service.base import ImageService, ServiceImage
from acstor.registrar.image_service.watched import WatchedImageService
from acstor.registrar.member_power import power_parts
from acstor.registrar.member_upkeep import MemberUpkeep, upkeep_of
from acstor.registrar.metrics import RegistrarMetrics
from acstor.registrar.moves import MoveFollower
from acstor.registrar.notifications import ImageNotifications
from acstor.registrar.registration.download import empty_spool
from acstor.registrar.registration.file_registration import FileRegistrar
from acstor.registrar.registration.job import ImageJob, OutcomeKind
from acstor.registrar.registration.jobs import Jobs
from acstor.registrar.registry_sync import RegistrySync
from acstor.repository.opening import refuse_backup
from acstor.repository.origin_reserve import reserved_bytes
from acstor.repository.repository import Repository
from acstor.service import Problems, ReconcileLoop, Watchdog

LOG = logging.getLogger(__name__)

HINTS_MAX = 50
"""Images to look at singly; when more are named at once, all are compared."""
STOP_TIMEOUT = 10.0
RETRY = BackOff(first=2.0, longest=30.0)
"""Delays before a comparison that failed is begun again."""
_WAIT_MAX = 60.0


class _Lead:
    """Resources of a registrar while it leads."""

    def __init__(
        self,
        repository: Repository,
        sync: RegistrySync,
        gc: GarbageCollection,
        members: MemberUpkeep | None,
    ) -> None:
        self.repository = repository
        self.sync = sync
        self.gc = gc
        self.members = members

    @property
    def problems(self) -> dict[str, str]:
        """By part, what is wrong with what has threads of its own."""
        found = {"garbage collection": self.gc.problem}
        if self.members is not None:
            found["members of the origin"] = self.members.problem
        return {part: text for part, text in found.items() if text}

    def stop(self) -> None:
        """End what has threads of its own."""
        self.gc.stop()
        if self.members is not None:
            self.members.stop(STOP_TIMEOUT)


class RegistrarService:
    """One registrar.

    :param conf: checked configuration.
    :param open_service: opens the image service, which is to wait by calling what it is given.
    :param open_origin: opens the origin; tried again until it succeeds.
    :param file_registrar: registers files that are on this machine.
    :param clock: seconds since the epoch.
    :param monotonic: seconds, for what is measured of withdrawals.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        open_service: Callable[[Callable[[float], object]], ImageService],
        open_origin: Callable[[], Origin],
        metrics: RegistrarMetrics,
        file_registrar: FileRegistrar,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conf = conf
        self._metrics = metrics
        self._clock = clock
        self._monotonic = monotonic
        self._open_origin = open_origin
        self._origin: Origin | None = None
        self._loop = ReconcileLoop(
            self.reconcile,
            self._seconds_to_next_pass,
            logger=LOG,
            on_fault=self._lead_again_later,
        )
        self._service = WatchedImageService(open_service(self._loop.pause))
        self.name = f"{conf.host}/{os.getpid()}-{secrets.token_hex(2)}"
        self._hints: dict[str, None] = {}
        self._hints_lock = threading.Lock()
        self._reconcile_now = threading.Event()
        self._reconcile_at = 0.0  # monotonic
        self._failures = 0
        self._lead: _Lead | None = None
        self._last_sync: RegistrySync | None = None
        """Those of the last lead: what it began may end later."""
        self._notifications: ImageNotifications | None = None
        self._moves: MoveFollower | None = None
        self._problems = Problems(LOG, with_hints=True)
        self._image_problems: dict[str, str] = {}
        self._job_settings = assembly.job_settings(conf, file_registrar)
        self._jobs = Jobs(conf.registrar.workers, self._make_job, self._loop.reconcile_soon)
        self._leadership = Leadership(
            CoordinationSettings(
                conf.coordination.backend_url,
                conf.coordination.group,
                conf.coordination.heartbeat_interval,
                conf.coordination.member_timeout,
            ),
            "registrar",
            f"registrar-{self.name}",
            self._loop.reconcile_soon,
        )

    @property
    def is_leader(self) -> bool:
        """True if this registrar leads."""
        return self._leadership.is_leader

    @property
    def problems(self) -> dict[str, str]:
        """By dependency or image, what was wrong at the last pass."""
        return self._problems.copy()

    def is_healthy(self) -> bool:
        """Return whether nothing was wrong at the last pass; standing by is well."""
        return not self._problems and (self._lead is not None or not self.is_leader)

    def reconcile_soon(self) -> None:
        """Compare all images now; may be called from any thread and a signal handler."""
        self._reconcile_now.set()
        self._loop.reconcile_soon()

    def hint(self, event: str, image_id: str) -> None:
        """Look at an image soon; may be called from any thread."""
        self._metrics.notifications.labels(event).inc()
        with self._hints_lock:
            self._hints[image_id] = None
        self._loop.reconcile_soon()

    def stop(self) -> None:
        """End :meth:`run` soon; may be called from a signal handler."""
        self._loop.stop()

    def run(self, watchdog: Watchdog | None = None) -> None:
        """Work until stopped."""
        self._leadership.start()
        try:
            self._loop.run(watchdog)
        finally:
            self._stand_down()
            if not self._jobs.stop(STOP_TIMEOUT):
                LOG.warning("a registration did not end in time; the next registrar redoes it")
            self._return_attempts()
            self._leadership.stop(STOP_TIMEOUT)
            self._service.close()
            if self._origin is not None:
                self._origin.close()

    def reconcile(self) -> None:
        """Do what is due now."""
        problems: dict[str, str] = {}
        if self._leadership.problem is not None:
            problems["coordination"] = self._leadership.problem
        if self.is_leader:
            self._work(problems)
        else:
            self._stand_down()
            self._return_attempts()
        if self._notifications is not None and self._notifications.problem:
            problems["message broker"] = self._notifications.problem
        self._report(problems)

    # Leading

    def _work(self, problems: dict[str, str]) -> None:
        lead = self._problems.attempt(problems, "origin", self._led)
        if lead is None:
            self._failures += 1
            return
        for part in (
            self._take_outcomes,
            self._compare_if_due,
            self._follow_hints,
            self._start_jobs,
        ):
            try:
                part(lead)
            except exception.AcstorError as error:
                problems[self._culprit(error)] = self._problems.text(error)
                self._lead_again_later()
                break
        problems.update(self._image_problems)
        silent = lead.sync.silent_hosts()
        problems.update({f"host {host}": text for host, text in silent.items()})
        self._metrics.silent_hosts.set(len(silent))
        problems.update(lead.problems)
        lead.gc.run_if_due(lead.repository)
        self._metrics.set_images(lead.sync.counts())
        self._problems.attempt(problems, "origin", lambda: self._check_room(lead.repository.origin))

    def _check_room(self, objects: ObjectStore) -> None:
        space = objects.space()
        if space is not None:
            reserved = reserved_bytes(space, self._conf.origin.reserve_percent)
            self._metrics.origin_free.set(space.free_bytes)
            self._metrics.origin_reserved.set(reserved)

    def _led(self) -> _Lead:
        """Return what is needed to lead; at first, begin to lead."""
        if self._lead is None:
            if self._origin is None:
                self._origin = self._open_origin()
            repository = Repository.open(self._origin)
            refuse_backup(self._origin)
            try:
                left = empty_spool(self._conf.registrar.spool_path)
            except OSError as error:
                raise exception.InvalidError(
                    f"the spool cannot be used: {self._conf.registrar.spool_path}: "
                    f"{error.strerror}",
                    hint="correct [registrar] spool_path or its permissions",
                ) from error
            if left and not len(self._jobs):
                LOG.info("removed %d files that a killed registrar left in the spool", left)
            self._lead = _Lead(
                repository,
                assembly.registry_sync(
                    self._conf,
                    self._service,
                    repository,
                    self._jobs,
                    self.name,
                    self._metrics.removals.inc,
                    self._clock,
                    self._monotonic,
                ),
                GarbageCollection(
                    self._conf.host,
                    self._conf.gc.grace,
                    self._conf.registrar.gc_interval,
                    self._metrics,
                    self._conf.registration.cache_path or None,
                    compaction_of(self._conf),
                    self._loop.reconcile_soon,
                ),
                upkeep_of(
                    self._origin,
                    self._conf.origin.sync_rate,
                    self.name,
                    self._metrics,
                    lambda: power_parts(self._conf),
                ),
            )
            if self._lead.members is not None:
                self._lead.members.start()
            self._last_sync = self._lead.sync
            self._reconcile_now.set()
            LOG.info("this registrar leads")
            self._listen()
        return self._lead

    def _listen(self) -> None:
        from acstor.rpc import transport

        if transport.is_configured(self._conf) and self._notifications is None:
            self._notifications = ImageNotifications(self._conf, self.hint, self.reconcile_soon)
            self._notifications.start()
            if self._conf.registrar.nova_notification_topics:
                self._moves = MoveFollower(
                    self._conf, lambda what: self._metrics.moves.labels(what).inc()
                )
                self._moves.start()

    def _stand_down(self) -> None:
        notifications, self._notifications = self._notifications, None
        if notifications is not None:
            notifications.stop(STOP_TIMEOUT)
        moves, self._moves = self._moves, None
        if moves is not None:
            moves.stop(STOP_TIMEOUT)
        if self._lead is not None:
            self._lead.stop()
            self._lead = None
            self._image_problems = {}
            LOG.info("this registrar stands by")

    def _return_attempts(self) -> None:
        """Return registrations that were not wanted any more; whoever leads does them.

        Where that fails, or is too late, the next leader takes them for failed.
        """
        while (outcome := self._jobs.next_outcome()) is not None:
            if self._last_sync is not None and outcome.kind is OutcomeKind.CANCELLED:
                try:
                    self._last_sync.finish(outcome)
                except exception.AcstorError as error:
                    LOG.warning("image %s: %s", outcome.image.id, self._problems.text(error))
            self._jobs.forget(outcome.image.id)

    def _take_outcomes(self, lead: _Lead) -> None:
        while (outcome := self._jobs.next_outcome()) is not None:
            image_id = outcome.image.id
            try:
                lead.sync.finish(outcome)
            except exception.AcstorError as error:
                if error.is_transient:
                    self._jobs.put_back(outcome)
                    raise
                self._image_problems[f"image {image_id}"] = self._problems.text(error)
            self._metrics.note(outcome)
            self._jobs.forget(image_id)
            with self._hints_lock:  # Glance may have changed it meanwhile
                self._hints[image_id] = None

    def _compare_if_due(self, lead: _Lead) -> None:
        if time.monotonic() < self._reconcile_at and not self._reconcile_now.is_set():
            return
        self._reconcile_now.clear()
        with self._hints_lock:
            hints, self._hints = self._hints, {}
        try:
            with self._metrics.reconciliation_seconds.time():
                self._image_problems = lead.sync.reconcile(
                    lambda: self.is_leader and not self._loop.is_stopping
                )
        except exception.AcstorError:
            self._metrics.reconciliations.labels("failed").inc()
            with self._hints_lock:
                self._hints = {**hints, **self._hints}
            raise
        self._failures = 0
        interval = jittered(self._conf.registrar.interval)
        self._reconcile_at = time.monotonic() + interval
        outcome = "incomplete" if self._image_problems else "complete"
        self._metrics.reconciliations.labels(outcome).inc()
        self._metrics.reconciled_at.set(self._clock())

    def _follow_hints(self, lead: _Lead) -> None:
        with self._hints_lock:
            if len(self._hints) > HINTS_MAX:
                self._hints = {}
                self.reconcile_soon()
                return
        seen: set[str] = set()
        while self.is_leader and not self._loop.is_stopping:
            due = lead.sync.next_due()
            with self._hints_lock:
                image_id = next(iter(self._hints), None)
                if image_id is not None:
                    del self._hints[image_id]
            if image_id is None:
                if due is None or due[0] > self._clock() or due[1] in seen:
                    return
                image_id = due[1]
                seen.add(image_id)
            self._reconcile_image(lead, image_id)
            self._start_jobs(lead)

    def _reconcile_image(self, lead: _Lead, image_id: str) -> None:
        name = f"image {image_id}"
        try:
            lead.sync.reconcile_image(image_id)
        except exception.AcstorError as error:
            if error.is_transient:
                with self._hints_lock:
                    self._hints[image_id] = None
                raise
            self._image_problems[name] = self._problems.text(error)
            lead.sync.known.pop(image_id, None)  # not due again before the next comparison
        else:
            self._image_problems.pop(name, None)

    def _start_jobs(self, lead: _Lead) -> None:
        while self._jobs.has_room and not self._loop.is_stopping:
            image = lead.sync.next_image()
            if image is None:
                break
            if self._jobs.key_of(image.id) is not None:
                del lead.sync.due[image.id]  # it has not ended yet, and is looked at when it has
            elif lead.sync.start(image):
                self._jobs.start(image)
        self._metrics.running.set(len(self._jobs))

    def _make_job(self, image: ServiceImage) -> ImageJob:
        if self._lead is None:
            raise exception.InternalError("a registration without a lead")
        return ImageJob(
            self._service,
            self._lead.repository,
            image,
            self._job_settings,
            is_wanted=lambda: self.is_leader,
        )

    # Reporting and waiting

    def _culprit(self, error: exception.AcstorError) -> str:
        return "image service" if error is self._service.last_error else "origin"

    def _lead_again_later(self) -> None:
        self._failures += 1
        delay = min(RETRY.seconds(self._failures), self._conf.registrar.interval)
        self._reconcile_at = time.monotonic() + delay

    def _report(self, problems: dict[str, str]) -> None:
        self._problems.replace(problems)
        metrics = self._metrics
        metrics.leader.set(self.is_leader)
        metrics.running.set(len(self._jobs))
        for dependency, name in (
            ("coordination", "coordination"),
            ("origin", "origin"),
            ("image_service", "image service"),
            ("broker", "message broker"),
        ):
            metrics.up.set(dependency, name not in problems)

    def _seconds_to_next_pass(self) -> float:
        if self._lead is None:
            return RETRY.seconds(self._failures) if self.is_leader else _WAIT_MAX
        if self._lead.sync.due and self._jobs.has_room:
            return 0.0 if not self._problems else 1.0
        waits = [_WAIT_MAX, self._reconcile_at - time.monotonic()]
        waits.append(self._lead.gc.seconds_until_due())
        due = self._lead.sync.next_due()
        if due is not None:
            waits.append(due[0] - self._clock())
        return max(1.0 if self._problems else 0.05, min(waits))
