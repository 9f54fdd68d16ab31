"""Keeping promised preloads: admits them, has the data plane fetch, starts again what was lost."""

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
from acstor.preload.promise import PROMISES_MAX, Promise, PromiseFile
from acstor.preload.states import PromiseEvent, PromiseState
from acstor.preload.wish import RATE_MIN, Wish

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
    PreloadState.QUEUED: (PromiseEvent.WAIT, "other preloads go first"),
    PreloadState.RUNNING: (PromiseEvent.RESUME, None),
    PreloadState.YIELDING: (PromiseEvent.YIELD, None),
    PreloadState.WAITING: (PromiseEvent.WAIT, "the origin does not answer"),
}
_REFUSALS: dict[Reason, type[exception.AcstorError]] = {
    Reason.ROOM: exception.ExhaustedError,
    Reason.PIN: exception.ExhaustedError,
    Reason.RATE: exception.OverloadedError,
}


class Preloading:
    """Reconciler: keeps the promises of this host; other hosts ask through its RPC endpoint.

    :param path: of the file of promises.
    :param data_plane: of this host.
    :param keep_ended: seconds for which a promise that has ended is remembered.
    :param link_bytes_per_s: tells the speed of the link in one direction; None: not known.
    :param on_change: called with all promises after each look at them, for metrics.
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
        on_change: Callable[[Sequence[Promise]], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._file = PromiseFile(path)
        self._data_plane = data_plane
        self._limits = limits
        self._keep_ended = keep_ended
        self._link_bytes_per_s = link_bytes_per_s
        self._on_change = on_change
        self._clock = clock
        self._condition = threading.Condition(threading.RLock())  # of everything below
        self._promises: dict[str, Promise] = {}  # by image, the newest
        self._started: dict[str, str] = {}  # image -> promise whose job this agent has started
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
        """Note how things are; return whether promises cannot be kept across restarts."""
        with self._condition:
            self._sight = snapshot
            if any(map(_needs_job, self._promises.values())):
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
            own = self._promises.get(image)
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

    def promise(self, promise_id: str, wish: Wish) -> dict[str, object]:
        """Promise a preload and begin it; asked again with the same id, nothing new happens.

        :returns: :meth:`.Promise.to_status`.
        :raises InvalidError: and the like by :class:`.Reason` when it cannot be promised.
        :raises OSError: when the promise cannot be written down.
        """
        estimate = self.estimate(wish.image, wish.what)
        with self._condition:
            now = self._clock()
            own = self._promises.get(wish.image)
            if own is not None and own.id == promise_id:
                return own.to_status(self._host, now)
            verdict = admission.judge(wish, estimate)
            if verdict.reason is not None:
                raise _REFUSALS.get(verdict.reason, exception.InvalidError)(
                    f"host {self._host} cannot promise it: {verdict.text}",
                    hint="ask for less, or wait for what it has promised already",
                )
            if len(self._promises) >= PROMISES_MAX:
                raise exception.ExhaustedError(
                    f"host {self._host} remembers {PROMISES_MAX} preloads already",
                    hint="lower [preload] keep_ended there",
                )
            promise = Promise(
                id=promise_id,
                image=wish.image,
                what=wish.what,
                pin=wish.pin,
                rate_bytes_per_s=verdict.rate_bytes_per_s,
                is_rate_fixed=wish.rate_bytes_per_s is not None,
                deadline_at=None if wish.deadline_s is None else now + wish.deadline_s,
                promised_at=now,
                total_bytes=estimate.total_bytes,
                missing_bytes=estimate.missing_bytes,
                remaining_bytes=estimate.missing_bytes,
            )
            # Written down before anybody hears of it.
            self._file.save([*self._all_but(wish.image), promise])
            self._promises[wish.image] = promise
            self._wake()
            LOG.info("promised to preload %s of image %s", wish.what, wish.image)
            return promise.to_status(self._host, now)

    def status(self, image: str | None = None) -> list[dict[str, object]]:
        """Return all promises, or that of one image, as :meth:`.Promise.to_status`."""
        with self._condition:
            now = self._clock()
            return [
                promise.to_status(self._host, now)
                for promise in sorted(self._promises.values(), key=lambda each: each.promised_at)
                if image in {None, promise.image}
            ]

    def give_up(self, image: str, promise_id: str | None = None) -> dict[str, object]:
        """Stop a preload; what it has brought stays, what it has pinned is let go.

        :param promise_id: only if it is this one.
        :raises NotFoundError: when there is nothing to stop.
        """
        with self._condition:
            promise = self._promises.get(image)
            if promise is None or promise_id not in {None, promise.id} or not _needs_job(promise):
                raise exception.NotFoundError(
                    f"host {self._host} preloads nothing of image {image}",
                    hint="'acstor preload list' shows what is preloaded",
                )
            promise.move(PromiseEvent.STOP, self._clock())
            self._save()
        self._end_job(promise)
        return promise.to_status(self._host, self._clock())

    # The thread

    def _run(self) -> None:
        while self._wait():
            try:
                self.tick()
            except Exception:
                # A fault of one pass is not to break all promises.
                LOG.exception("looking at preloads failed")

    def _wait(self) -> bool:
        with self._condition:
            is_busy = any(map(_needs_job, self._promises.values()))
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
            wanted = [each for each in self._promises.values() if _needs_job(each)]
        if wanted:
            try:
                jobs = {
                    str(job["image"]): job
                    for job in self._data_plane.call("preload.status", call_timeout=CALL_TIMEOUT)
                }
                for promise in wanted:
                    self._keep(promise, jobs.get(promise.image))
            except exception.UnavailableError as error:
                self._wait_for_data_plane(wanted, str(error))
        with self._condition:
            self._forget_old()
            self._on_change(list(self._promises.values()))

    def _keep(self, promise: Promise, job: Mapping[str, Any] | None) -> None:
        """Bring one promise and its job together."""
        snapshot = self._sight
        if (
            snapshot is not None
            and snapshot.registered is not None
            and promise.image not in snapshot.registered
            and promise.image not in snapshot.offered
        ):
            self._move(promise, PromiseEvent.FAIL, "the image is no longer registered")
            return
        if job is None or job["is_hint"] or self._started.get(promise.image) != promise.id:
            job = self._start_job(promise)
        if job is None:
            return
        self._follow(promise, job)
        self._adapt_rate(promise)

    def _start_job(self, promise: Promise) -> Mapping[str, Any] | None:
        """Start the job or change its rate; None when the data plane cannot now."""
        if not promise.state.has_ended:
            promise.rate_bytes_per_s = self._needed_rate(promise)
        try:
            job: Mapping[str, Any] = self._data_plane.call(
                "preload.start",
                call_timeout=CALL_TIMEOUT,
                image=promise.image,
                what=str(promise.what),
                rate_bytes_per_s=promise.rate_bytes_per_s,
                pin=promise.pin,
            )
        except exception.UnavailableError:
            raise
        except exception.NotFoundError as error:
            # Not attached yet, after a restart; or its working set was not given yet.
            self._move(promise, PromiseEvent.WAIT, str(error))
            return None
        except exception.AcstorError as error:
            self._move(promise, PromiseEvent.FAIL, str(error))
            return None
        self._started[promise.image] = promise.id
        if promise.state is PromiseState.STOPPED:  # meanwhile
            self._end_job(promise)
            return None
        return job

    def _follow(self, promise: Promise, job: Mapping[str, Any]) -> None:
        """Take over how far the data plane is."""
        state = PreloadState(job["state"])
        with self._condition:
            if promise.state.has_ended:  # a pin that is kept
                if state is PreloadState.FAILED:
                    self._move(promise, PromiseEvent.FAIL, str(job["error"]))
                return
            if state is not PreloadState.QUEUED:
                promise.total_bytes = int(job["total_bytes"])
                promise.remaining_bytes = int(job["remaining_bytes"])
                promise.recent_bytes_per_s = int(job["recent_bytes_per_s"])
            match state:
                case PreloadState.DONE:
                    event = PromiseEvent.FINISH
                    if promise.is_late(self._clock()):
                        event = PromiseEvent.FINISH_LATE
                    self._move(promise, event)
                case PreloadState.FAILED:
                    self._move(promise, PromiseEvent.FAIL, str(job["error"]))
                case PreloadState.STOPPED:
                    self._move(promise, PromiseEvent.STOP, "it was stopped on the host")
                case _:
                    self._move(promise, *_EVENTS[state])

    def _adapt_rate(self, promise: Promise) -> None:
        """Catch up what guests have cost, or leave them more where there is time."""
        if promise.state.has_ended:
            return
        needed, present = self._needed_rate(promise), promise.rate_bytes_per_s
        if needed > present * _RAISED or needed < present * _LOWERED:
            LOG.debug("preload of %s: %d bytes/s instead of %d", promise.image, needed, present)
            self._start_job(promise)

    def _needed_rate(self, promise: Promise) -> int:
        """Return the rate that the promise takes now, as far as the host may give it."""
        if promise.is_rate_fixed or promise.deadline_at is None:
            return promise.rate_bytes_per_s
        with self._condition:
            left = promise.deadline_at - self._clock()
            needed = admission.rate_for(promise.remaining_bytes, left, self._limits.margin)
            most = self._limits.most(self._link_bytes_per_s())
            if most is None:
                return needed
            others = sum(each.rate_bytes_per_s for each in self._active() if each is not promise)
            return max(RATE_MIN, min(needed, most - others))

    def _end_job(self, promise: Promise) -> None:
        """Have the data plane stop; what is not there any more needs no stop."""
        try:
            if promise.pin:
                # Only a job without pin takes back what a former one pinned.
                self._data_plane.call(
                    "preload.start",
                    call_timeout=CALL_TIMEOUT,
                    image=promise.image,
                    what=str(promise.what),
                    rate_bytes_per_s=RATE_MIN,
                    pin=False,
                )
            self._data_plane.call("preload.stop", call_timeout=CALL_TIMEOUT, image=promise.image)
        except (exception.UnavailableError, exception.NotFoundError) as error:
            LOG.info("nothing to stop of image %s: %s", promise.image, error)

    def _wait_for_data_plane(self, wanted: Sequence[Promise], reason: str) -> None:
        with self._condition:
            for promise in wanted:
                self._started.pop(promise.image, None)
                if not promise.state.has_ended:
                    self._move(promise, PromiseEvent.WAIT, reason)

    # What is remembered

    def _move(self, promise: Promise, event: PromiseEvent, error: str | None = None) -> None:
        with self._condition:
            is_stopped = promise.state is PromiseState.STOPPED
            keeps_pin = promise.state.has_ended and event is PromiseEvent.WAIT
            if is_stopped or keeps_pin or not promise.move(event, self._clock(), error):
                return
            LOG.info(
                "preload of image %s: %s%s",
                promise.image,
                promise.state,
                f", {error}" if error else "",
            )
            if promise.state.has_ended:
                self._save()

    def _active(self) -> list[Promise]:
        return [each for each in self._promises.values() if not each.state.has_ended]

    def _all_but(self, image: str) -> list[Promise]:
        return [each for each in self._promises.values() if each.image != image]

    def _forget_old(self) -> None:
        now = self._clock()
        kept = {
            image: promise
            for image, promise in self._promises.items()
            if _needs_job(promise) or now - (promise.ended_at or now) < self._keep_ended
        }
        if len(kept) < len(self._promises):
            self._promises = kept
            self._started = {key: known for key, known in self._started.items() if key in kept}
            self._save()

    def _load(self) -> None:
        try:
            self._promises = {promise.image: promise for promise in self._file.load()}
        except exception.AcstorError as error:
            LOG.error("what this host promised to preload is lost: %s", error)
            self._file.put_aside()
        except OSError as error:
            self._problem = f"what is promised cannot be read: {error}"

    def _save(self) -> None:
        try:
            self._file.save(self._promises.values())
            self._problem = None
        except OSError as error:
            self._problem = f"what is promised cannot be written down: {error}"


def _needs_job(promise: Promise) -> bool:
    """Return whether the data plane has something to do for a promise, or to keep."""
    return not promise.state.has_ended or (
        promise.pin and promise.state in {PromiseState.DONE, PromiseState.MISSED}
    )
