"""The agent's reconciler of local files: which are wanted, and what is to be done for each.

A pass only compares; a thread of the reconciler's own does the work, one file at a time. No link
is moved here: the reconciler of the image links asks which files they may lead to, and tells which
they lead to. A file is removed only once it says of none that it leads there.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from acstor.agent.reconciler import HostSnapshot
from acstor.agent.reconcilers.local_files.states import LocalFileEvent, LocalFileState
from acstor.agent.reconcilers.local_files.table import LocalFileTable
from acstor.agent.reconcilers.local_files.work import Job, JobKind, LocalFileWork, WorkSettings
from acstor.origin.base import Origin

TEND_INTERVAL = 60.0
"""Seconds between two looks at the finished files and at the room."""
_WAIT_MAX = 30.0
_S, _E = LocalFileState, LocalFileEvent


class Links(Protocol):
    """Links in Nova's image cache; see :class:`.ImageLinksReconciler`."""

    def base_directory(self) -> str | None: ...  # noqa: D102
    def local_links(self) -> frozenset[str] | None: ...  # noqa: D102


@dataclass(frozen=True)
class _Desired:
    """Desired state of the local files, as the last pass has seen it."""

    origin: Origin | None = None
    whole: frozenset[str] = frozenset()
    """Images of which this host holds every chunk."""
    removable: frozenset[str] = frozenset()
    """Images to whose file no link leads."""


class LocalFiles:
    """Keeps the local files of one host; a ``Reconciler``.

    :param is_enabled: whether there are to be any.
    :param preloaded: returns the ids of the images that are preloaded whole, and pinned.
    :param clock: monotonic seconds.
    :param now: POSIX seconds.
    """

    name = "local files"

    def __init__(
        self,
        table: LocalFileTable,
        work: LocalFileWork,
        links: Links,
        settings: WorkSettings,
        *,
        is_enabled: bool,
        preloaded: Callable[[], frozenset[str]] = frozenset,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._work = work
        self._links = links
        self._settings = settings
        self._is_enabled = is_enabled
        self._preloaded = preloaded
        self._clock = clock
        self._now = now
        self._condition = work.condition  # of everything below, and of the table
        self._desired = _Desired()
        self._is_known = False
        self._tended_at: float | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="local-files", daemon=True)

    # What the agent calls

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread within ``timeout`` seconds; what it was writing is removed later."""
        with self._condition:
            self._is_stopping = True
            self._work.stop()
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def state(self, image_id: str) -> str | None:
        """Return the state of an image's local file; None: there is none."""
        with self._condition:
            state = self._table.state(image_id)
        return None if state is None else str(state)

    def linkable(self) -> frozenset[str]:
        """Return the ids of the images whose links may lead to their local files."""
        with self._condition:
            return self._table.finished

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Note what is wanted; return what is wrong."""
        base, linked = self._links.base_directory(), self._links.local_links()
        if base is None or linked is None:
            return {}
        with self._condition:
            if self._table.use(base) or self._work.directory != base:
                self._work.use(base)
                self._is_known = False
            self._note_links(linked)
            self._note_wanted(snapshot)
            unlinking = frozenset(self._table.in_states(_S.UNLINKING))
            self._desired = _Desired(
                snapshot.origin,
                snapshot.whole_pinned | self._preloaded(),
                unlinking - linked,
            )
            self._condition.notify()
            return dict(self._problems())

    def _note_links(self, linked: frozenset[str]) -> None:
        for image_id in self._table.finished:
            state = self._table.state(image_id)
            if state is _S.READY and image_id in linked:
                self._table.move(image_id, _E.LINK)
            elif state is _S.LINKED and image_id not in linked:
                self._table.move(image_id, _E.UNLINK)

    def _note_wanted(self, snapshot: HostSnapshot) -> None:
        """Drop what is not wanted any more, and want what is new.

        What the data plane does not offer just now, and what is not known without the origin,
        changes nothing: guests are to notice neither.
        """
        if self._is_enabled and (snapshot.registered is None or snapshot.status is None):
            return
        allowed, desired = self._allowed(snapshot), snapshot.whole | self._preloaded()
        for image_id, known in list(self._table.files.items()):
            manifest = snapshot.offered.get(image_id)
            if known.state is _S.UNLINKING:
                continue
            # What is not offered just now says nothing of what is to be kept.
            is_kept = image_id in desired or manifest is None
            if image_id not in allowed or not is_kept:
                self._table.move(image_id, _E.DROP, reason="it is to have none any more")
            elif manifest not in (None, known.manifest):
                self._table.move(image_id, _E.DROP, reason="its manifest was replaced")
        for image_id in sorted(
            allowed & desired & snapshot.offered.keys() - self._table.files.keys()
        ):
            self._table.want(image_id, snapshot.offered[image_id])

    def _allowed(self, snapshot: HostSnapshot) -> frozenset[str]:
        """Return the images of which new guests may start."""
        if not self._is_enabled or snapshot.registered is None:
            return frozenset()
        return snapshot.registered - snapshot.closed - snapshot.unverified

    def _problems(self) -> Iterator[tuple[str, str]]:
        if self._table.problem is not None:
            yield self.name, self._table.problem
        problem = self._work.refusal or self._work.problem
        if problem is not None and self._is_enabled:
            yield self.name, problem
        for image_id, known in self._table.files.items():
            if known.state is _S.WAITING and known.reason:
                yield f"local file of image {image_id}", known.reason

    # The thread

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._note_done(job, is_done=self._work.do(job))

    def work_once(self) -> Job | None:
        """Do the next thing that is due, in the calling thread; return it, None: nothing is."""
        with self._condition:
            job = self._due()
        if job is not None:
            self._note_done(job, is_done=self._work.do(job))
        return job

    def _note_done(self, job: Job, *, is_done: bool) -> None:
        with self._condition:
            if job.kind is JobKind.TAKE_STOCK:
                self._is_known = is_done
            if job.kind is JobKind.TEND:
                self._tended_at = self._clock()

    def _next(self) -> Job | None:
        with self._condition:
            while not self._is_stopping:
                job = self._due()
                if job is not None:
                    return job
                self._condition.wait(_WAIT_MAX)
            return None

    def _due(self) -> Job | None:
        """Return the next thing to do; what takes long comes last."""
        if self._work.directory is None:
            return None
        jobs = self._jobs() if self._is_known else iter([Job(JobKind.TAKE_STOCK)])
        now = self._clock()
        return next((job for job in jobs if now >= self._work.retry_at(job)), None)

    def _jobs(self) -> Iterator[Job]:
        table, desired = self._table, self._desired
        for image_id in sorted(desired.removable):
            if table.state(image_id) is _S.UNLINKING:
                yield Job(JobKind.REMOVE, image_id)
        tended_at = self._tended_at
        if table.finished and (tended_at is None or self._clock() - tended_at >= TEND_INTERVAL):
            yield Job(JobKind.TEND)
        if desired.origin is None:
            return
        for image_id in table.in_states(_S.VERIFYING):
            yield Job(JobKind.COMPARE, image_id, desired.origin)
        for image_id in table.in_states(_S.WAITING):
            if image_id in desired.whole:
                yield Job(JobKind.MAKE, image_id, desired.origin)
        interval = self._settings.verify_interval
        for image_id in table.in_states(_S.READY, _S.LINKED) if interval else ():
            if self._now() - table.files[image_id].verified_at >= interval:
                yield Job(JobKind.COMPARE, image_id, desired.origin)
