"""The registrations that run, each on a thread of its own."""

import logging
import queue
import threading
import time
from collections.abc import Callable

from acstor.registrar.image_service.base import ServiceImage
from acstor.registrar.registration.job import ImageJob, Outcome

LOG = logging.getLogger(__name__)


class Jobs:
    """Runs registrations; all methods are called from one thread.

    :param workers: most that run at a time.
    :param make: makes the job for an image.
    :param on_end: called from a job's thread when its outcome waits to be taken.
    """

    def __init__(
        self,
        workers: int,
        make: Callable[[ServiceImage], ImageJob],
        on_end: Callable[[], None],
    ) -> None:
        """Begin with none."""
        self._workers = workers
        self._make = make
        self._on_end = on_end
        self._running: dict[str, tuple[ImageJob, threading.Thread]] = {}
        self._ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def __len__(self) -> int:
        """Return how many run, or have ended and are not forgotten."""
        return len(self._running)

    @property
    def has_room(self) -> bool:
        """Return whether another one may be started."""
        return len(self._running) < self._workers

    def key_of(self, image_id: str) -> str | None:
        """Return the verdict key of the content that is being registered under an id."""
        found = self._running.get(image_id)
        return found[0].key if found else None

    def start(self, image: ServiceImage) -> None:
        """Begin to register an image that is not being registered."""
        job = self._make(image)

        def run() -> None:
            self._ended.put(job.run())
            self._on_end()

        thread = threading.Thread(target=run, name=f"register-{image.id}", daemon=True)
        self._running[image.id] = (job, thread)
        thread.start()

    def cancel(self, image_id: str, reason: str) -> None:
        """Have the registration of an image end soon."""
        found = self._running.get(image_id)
        if found:
            LOG.info("cancelling the registration of image %s: %s", image_id, reason)
            found[0].cancel(reason)

    def next_outcome(self) -> Outcome | None:
        """Return what became of a registration that has ended, None when all others run."""
        try:
            return self._ended.get_nowait()
        except queue.Empty:
            return None

    def put_back(self, outcome: Outcome) -> None:
        """Have an outcome be taken again: it could not be noted."""
        self._ended.put(outcome)

    def forget(self, image_id: str) -> None:
        """Make room: the outcome is noted."""
        self._running.pop(image_id, None)

    def stop(self, timeout: float) -> bool:
        """Cancel all and wait for them, ``timeout`` seconds; return whether all have ended."""
        until = time.monotonic() + timeout
        for image_id in list(self._running):
            self.cancel(image_id, "the registrar stops")
        for _, thread in self._running.values():
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for _, thread in self._running.values())
