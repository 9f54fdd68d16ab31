"""Pinning head and tail of images, beside the looks: a cold origin may take a while."""

import logging
import threading
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.admin.client import AdminClient

LOG = logging.getLogger(__name__)

_ANSWER_MARGIN = 10.0
"""Seconds beyond the pin's own timeout in which the data plane must answer."""


class Pinner:
    """One thread that pins what is attached and not pinned yet, one image at a time.

    Pins do not outlive the data-plane process, so what was pinned counts only for the process
    that pinned it. An image that could not be pinned is tried again when it is wished for again.

    :param on_pinned: called with (image id, pinned bytes, missing bytes), for metrics.
    """

    def __init__(
        self,
        data_plane: AdminClient,
        *,
        head_bytes: int,
        tail_bytes: int,
        timeout: float,
        on_pinned: Callable[[str, int, int], None] = lambda *_: None,
    ) -> None:
        self._data_plane = data_plane
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._timeout = timeout
        self._on_pinned = on_pinned
        self._condition = threading.Condition()  # of everything below
        self._process: object = None
        self._waiting: dict[str, str] = {}
        self._done: dict[str, str] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="pinning", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wish(self, images: Mapping[str, str], process: object) -> None:
        """Wish for these images, by id with their manifests, and no others, to be pinned.

        :param process: names the data-plane process that runs now.
        """
        with self._condition:
            if process != self._process:
                self._process = process
                self._done.clear()
            self._done = {key: kept for key, kept in self._done.items() if key in images}
            self._waiting = {
                key: manifest for key, manifest in images.items() if self._done.get(key) != manifest
            }
            self._condition.notify()

    def pinned(self, process: object) -> frozenset[str]:
        """Return the ids of the images that are pinned, if ``process`` is the one that has them."""
        with self._condition:
            return frozenset(self._done) if process == self._process else frozenset()

    def is_idle(self) -> bool:
        """Return whether everything that was wished for is pinned or was tried."""
        with self._condition:
            return not self._waiting

    def stop(self, timeout: float) -> None:
        """End the thread; a pin under way is given up after ``timeout`` seconds."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            image_id, manifest, process = job
            is_done = self._pin(image_id)
            with self._condition:
                if is_done and process == self._process:
                    self._done[image_id] = manifest
                if self._waiting.get(image_id) == manifest:
                    del self._waiting[image_id]

    def _next(self) -> tuple[str, str, object] | None:
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._is_stopping)
            if self._is_stopping:
                return None
            image_id = min(self._waiting)
            return image_id, self._waiting[image_id], self._process

    def _pin(self, image_id: str) -> bool:
        try:
            outcome = self._data_plane.call(
                "pin",
                call_timeout=self._timeout + _ANSWER_MARGIN,
                image=image_id,
                head_bytes=self._head_bytes,
                tail_bytes=self._tail_bytes,
                timeout=self._timeout,
            )
        except exception.AcstorError as error:
            LOG.warning("image %s is not pinned: %s", image_id, error)
            return False
        self._on_pinned(image_id, outcome["pinned_bytes"], outcome["missing_bytes"])
        return bool(outcome["missing_bytes"] == 0)
