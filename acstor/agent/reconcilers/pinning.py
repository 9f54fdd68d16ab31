"""Pinning images, beside the passes: a cold origin may take a while.

Of every image the head and the tail are pinned, which Nova and QEMU read before each boot; of some
(``acstor_pin=true`` in Glance) all of it. Heads and tails come first: a whole image is pinned in
slices, between which they are attended to, and gives its place back when they find none. Among
themselves they go in the order that the caller says; where the data plane has room for no more
pins, the last of those that are pinned give their places to others that come before them.
"""

import enum
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from acstor import exception
from acstor.conf.types import MIB
from acstor.control.client import AdminClient
from acstor.control.protocol import PIN_BYTES_MAX

LOG = logging.getLogger(__name__)

_ANSWER_MARGIN = 10.0
"""Seconds beyond the pin's own timeout in which the data plane must answer."""
SLICE_BYTES = 128 * MIB
"""By how much the pinned head of an image that is pinned whole grows at a time."""
WHOLE_RETRY_INTERVAL = 300.0
"""Seconds after which what did not fit is tried again, whole images, heads and tails."""
PINNED_PERCENT_MAX = 25
"""Share of the chunk store that may be pinned, as ``crates/store/src/limits.rs`` has it."""


class _Kind(enum.Enum):
    """Purpose of a call."""

    ENDS = "ends"
    """Head and tail, also of an image that is pinned whole no more."""
    WHOLE = "whole"
    """The next slice of a whole image."""
    NOTHING = "nothing"
    """To take the pin back."""


@dataclass(frozen=True)
class _Job:
    """One call of the data plane."""

    image_id: str
    manifest: str
    process: object
    head_bytes: int
    tail_bytes: int
    kind: _Kind


@dataclass
class _Whole:
    """Progress of the pin of one whole image."""

    manifest: str
    size_bytes: int
    head_bytes: int = 0
    """Pinned from the start on; the whole image when it is the size."""
    problem: str | None = None
    retry_at: float = 0.0
    """Monotonic seconds."""

    @property
    def is_done(self) -> bool:
        return self.head_bytes >= self.size_bytes


class Pinner:
    """One thread that pins what is attached and not pinned yet, one image at a time.

    Pins do not outlive the data-plane process, so what was pinned counts only for the process
    that pinned it. An image that could not be pinned is tried again when it is desired again.

    :param on_pinned: called with (image id, pinned bytes, missing bytes), for metrics.
    :param on_all_pinned: called when the last head and tail that was desired is pinned.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        data_plane: AdminClient,
        *,
        head_bytes: int,
        tail_bytes: int,
        timeout: float,
        on_pinned: Callable[[str, int, int], None] = lambda *_: None,
        on_all_pinned: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data_plane = data_plane
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._timeout = timeout
        self._on_pinned = on_pinned
        self._on_all_pinned = on_all_pinned
        self._clock = clock
        self._condition = threading.Condition()  # of everything below
        self._process: object = None
        self._waiting: dict[str, str] = {}
        self._done: dict[str, str] = {}
        self._whole: dict[str, _Whole] = {}
        self._shrinking: dict[str, str] = {}  # pinned whole, and should not be any more
        self._unpinning: dict[str, str] = {}  # in favour of others
        self._refused_until: dict[str, float] = {}  # there was no room for them; monotonic seconds
        self._ranks: dict[str, int] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="pinning", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def set_desired(
        self,
        images: Mapping[str, str],
        process: object,
        whole: Mapping[str, int] | None = None,
        order: Sequence[str] = (),
    ) -> None:
        """Have these images, by id with their manifests, and no others, pinned.

        :param process: names the data-plane process that runs now.
        :param whole: those of them that are to be pinned whole, by id with their sizes, bytes.
        :param order: their ids, the one that is to be pinned first first; all others come later.
        """
        with self._condition:
            self._ranks = {image_id: rank for rank, image_id in enumerate(order)}
            if process != self._process:
                self._process = process
                self._done.clear()
                self._whole.clear()
                self._shrinking.clear()
                self._unpinning.clear()
                self._refused_until.clear()
            self._done = {key: kept for key, kept in self._done.items() if key in images}
            self._unpinning = {
                key: kept for key, kept in self._unpinning.items() if images.get(key) == kept
            }
            self._request_ends(images)
            self._request_whole(images, whole or {})
            self._condition.notify()

    def pinned(self, process: object) -> frozenset[str]:
        """Return the ids of the images whose head and tail are pinned.

        :param process: the one that has them; for any other, nothing is pinned.
        """
        with self._condition:
            return frozenset(self._done) if process == self._process else frozenset()

    def whole(self, process: object) -> frozenset[str]:
        """Return the ids of the images that are pinned whole.

        :param process: as in :meth:`pinned`.
        """
        with self._condition:
            if process != self._process:
                return frozenset()
            return frozenset(key for key, whole in self._whole.items() if whole.is_done)

    def problems(self) -> dict[str, str]:
        """Return, by image id, why images that should be pinned whole are not."""
        with self._condition:
            return {key: whole.problem for key, whole in self._whole.items() if whole.problem}

    def is_idle(self) -> bool:
        """Return whether everything that was desired is pinned or was tried."""
        with self._condition:
            return self._next_job() is None

    def stop(self, timeout: float) -> None:
        """End the thread; a pin under way is given up after ``timeout`` seconds."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    # Under the condition

    def _rank(self, image_id: str) -> tuple[int, str]:
        return self._ranks.get(image_id, len(self._ranks)), image_id

    def _request_ends(self, images: Mapping[str, str]) -> None:
        now = self._clock()
        self._refused_until = {
            key: until
            for key, until in self._refused_until.items()
            if key in images and until > now
        }
        last = max(map(self._rank, self._done), default=None)
        self._waiting = {
            key: manifest
            for key, manifest in images.items()
            if self._done.get(key) != manifest
            # What was refused room is tried when it has come before another that has some.
            and (key not in self._refused_until or (last is not None and self._rank(key) < last))
        }

    def _request_whole(self, images: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        kept = {}
        for image_id, former in self._whole.items():
            if image_id not in images or former.manifest != images[image_id]:
                continue  # detached: its pins are gone with it
            if image_id in sizes:
                kept[image_id] = former
            elif former.head_bytes:
                self._shrinking[image_id] = former.manifest
        for image_id in sizes.keys() & images.keys() - kept.keys():
            size = min(sizes[image_id], PIN_BYTES_MAX)
            kept[image_id] = _Whole(images[image_id], size)
            self._shrinking.pop(image_id, None)
        self._whole = kept

    def _next_job(self) -> _Job | None:
        if self._unpinning:
            image_id = min(self._unpinning)
            manifest = self._unpinning[image_id]
            return _Job(image_id, manifest, self._process, 0, 0, _Kind.NOTHING)
        if self._waiting:
            image_id = min(self._waiting, key=self._rank)
            return self._job(image_id, self._waiting[image_id], self._head_bytes)
        if self._shrinking:
            image_id = min(self._shrinking)
            return self._job(image_id, self._shrinking[image_id], self._head_bytes)
        now = self._clock()
        for image_id in sorted(self._whole, key=self._rank):
            whole = self._whole[image_id]
            if image_id in self._done and not whole.is_done and now >= whole.retry_at:
                head = min(whole.size_bytes, max(whole.head_bytes, self._head_bytes) + SLICE_BYTES)
                return self._job(image_id, whole.manifest, head, _Kind.WHOLE)
        return None

    def _job(self, image_id: str, manifest: str, head: int, kind: _Kind = _Kind.ENDS) -> _Job:
        # Heads and tails of an image that is pinned whole already are part of that.
        whole = self._whole.get(image_id)
        if kind is _Kind.ENDS and whole is not None and image_id not in self._shrinking:
            head = max(head, whole.head_bytes)
        return _Job(image_id, manifest, self._process, head, self._tail_bytes, kind)

    def _note(self, job: _Job, missing_bytes: int | None, *, is_full: bool) -> None:
        """Note the outcome of a job.

        :param missing_bytes: None when the call failed.
        :param is_full: whether there is no room for more pins.
        """
        if job.process != self._process:
            return
        if job.kind is _Kind.NOTHING:
            if self._unpinning.get(job.image_id) == job.manifest:
                del self._unpinning[job.image_id]
            return
        whole = self._whole.get(job.image_id)
        if job.kind is _Kind.WHOLE:
            if whole is not None and whole.manifest == job.manifest:
                self._note_whole(job, whole, missing_bytes)
            return
        if self._shrinking.get(job.image_id) == job.manifest:
            del self._shrinking[job.image_id]
        if missing_bytes == 0:
            self._done[job.image_id] = job.manifest
            self._refused_until.pop(job.image_id, None)
        elif missing_bytes and not self._take_whole_back(job.image_id) and is_full:
            self._take_last_back(job.image_id)

    def _note_whole(self, job: _Job, whole: _Whole, missing_bytes: int | None) -> None:
        if missing_bytes == 0:
            whole.head_bytes, whole.problem = job.head_bytes, None
            if whole.is_done:
                LOG.info("image %s is pinned whole", job.image_id)
            return
        whole.retry_at = self._clock() + WHOLE_RETRY_INTERVAL
        whole.problem = (
            f"{whole.head_bytes} of {whole.size_bytes} bytes are pinned: the next could not be "
            "read in time, or a quarter of [store] capacity is pinned already"
        )

    def _take_whole_back(self, image_id: str) -> bool:
        """Take back the pin of one whole image: heads and tails of all come first.

        The cause may also be that the origin is away. Nothing is lost then either: what was
        pinned is still in the chunk store, and is pinned again later.

        :returns: whether there was one.
        """
        for victim in sorted(self._whole, key=self._rank, reverse=True):
            whole = self._whole[victim]
            if whole.head_bytes and victim != image_id:
                whole.head_bytes = 0
                whole.retry_at = self._clock() + WHOLE_RETRY_INTERVAL
                whole.problem = "its place is needed for heads and tails of other images"
                self._shrinking[victim] = whole.manifest
                return True
        return False

    def _take_last_back(self, image_id: str) -> None:
        """Have the last of the images that are pinned give its place to one that comes before."""
        if self._shrinking:
            return  # there is room soon
        retry_at = self._clock() + WHOLE_RETRY_INTERVAL
        self._refused_until[image_id] = retry_at
        victim = max(self._done, key=self._rank, default=image_id)
        if self._rank(victim) <= self._rank(image_id):
            return
        LOG.info("image %s is pinned no more: image %s comes before it", victim, image_id)
        self._unpinning[victim] = self._done.pop(victim)
        self._refused_until[victim] = retry_at
        del self._refused_until[image_id]

    # The thread

    def _run(self) -> None:
        while (job := self._next()) is not None:
            missing_bytes = self._pin(job)
            is_full = bool(missing_bytes) and job.kind is _Kind.ENDS and self._is_full(job)
            with self._condition:
                self._note(job, missing_bytes, is_full=is_full)
                is_last = False
                if job.kind is _Kind.ENDS and self._waiting.get(job.image_id) == job.manifest:
                    del self._waiting[job.image_id]
                    is_last = not self._waiting and missing_bytes == 0
            if is_last:
                self._on_all_pinned()

    def _next(self) -> _Job | None:
        with self._condition:
            while not self._is_stopping:
                job = self._next_job()
                if job is not None:
                    return job
                self._condition.wait()
            return None

    def _pin(self, job: _Job) -> int | None:
        try:
            outcome = self._data_plane.call(
                "pin",
                call_timeout=self._timeout + _ANSWER_MARGIN,
                image=job.image_id,
                head_bytes=job.head_bytes,
                tail_bytes=job.tail_bytes,
                timeout=self._timeout,
            )
        except exception.AcstorError as error:
            LOG.warning("image %s is not pinned: %s", job.image_id, error)
            return None
        self._on_pinned(job.image_id, outcome["pinned_bytes"], outcome["missing_bytes"])
        return int(outcome["missing_bytes"])

    def _is_full(self, job: _Job) -> bool:
        """Return whether what a job lacks has no room; else it could not be read in time."""
        try:
            store = self._data_plane.call("status")["store"]
            pinned, capacity = int(store["pinned_bytes"]), int(store["capacity_bytes"])
        except (exception.AcstorError, KeyError):
            return False
        wanted = job.head_bytes + job.tail_bytes
        return 100 * (pinned + wanted) > PINNED_PERCENT_MAX * capacity
