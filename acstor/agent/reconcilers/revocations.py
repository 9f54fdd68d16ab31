"""Following revocations: chunks of revoked images are discarded before others are served."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from acstor import exception
from acstor.agent.handing_over import hand_over
from acstor.agent.reconciler import HostSnapshot
from acstor.control.client import AdminClient
from acstor.origin.base import RefStore
from acstor.repository.images import revocation
from acstor.repository.images.revocation import Revocation
from acstor.revocation.answers import PageAnswer

LOG = logging.getLogger(__name__)

INTERVAL = 60.0
"""Seconds between two looks at what is revoked; what is revoked meanwhile, its command asks for."""
BUDGET = 10.0
"""Seconds that one pass spends on it; the next one goes on where it was."""


class Revocations:
    """Reconciler whose work comes first in a pass, see :class:`.Precondition`.

    What is done is done anew for each process of the agent and of the data plane: whatever became
    of the chunk store meanwhile, it is right afterwards.

    :param directory: of the agent's state.
    :param on_discarded: called with the number of chunks that were discarded.
    :param clock: monotonic seconds.
    """

    name = "revocations"

    def __init__(
        self,
        directory: str,
        data_plane: AdminClient,
        *,
        on_discarded: Callable[[int], None] = lambda chunks: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = os.path.join(directory, "revocations")
        self._data_plane = data_plane
        self._on_discarded = on_discarded
        self._clock = clock
        self._lock = threading.Lock()  # of the file, and of _refs
        self._refs: RefStore | None = None
        self._process: object = None
        self._due = 0.0
        self._next_page: dict[str, int] = {}  # image -> page, of what is not done
        self._done: dict[str, tuple[str, ...]] = {}  # image -> names of the pages
        self._problems: dict[str, str] = {}
        self._local_file: Callable[[str], str | None] = lambda image_id: None

    def follow_local_files(self, local_file: Callable[[str], str | None]) -> None:
        """Have an image that has a local file here count as attached.

        :param local_file: returns the state of an image's local file; None: there is none.
        """
        self._local_file = local_file

    # The reconciler

    def start(self) -> None:
        """Start nothing: all is done within passes, and calls."""

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Note what calls need; return what was wrong at the last look."""
        with self._lock:
            self._refs = snapshot.origin
        return self._problems

    def stop(self, timeout: float) -> None:
        """Stop nothing."""

    def prepare(self, refs: RefStore, status: Mapping[str, Any]) -> None:
        """Discard what is revoked, as far as that was not done.

        :raises UnavailableError: when the origin or the data plane cannot be reached.
        """
        process = status.get("started_at")
        if process != self._process:
            self._process = process
            self._due = 0.0
            self._done.clear()
            self._next_page.clear()
        now = self._clock()
        if now < self._due:
            return
        if self._follow(refs, now + BUDGET):
            self._due = now + INTERVAL

    def _follow(self, refs: RefStore, until: float) -> bool:
        """Discard what is revoked; return whether nothing is left to do."""
        problems: dict[str, str] = {}
        images = sorted(revocation.list_image_ids(refs))
        is_done = True
        for image_id in images:
            try:
                found = revocation.find(refs, image_id)
                if found is not None:
                    is_done &= self._follow_one(refs, found, until)
            except exception.UnavailableError:
                raise
            except (exception.AcstorError, OSError) as error:
                problems[f"revocation of image {image_id}"] = exception.one_line(error)
        self._done = {key: value for key, value in self._done.items() if key in images}
        self._problems = problems
        return is_done

    def _follow_one(self, refs: RefStore, found: Revocation, until: float) -> bool:
        """Discard the chunks of one image; return whether that is done."""
        if self._done.get(found.image) == found.page_names:
            return True
        was_discarded = self._next_page.get(found.image, 0) >= len(found.page_names)
        if was_discarded and self._is_attached(found.image):
            return False  # its instances would only bring them back
        if was_discarded:
            self._next_page[found.image] = 0
        for page in range(self._next_page.get(found.image, 0), len(found.page_names)):
            if self._clock() >= until:
                return False
            self._discard(refs, found, page)
            self._next_page[found.image] = page + 1
        if self._is_attached(found.image):
            return False
        del self._next_page[found.image]
        self._done[found.image] = found.page_names
        LOG.info("image %s is revoked: no chunk that only it has is here", found.image)
        return True

    # What commands ask

    def drop(self, image_id: str, page: int | None) -> PageAnswer:
        """Discard the chunks of one page of a revocation, None: of none.

        :raises NotFoundError: when the image is not revoked, or there is no such page.
        :raises UnavailableError: when the origin or the data plane cannot be reached.
        """
        refs, found = self._found(image_id)
        if page is None:
            return PageAnswer(0, 0, 0, self._is_attached(image_id))
        return self._discard(refs, found, page)

    def check(self, image_id: str, page: int | None) -> PageAnswer:
        """Count the chunks of one page that are here; errors as in :meth:`drop`."""
        refs, found = self._found(image_id)
        if page is None:
            return PageAnswer(0, 0, 0, self._is_attached(image_id))
        told = self._call("chunks.count", refs, found, page)
        return PageAnswer(
            int(told["asked"]), int(told["held"]), int(told["held"]), self._is_attached(image_id)
        )

    def _found(self, image_id: str) -> tuple[RefStore, Revocation]:
        with self._lock:
            refs = self._refs
        if refs is None:
            raise exception.UnavailableError("the origin cannot be reached from this host")
        found = revocation.find(refs, image_id)
        if found is None:
            raise exception.NotFoundError(f"image {image_id} is not revoked")
        return refs, found

    def _discard(self, refs: RefStore, found: Revocation, page: int) -> PageAnswer:
        told = self._call("chunks.discard", refs, found, page)
        answer = PageAnswer(
            int(told["asked"]), int(told["held"]), int(told["left"]), self._is_attached(found.image)
        )
        self._on_discarded(max(0, answer.held - answer.left))
        return answer

    def _call(self, method: str, refs: RefStore, found: Revocation, page: int) -> Mapping[str, Any]:
        content = revocation.read_page(refs, found, page)
        path = os.path.join(self._directory, f"{found.image}.digests")
        with self._lock:
            hand_over(self._data_plane, path, content)
            try:
                told: Mapping[str, Any] = self._data_plane.call(method, path=path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        return told

    def _is_attached(self, image_id: str) -> bool:
        if self._local_file(image_id) is not None:
            return True
        return any(image["id"] == image_id for image in self._data_plane.call("image.list"))
