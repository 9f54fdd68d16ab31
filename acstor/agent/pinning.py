"""Pinning images, beside the looks: a cold origin may take a while.

Of every image the head and the tail are pinned, which Nova and QEMU read before each boot; of some
(``acstor_pin=true`` in Glance) all of it. Heads and tails come first: a whole image is pinned in
slices, between which they are attended to, and gives its place back when they find none. Among
themselves they go in the order that the caller wishes.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from acstor import exception
from acstor.admin.client import AdminClient
from acstor.admin.protocol import PIN_BYTES_MAX
from acstor.conf.types import MIB

LOG = logging.getLogger(__name__)

_ANSWER_MARGIN = 10.0
"""Seconds beyond the pin's own timeout in which the data plane must answer."""
SLICE_BYTES = 128 * MIB
"""By how much the pinned head of an image that is pinned whole grows at a time."""
WHOLE_RETRY_INTERVAL = 300.0
"""Seconds after which a whole image that did not fit is tried again."""


@dataclass(frozen=True)
class _Job:
    """One call of the data plane."""

    image_id: str
    manifest: str
    process: object
    head_bytes: int
    is_whole: bool


@dataclass
class _Whole:
    """How far the pin of one whole image is."""

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
    that pinned it. An image that could not be pinned is tried again when it is wished for again.

    :param on_pinned: called with (image id, pinned bytes, missing bytes), for metrics.
    :param on_all_pinned: called when the last head and tail that was wished for is pinned.
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
        self._ranks: dict[str, int] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="pinning", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wish(
        self,
        images: Mapping[str, str],
        process: object,
        whole: Mapping[str, int] | None = None,
        order: Sequence[str] = (),
    ) -> None:
        """Wish for these images, by id with their manifests, and no others, to be pinned.

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
            self._done = {key: kept for key, kept in self._done.items() if key in images}
            self._waiting = {
                key: manifest for key, manifest in images.items() if self._done.get(key) != manifest
            }
            self._wish_whole(images, whole or {})
            self._condition.notify()

    def pinned(self, process: object) -> frozenset[str]:
        """Return the ids of the images whose head and tail are pinned.

        :param process: the one that has them; for any other, nothing is pinned.
        """
        with self._condition:
            return frozenset(self._done) if process == self._process else frozenset()

    def problems(self) -> dict[str, str]:
        """Return, by image id, why images that should be pinned whole are not."""
        with self._condition:
            return {key: whole.problem for key, whole in self._whole.items() if whole.problem}

    def is_idle(self) -> bool:
        """Return whether everything that was wished for is pinned or was tried."""
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

    def _wish_whole(self, images: Mapping[str, str], sizes: Mapping[str, int]) -> None:
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
                return self._job(image_id, whole.manifest, head, is_whole=True)
        return None

    def _job(self, image_id: str, manifest: str, head: int, *, is_whole: bool = False) -> _Job:
        # Heads and tails of an image that is pinned whole already are part of that.
        whole = self._whole.get(image_id)
        if not is_whole and whole is not None and image_id not in self._shrinking:
            head = max(head, whole.head_bytes)
        return _Job(image_id, manifest, self._process, head, is_whole)

    def _note(self, job: _Job, missing_bytes: int | None) -> None:
        """Note the outcome of a job; ``missing_bytes`` is None when the call failed."""
        if job.process != self._process:
            return
        whole = self._whole.get(job.image_id)
        if job.is_whole:
            if whole is not None and whole.manifest == job.manifest:
                self._note_whole(job, whole, missing_bytes)
            return
        if self._shrinking.get(job.image_id) == job.manifest:
            del self._shrinking[job.image_id]
        if missing_bytes == 0:
            self._done[job.image_id] = job.manifest
        elif missing_bytes:
            self._make_room(job.image_id)

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

    def _make_room(self, image_id: str) -> None:
        """Take back the pin of one whole image: heads and tails of all come first.

        The cause may also be that the origin is away. Nothing is lost then either: what was
        pinned is still in the chunk store, and is pinned again later.
        """
        for victim in sorted(self._whole, key=self._rank, reverse=True):
            whole = self._whole[victim]
            if whole.head_bytes and victim != image_id:
                whole.head_bytes = 0
                whole.retry_at = self._clock() + WHOLE_RETRY_INTERVAL
                whole.problem = "its place is needed for heads and tails of other images"
                self._shrinking[victim] = whole.manifest
                return

    # The thread

    def _run(self) -> None:
        while (job := self._next()) is not None:
            missing_bytes = self._pin(job)
            with self._condition:
                self._note(job, missing_bytes)
                is_last = False
                if not job.is_whole and self._waiting.get(job.image_id) == job.manifest:
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
                tail_bytes=self._tail_bytes,
                timeout=self._timeout,
            )
        except exception.AcstorError as error:
            LOG.warning("image %s is not pinned: %s", job.image_id, error)
            return None
        self._on_pinned(job.image_id, outcome["pinned_bytes"], outcome["missing_bytes"])
        return int(outcome["missing_bytes"])
