"""Keeping admitted preloads: admits them, has the data plane fetch, starts again what was lost."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acstor import exception
from acstor.agent.reconciler import HostSnapshot
from acstor.control.client import AdminClient
from acstor.control.protocol import PreloadState, PreloadWhat
from acstor.preload import admission
from acstor.preload.admission import Estimate, Limits, Reason
from acstor.preload.admitted_preload import ADMITTED_MAX, AdmittedPreload, AdmittedPreloadFile
from acstor.preload.request import RATE_MIN, PreloadRequest
from acstor.preload.states import AdmittedPreloadEvent, AdmittedPreloadState

LOG = logging.getLogger(__name__)

TICK_SECONDS = 1.0
"""Time between two looks at the jobs while there are any."""
CALL_TIMEOUT = 5.0
"""Seconds that the data plane may take to answer."""
ESTIMATE_TIMEOUT = 8.0
_RAISED = 1.1
_LOWERED = 0.7
"""A rate is changed when the one that is needed is so much higher or lower."""

_EVENTS = {
    PreloadState.QUEUED: (AdmittedPreloadEvent.WAIT, "other preloads go first"),
    PreloadState.RUNNING: (AdmittedPreloadEvent.RESUME, None),
    PreloadState.YIELDING: (AdmittedPreloadEvent.YIELD, None),
    PreloadState.WAITING: (AdmittedPreloadEvent.WAIT, "the origin does not answer"),
}
_REFUSALS: dict[Reason, type[exception.AcstorError]] = {
    Reason.ROOM: exception.ExhaustedError,
    Reason.PIN: exception.ExhaustedError,
    Reason.RATE: exception.OverloadedError,
}


class Preloading:
    """Reconciler of the admitted preloads of this host; other hosts ask through its RPC endpoint.

    :param path: of the file of admitted preloads.
    :param data_plane: of this host.
    :param keep_ended: seconds for which an admitted preload that has ended is remembered.
    :param link_bytes_per_s: tells the speed of the link in one direction; None: not known.
    :param on_change: called with all admitted preloads after each look at them, for metrics.
    :param clock: POSIX seconds.
    """

    name = "preloads"

    def __init__(
        self,
        host: str,
        path: str,
        data_plane: AdminClient,
        limits: Limits,
        *,
        keep_ended: float,
        link_bytes_per_s: Callable[[], float | None] = lambda: None,
        on_change: Callable[[Sequence[AdmittedPreload]], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._file = AdmittedPreloadFile(path)
        self._data_plane = data_plane
        self._limits = limits
        self._keep_ended = keep_ended
        self._link_bytes_per_s = link_bytes_per_s
        self._on_change = on_change
        self._clock = clock
        self._local_file: Callable[[str], str | None] = lambda image: None
        self._condition = threading.Condition(threading.RLock())  # of everything below
        self._admitted: dict[str, AdmittedPreload] = {}  # by image, the newest
        self._started: dict[
            str, str
        ] = {}  # image -> admitted preload whose job this agent has started
        self._sight: HostSnapshot | None = None
        self._problem: str | None = None
        self._is_stopping = False
        self._is_woken = False
        self._thread = threading.Thread(target=self._run, name="preloading", daemon=True)
        self._load()

    # The reconciler

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Note how things are; return whether admitted preloads cannot be kept across restarts."""
        with self._condition:
            self._sight = snapshot
            if any(map(_needs_job, self._admitted.values())):
                self._wake()
            return {} if self._problem is None else {self.name: self._problem}

    def stop(self, timeout: float) -> None:
        """End the thread within ``timeout`` seconds; the data plane goes on with its jobs."""
        with self._condition:
            self._is_stopping = True
            self._wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    # What other hosts ask

    def estimate(self, image: str, what: PreloadWhat) -> Estimate:
        """Return what a preload would mean for this host.

        :raises NotFoundError: when the image is not offered here, or has no working set here.
        :raises UnavailableError: when the data plane does not answer.
        """
        found = self._data_plane.call(
            "preload.estimate", call_timeout=ESTIMATE_TIMEOUT, image=image, what=str(what)
        )
        with self._condition:
            own = self._admitted.get(image)
            others = [each for each in self._active() if each.image != image]
            return Estimate(
                host=self._host,
                total_bytes=int(found["total_bytes"]),
                missing_bytes=int(found["missing_bytes"]),
                free_bytes=int(found["free_bytes"]),
                evictable_bytes=int(found["evictable_bytes"]),
                pinnable_bytes=int(found["pinnable_bytes"]),
                default_rate=self._limits.rate,
                most_rate=self._limits.most(self._link_bytes_per_s()),
                margin=self._limits.margin,
                promised_rate=sum(each.rate_bytes_per_s for each in others),
                promised_bytes=sum(each.remaining_bytes for each in others),
                is_draining=self._sight is not None and self._sight.is_draining,
                active=own.id if own is not None and not own.state.has_ended else None,
            )

    def admit(self, admission_id: str, request: PreloadRequest) -> dict[str, object]:
        """Admit a preload and begin it; asked again with the same id, nothing new happens.

        :returns: :meth:`.AdmittedPreload.to_status`.
        :raises InvalidError: and the like by :class:`.Reason` when it cannot be admitted.
        :raises OSError: when the admitted preload cannot be written down.
        """
        estimate = self.estimate(request.image, request.what)
        with self._condition:
            now = self._clock()
            own = self._admitted.get(request.image)
            if own is not None and own.id == admission_id:
                return own.to_status(self._host, now)
            verdict = admission.judge(request, estimate)
            if verdict.reason is not None:
                raise _REFUSALS.get(verdict.reason, exception.InvalidError)(
                    f"host {self._host} cannot admit it: {verdict.text}",
                    hint="ask for less, or wait for what it has admitted already",
                )
            if len(self._admitted) >= ADMITTED_MAX:
                raise exception.ExhaustedError(
                    f"host {self._host} remembers {ADMITTED_MAX} preloads already",
                    hint="lower [preload] keep_ended there",
                )
            admitted = AdmittedPreload(
                id=admission_id,
                image=request.image,
                what=request.what,
                pin=request.pin,
                rate_bytes_per_s=verdict.rate_bytes_per_s,
                is_rate_fixed=request.rate_bytes_per_s is not None,
                deadline_at=None if request.deadline_s is None else now + request.deadline_s,
                promised_at=now,
                total_bytes=estimate.total_bytes,
                missing_bytes=estimate.missing_bytes,
                remaining_bytes=estimate.missing_bytes,
            )
            # Written down before anybody hears of it.
            self._file.save([*self._all_but(request.image), admitted])
            self._admitted[request.image] = admitted
            self._wake()
            LOG.info("admitted to preload %s of image %s", request.what, request.image)
            return admitted.to_status(self._host, now)

    def status(self, image: str | None = None) -> list[dict[str, object]]:
        """Return all of them, or that of one image, as :meth:`.AdmittedPreload.to_status`."""
        with self._condition:
            now = self._clock()
            found = [
                admitted.to_status(self._host, now)
                for admitted in sorted(self._admitted.values(), key=lambda each: each.promised_at)
                if image in {None, admitted.image}
            ]
        # Without the lock: who looks after local files asks for preloads under one of its own.
        return [each | {"local_file": self._local_file(str(each["image"]))} for each in found]

    def follow_local_files(self, local_file: Callable[[str], str | None]) -> None:
        """Tell with each preload the state of its local file, which ``local_file`` returns."""
        self._local_file = local_file

    def kept_whole(self) -> frozenset[str]:
        """Return the ids of the images that are preloaded whole, and pinned."""
        kept = {AdmittedPreloadState.DONE, AdmittedPreloadState.MISSED}
        with self._condition:
            return frozenset(
                each.image
                for each in self._admitted.values()
                if each.pin and each.what is PreloadWhat.FULL and each.state in kept
            )

    def give_up(self, image: str, admission_id: str | None = None) -> dict[str, object]:
        """Stop a preload; what it has brought stays, what it has pinned is let go.

        :param promise_id: only if it is this one.
        :raises NotFoundError: when there is nothing to stop.
        """
        with self._condition:
            admitted = self._admitted.get(image)
            if (
                admitted is None
                or admission_id not in {None, admitted.id}
                or not _needs_job(admitted)
            ):
                raise exception.NotFoundError(
                    f"host {self._host} preloads nothing of image {image}",
                    hint="'acstor preload list' shows what is preloaded",
                )
            admitted.move(AdmittedPreloadEvent.STOP, self._clock())
            self._save()
        self._end_job(admitted)
        return admitted.to_status(self._host, self._clock())

    # The thread

    def _run(self) -> None:
        while self._wait():
            try:
                self.tick()
            except Exception:
                # A fault of one pass is not to break all admitted preloads.
                LOG.exception("looking at preloads failed")

    def _wait(self) -> bool:
        with self._condition:
            is_busy = any(map(_needs_job, self._admitted.values()))
            self._condition.wait_for(
                lambda: self._is_woken or self._is_stopping, TICK_SECONDS if is_busy else None
            )
            self._is_woken = False
            return not self._is_stopping

    def _wake(self) -> None:
        self._is_woken = True
        self._condition.notify_all()

    def tick(self) -> None:
        """Look at the data plane's jobs once and act on the difference."""
        with self._condition:
            wanted = [each for each in self._admitted.values() if _needs_job(each)]
        if wanted:
            try:
                jobs = {
                    str(job["image"]): job
                    for job in self._data_plane.call("preload.status", call_timeout=CALL_TIMEOUT)
                }
                for admitted in wanted:
                    self._keep(admitted, jobs.get(admitted.image))
            except exception.UnavailableError as error:
                self._wait_for_data_plane(wanted, str(error))
        with self._condition:
            self._forget_old()
            self._on_change(list(self._admitted.values()))

    def _keep(self, admitted: AdmittedPreload, job: Mapping[str, Any] | None) -> None:
        """Bring one admitted preload and its job together."""
        snapshot = self._sight
        if (
            snapshot is not None
            and snapshot.registered is not None
            and admitted.image not in snapshot.registered
            and admitted.image not in snapshot.offered
        ):
            self._move(admitted, AdmittedPreloadEvent.FAIL, "the image is no longer registered")
            return
        if job is None or job["is_hint"] or self._started.get(admitted.image) != admitted.id:
            job = self._start_job(admitted)
        if job is None:
            return
        self._follow(admitted, job)
        self._adapt_rate(admitted)

    def _start_job(self, admitted: AdmittedPreload) -> Mapping[str, Any] | None:
        """Start the job or change its rate; None when the data plane cannot now."""
        if not admitted.state.has_ended:
            admitted.rate_bytes_per_s = self._needed_rate(admitted)
        try:
            job: Mapping[str, Any] = self._data_plane.call(
                "preload.start",
                call_timeout=CALL_TIMEOUT,
                image=admitted.image,
                what=str(admitted.what),
                rate_bytes_per_s=admitted.rate_bytes_per_s,
                pin=admitted.pin,
            )
        except exception.UnavailableError:
            raise
        except exception.NotFoundError as error:
            # Not attached yet, after a restart; or its working set was not given yet.
            self._move(admitted, AdmittedPreloadEvent.WAIT, str(error))
            return None
        except exception.AcstorError as error:
            self._move(admitted, AdmittedPreloadEvent.FAIL, str(error))
            return None
        self._started[admitted.image] = admitted.id
        if admitted.state is AdmittedPreloadState.STOPPED:  # meanwhile
            self._end_job(admitted)
            return None
        return job

    def _follow(self, admitted: AdmittedPreload, job: Mapping[str, Any]) -> None:
        """Take over how far the data plane is."""
        state = PreloadState(job["state"])
        with self._condition:
            if admitted.state.has_ended:  # a pin that is kept
                if state is PreloadState.FAILED:
                    self._move(admitted, AdmittedPreloadEvent.FAIL, str(job["error"]))
                return
            if state is not PreloadState.QUEUED:
                admitted.total_bytes = int(job["total_bytes"])
                admitted.remaining_bytes = int(job["remaining_bytes"])
                admitted.recent_bytes_per_s = int(job["recent_bytes_per_s"])
            match state:
                case PreloadState.DONE:
                    event = AdmittedPreloadEvent.FINISH
                    if admitted.is_late(self._clock()):
                        event = AdmittedPreloadEvent.FINISH_LATE
                    self._move(admitted, event)
                case PreloadState.FAILED:
                    self._move(admitted, AdmittedPreloadEvent.FAIL, str(job["error"]))
                case PreloadState.STOPPED:
                    self._move(admitted, AdmittedPreloadEvent.STOP, "it was stopped on the host")
                case _:
                    self._move(admitted, *_EVENTS[state])

    def _adapt_rate(self, admitted: AdmittedPreload) -> None:
        """Catch up what guests have cost, or leave them more where there is time."""
        if admitted.state.has_ended:
            return
        needed, present = self._needed_rate(admitted), admitted.rate_bytes_per_s
        if needed > present * _RAISED or needed < present * _LOWERED:
            LOG.debug("preload of %s: %d bytes/s instead of %d", admitted.image, needed, present)
            self._start_job(admitted)

    def _needed_rate(self, admitted: AdmittedPreload) -> int:
        """Return the rate that the admitted preload takes now, as far as the host may give it."""
        if admitted.is_rate_fixed or admitted.deadline_at is None:
            return admitted.rate_bytes_per_s
        with self._condition:
            left = admitted.deadline_at - self._clock()
            needed = admission.rate_for(admitted.remaining_bytes, left, self._limits.margin)
            most = self._limits.most(self._link_bytes_per_s())
            if most is None:
                return needed
            others = sum(each.rate_bytes_per_s for each in self._active() if each is not admitted)
            return max(RATE_MIN, min(needed, most - others))

    def _end_job(self, admitted: AdmittedPreload) -> None:
        """Have the data plane stop; what is not there any more needs no stop."""
        try:
            if admitted.pin:
                # Only a job without pin takes back what a former one pinned.
                self._data_plane.call(
                    "preload.start",
                    call_timeout=CALL_TIMEOUT,
                    image=admitted.image,
                    what=str(admitted.what),
                    rate_bytes_per_s=RATE_MIN,
                    pin=False,
                )
            self._data_plane.call("preload.stop", call_timeout=CALL_TIMEOUT, image=admitted.image)
        except (exception.UnavailableError, exception.NotFoundError) as error:
            LOG.info("nothing to stop of image %s: %s", admitted.image, error)

    def _wait_for_data_plane(self, wanted: Sequence[AdmittedPreload], reason: str) -> None:
        with self._condition:
            for admitted in wanted:
                self._started.pop(admitted.image, None)
                if not admitted.state.has_ended:
                    self._move(admitted, AdmittedPreloadEvent.WAIT, reason)

    # What is remembered

    def _move(
        self, admitted: AdmittedPreload, event: AdmittedPreloadEvent, error: str | None = None
    ) -> None:
        with self._condition:
            is_stopped = admitted.state is AdmittedPreloadState.STOPPED
            keeps_pin = admitted.state.has_ended and event is AdmittedPreloadEvent.WAIT
            if is_stopped or keeps_pin or not admitted.move(event, self._clock(), error):
                return
            LOG.info(
                "preload of image %s: %s%s",
                admitted.image,
                admitted.state,
                f", {error}" if error else "",
            )
            if admitted.state.has_ended:
                self._save()

    def _active(self) -> list[AdmittedPreload]:
        return [each for each in self._admitted.values() if not each.state.has_ended]

    def _all_but(self, image: str) -> list[AdmittedPreload]:
        return [each for each in self._admitted.values() if each.image != image]

    def _forget_old(self) -> None:
        now = self._clock()
        kept = {
            image: admitted
            for image, admitted in self._admitted.items()
            if _needs_job(admitted) or now - (admitted.ended_at or now) < self._keep_ended
        }
        if len(kept) < len(self._admitted):
            self._admitted = kept
            self._started = {key: known for key, known in self._started.items() if key in kept}
            self._save()

    def _load(self) -> None:
        try:
            self._admitted = {admitted.image: admitted for admitted in self._file.load()}
        except exception.AcstorError as error:
            LOG.error("what this host admitted to preload is lost: %s", error)
            self._file.put_aside()
        except OSError as error:
            self._problem = f"what is admitted cannot be read: {error}"

    def _save(self) -> None:
        try:
            self._file.save(self._admitted.values())
            self._problem = None
        except OSError as error:
            self._problem = f"what is admitted cannot be written down: {error}"


def _needs_job(admitted: AdmittedPreload) -> bool:
    """Return whether the data plane has something to do for an admitted preload, or to keep."""
    return not admitted.state.has_ended or (
        admitted.pin and admitted.state in {AdmittedPreloadState.DONE, AdmittedPreloadState.MISSED}
    )
