"""Threads that look after the volumes of a host: they resume, check who owns them, and fold.

They remove what was kept of volumes that are closed, too, once it is of no use any more.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable

from acstor import exception
from acstor.backoff import BackOff
from acstor.dataplane.volumes.ownership.outcomes import OwnerCheck
from acstor.dataplane.volumes.volumes import Volumes

LOG = logging.getLogger(__name__)

_INTERVAL = 1.0
"""Seconds between two looks at the volumes."""
_CLOSE_INTERVAL = 0.05
"""The same while a live migration of one is under way."""
_DOORBELL_INTERVAL = 3.0
"""Seconds between two looks at this host's doorbell, while volumes are served."""
_WATCH_INTERVAL = 30.0
"""Seconds between two looks at the record of a served volume whose doorbell does not ring: less
than a standby waits for its owner."""
CHECK_THREAD = "volume-check"
"""Name of the thread that reads the record of a volume that is to be resumed."""
_CHECK_TIMEOUT = 3.0
"""Seconds that a volume's clients wait, after a restart, for the origin to say who owns it."""
_SWEEP_INTERVAL = 300.0
"""Seconds between two looks at the records of closed volumes whose log is kept."""
RETRY = BackOff(first=2.0, longest=60.0)
"""Delays between two attempts to go on with one volume."""
_RESUMING_MAX = 4
"""Volumes that are resumed at a time."""
_STOP_TIMEOUT = 2.0


class VolumeReconciler:
    """The threads that look after the volumes of one data plane.

    They are daemons: an origin that hangs must not keep the process from ending.

    :param volumes: restored, not resumed.
    :param fold_spread: seconds over which the folds of all volumes that are due are spread.
    """

    def __init__(self, volumes: Volumes, fold_spread: float) -> None:
        self._volumes = volumes
        self._fold_spread = fold_spread
        self._due_count = 0
        self._is_stopping = threading.Event()
        self._resuming = threading.Semaphore(_RESUMING_MAX)
        self._tasks: dict[str, float] = {}
        """Time at which each task may be started again: never while it runs."""
        self._failures: dict[str, int] = {}
        self._lock = threading.Lock()  # of _tasks and _failures
        self._migrating: set[str] = set()
        """Volumes that a second host may open."""
        self._is_close = False
        """True if somebody may wait for a hand-over."""
        self._watch_at: dict[str, float] = {}
        self._doorbell_at = 0.0
        self._sweep_at = 0.0
        self._doorbell: str | None = None
        self._thread = threading.Thread(target=self._run, name="volume-reconciler", daemon=True)

    def start(self) -> None:
        """Start; volumes that are to be resumed are, in the background."""
        self._check_volumes()
        self._thread.start()

    def stop(self) -> None:
        """Start nothing more; what is under way ends by itself."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT)

    def _run(self) -> None:
        while not self._is_stopping.wait(_CLOSE_INTERVAL if self._is_close else _INTERVAL):
            try:
                self._check_volumes()
            except exception.AcstorError as error:
                LOG.warning("looking after the volumes: %s", error)

    def _check_volumes(self) -> None:
        due, damaged = self._volumes.observer.observe()
        self._due_count = len(due)
        to_resume, unchecked = self._volumes.table.unsettled()
        self._start_all("resume", to_resume, self._resume)
        self._start_all("check", unchecked, self._check)
        self._start_all("mend", damaged, self._mend)
        # What may be asked for any moment is folded at once (VolumeWatch), and not slowly.
        self._start_all("fold", set(due).difference(self._migrating), self._fold)
        self._start_all("fetch", self._volumes.fetching.wanted(), self._volumes.fetching.fetch)
        heads = self._volumes.heads
        self._start_all("fetch the head of", heads.wanted(), heads.fetch)
        moving = self._volumes.table.moving()
        self._start_all("answer for the head of", moving, heads.answer)
        served = self._volumes.table.served()
        if served and time.monotonic() >= self._doorbell_at:
            self._doorbell_at = time.monotonic() + random.uniform(
                _DOORBELL_INTERVAL / 2, _DOORBELL_INTERVAL
            )
            self._start("doorbell", "of this host", self._listen)
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + random.uniform(_SWEEP_INTERVAL / 2, _SWEEP_INTERVAL)
            self._start("sweep", "that are closed", self._sweep)
        for volume in set(self._watch_at).difference(served):
            self._watch_at.pop(volume, None)
        for volume in served:
            if self._may_watch(volume):
                self._start("watch", volume, self._watch)
        self._is_close = bool(moving) or self._volumes.table.has_standby()

    def _listen(self, _: str) -> bool:
        doorbell = self._volumes.doorbells.heard()
        if doorbell != self._doorbell:
            self._doorbell = doorbell
            self._watch_at.clear()
        return True

    def _sweep(self, _: str) -> bool:
        self._volumes.closed_logs.sweep()
        return True

    def _may_watch(self, volume: str) -> bool:
        """Return whether it is time to look at a volume's record."""
        now = time.monotonic()
        if volume not in self._migrating and now < self._watch_at.get(volume, 0.0):
            return False
        self._watch_at[volume] = now + random.uniform(_WATCH_INTERVAL / 2, _WATCH_INTERVAL)
        return True

    def _watch(self, volume: str) -> bool:
        if self._volumes.watching.watch(volume):
            self._migrating.add(volume)
        else:
            self._migrating.discard(volume)
        return True

    def _start_all(self, what: str, volumes: Iterable[str], action: Callable[[str], bool]) -> None:
        for volume in volumes:
            self._start(what, volume, action)

    def _start(self, what: str, volume: str, action: Callable[[str], bool]) -> None:
        """Run a task on a thread of its own, unless it runs or has failed a moment ago."""
        name = f"{what} {volume}"
        with self._lock:
            if self._tasks.get(name, 0.0) > time.monotonic():
                return
            self._tasks[name] = float("inf")

        def run() -> None:
            is_done = False
            try:
                is_done = not self._is_stopping.is_set() and action(volume)
            except exception.AcstorError as error:
                LOG.warning("volume %s: %s: %s", volume, what, error)
            finally:
                self._note(name, is_done)

        try:
            threading.Thread(target=run, name=f"volume-{what}", daemon=True).start()
        except RuntimeError as error:
            LOG.warning("volume %s: %s: %s", volume, what, error)
            self._note(name, False)

    def _note(self, name: str, is_done: bool) -> None:
        with self._lock:
            if is_done:
                self._failures.pop(name, None)
                self._tasks.pop(name, None)
                return
            failures = self._failures[name] = self._failures.get(name, 0) + 1
            self._tasks[name] = time.monotonic() + RETRY.seconds(failures)

    def _resume(self, volume: str) -> bool:
        with self._resuming:
            self._volumes.resuming.resume(volume, self._check_in_time(volume))
        return volume not in self._volumes.table.unsettled()[0]

    def _check_in_time(self, volume: str) -> OwnerCheck | None:
        """Return who owns a volume, None when the origin does not say so in time."""
        answers: list[OwnerCheck | None] = []

        def ask() -> None:
            try:
                answers.append(self._volumes.mending.check_owner(volume))
            except exception.AcstorError as error:
                LOG.warning("volume %s: who owns it is not known: %s", volume, error)

        asking = threading.Thread(target=ask, name=CHECK_THREAD, daemon=True)
        asking.start()
        asking.join(_CHECK_TIMEOUT)
        return answers[0] if answers else None

    def _check(self, volume: str) -> bool:
        self._volumes.checks.check(volume)
        return True

    def _mend(self, volume: str) -> bool:
        self._volumes.mending.mend(self._volumes.table.in_runtime(volume))
        return True

    def _fold(self, volume: str) -> bool:
        self._volumes.folds.fold_slowly(volume, self._fold_spread / max(1, self._due_count))
        return True
