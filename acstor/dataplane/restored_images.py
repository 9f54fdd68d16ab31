"""Attaching again what was attached before, as long as it takes.

A guest that has an image open goes on by the next data plane: an image is given up only when
repeating cannot help. Manifests are read when they are needed; one that is found damaged then is
put aside, so that the agent brings it again.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.backoff import BackOff
from acstor.dataplane.attachments import AttachedImage, Attachments
from acstor.exception import ErrorKind
from acstor.native import DataPlane, DataPlaneError, manifest_name, map_errors

LOG = logging.getLogger(__name__)

_FINAL = frozenset({ErrorKind.CORRUPT, ErrorKind.UNSUPPORTED, ErrorKind.INVALID})
"""Kinds of errors that the same file meets each time."""
RETRY = BackOff(first=0.25, longest=10.0)
"""Delays between two attempts to attach an image again."""


class RestoredImages:
    """The images that were attached when the process before ended; any thread may call it.

    :param attachments: what was attached.
    :param lock: held while an image is attached or detached.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self,
        attachments: Attachments,
        lock: threading.RLock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attachments = attachments
        self._lock = lock
        self._clock = clock
        self._failed: dict[str, str] = {}
        """By image that is not attached yet, its manifest; empty where that cannot be read."""
        self._working_sets: dict[str, str] = {}
        """By image, the working set that it is to be given; none of them is needed at the start."""
        self._boot_profiles: dict[str, str] = {}
        """By image, the boot profile that it is to be given, as well."""
        self._attempts = 0
        self._retry_at = 0.0
        self._left_in_place: set[str] = set()
        """Images whose damaged manifest could not be put aside, and is told of once."""
        self._pass: threading.Thread | None = None

    def attach(self, runtime: DataPlane) -> None:
        """Attach all of them; what fails for a reason that may pass is tried again by `retry`."""
        with self._lock:
            self._failed.clear()
            self._working_sets.clear()
            self._boot_profiles.clear()
            self._attempts = 0
            for image in self._attachments.images():
                self._attach_one(runtime, image)
            self._wait()

    def retry(self, runtime: DataPlane) -> None:
        """Have attached what failed, when it is time; costs nothing where nothing did.

        A pass is a thread of its own, one at a time: it reads the local disk, which may hang, and
        the caller feeds a watchdog.
        """
        is_due = bool(self._failed) and self._clock() >= self._retry_at
        is_any_left = bool(self._working_sets or self._boot_profiles)
        if not (is_due or is_any_left or runtime.damaged_images()):
            return
        if self._pass is None or not self._pass.is_alive():
            self._pass = threading.Thread(
                target=self._run_pass, args=(runtime, is_due), name="restored-images", daemon=True
            )
            self._pass.start()

    def finish(self, timeout: float) -> None:
        """Wait for a pass that is under way.

        :param timeout: seconds; one that hangs is left, and fails once the runtime has stopped.
        """
        if self._pass is not None:
            self._pass.join(timeout)

    def _run_pass(self, runtime: DataPlane, is_due: bool) -> None:
        # Who attaches or detaches something goes first; the next pass comes soon.
        if not self._lock.acquire(blocking=False):
            return
        try:
            for disk_id in runtime.damaged_images():
                self._put_aside(runtime, disk_id)
            if is_due:
                self._retry_failed(runtime)
            # They cost no manifest, and guests may be about to boot.
            while self._boot_profiles:
                self._restore_boot_profile(runtime, *self._boot_profiles.popitem())
            if self._working_sets:
                # One at a time: the manifest is read for it.
                self._restore_working_set(runtime, *self._working_sets.popitem())
        finally:
            self._lock.release()

    def _retry_failed(self, runtime: DataPlane) -> None:
        known = {image.disk_id: image for image in self._attachments.images()}
        for disk_id in sorted(self._failed):
            if disk_id in known:
                self._attach_one(runtime, known[disk_id])
            else:
                self.settled(disk_id)  # detached meanwhile
        self._wait()

    def _put_aside(self, runtime: DataPlane, disk_id: str) -> None:
        """Withdraw an image whose manifest was found damaged; the agent attaches it anew.

        Until then it has no name, so that Nova downloads it, and who has it open gets errors.
        """
        try:
            self._attachments.refuse_image(disk_id)
        except FileNotFoundError:
            return  # it was put aside before, and is in use
        except OSError as error:
            # A disk that damages a file is often read-only by then: what guests read goes on.
            if disk_id in self._left_in_place:
                return
            self._left_in_place.add(disk_id)
            LOG.error("the damaged manifest of image %s cannot be put aside: %s", disk_id, error)
        else:
            self._left_in_place.discard(disk_id)
            LOG.error("image %s is put aside, its manifest is damaged", disk_id)
        try:
            with map_errors(f"withdrawing {disk_id}"):
                runtime.detach_image(disk_id)
        except exception.AcstorError as error:
            LOG.error("image %s: %s", disk_id, error)

    def is_waiting(self, disk_id: str) -> bool:
        """Return whether an image is not attached yet."""
        return disk_id in self._failed

    def waiting(self) -> dict[str, str]:
        """Return by image that is not attached yet its manifest: guests may have it open.

        The manifest is empty where it cannot be read.
        """
        return dict(self._failed)

    def settled(self, disk_id: str) -> None:
        """Note that an image was attached otherwise, or is gone."""
        self._failed.pop(disk_id, None)

    def _attach_one(self, runtime: DataPlane, image: AttachedImage) -> None:
        try:
            with map_errors("restoring"):
                attached = runtime.attach_image(
                    image.manifest_path, hidden=image.is_hidden, digest=image.digest
                )
        except exception.AcstorError as error:
            if error.kind in _FINAL:
                LOG.error("image %s is put aside, its manifest is bad: %s", image.disk_id, error)
                try:
                    self._attachments.refuse_image(image.disk_id)
                except OSError as failed:
                    LOG.error("it stays where it is, to be met at each start: %s", failed)
                self.settled(image.disk_id)
                return
            LOG.warning("image %s is attached later: %s", image.disk_id, error)
            if not self._failed.get(image.disk_id):
                self._failed[image.disk_id] = _manifest_of(image)
            return
        self.settled(image.disk_id)
        if image.digest is None:
            self._attachments.keep_digest(image.disk_id, str(attached["manifest"]))
        if image.working_set_path is not None:
            self._working_sets[image.disk_id] = image.working_set_path
        if image.boot_profile_path is not None:
            self._boot_profiles[image.disk_id] = image.boot_profile_path

    def _restore_working_set(self, runtime: DataPlane, disk_id: str, path: str) -> None:
        forget = self._attachments.forget_working_set
        with _forgotten_if_bad(disk_id, forget), map_errors(f"working set of {disk_id}"):
            runtime.set_working_set(disk_id, path)

    def _restore_boot_profile(self, runtime: DataPlane, disk_id: str, path: str) -> None:
        forget = self._attachments.forget_boot_profile
        with _forgotten_if_bad(disk_id, forget), map_errors(f"boot profile of {disk_id}"):
            runtime.set_boot_profile(disk_id, path)

    def _wait(self) -> None:
        # With jitter: the cause may be the many processes of a host that start together.
        self._attempts += 1
        self._retry_at = self._clock() + RETRY.seconds(self._attempts)


@contextlib.contextmanager
def _forgotten_if_bad(disk_id: str, forget: Callable[[str], None]) -> Iterator[None]:
    """Have what was learnt of an image go where it can be given no more."""
    try:
        yield
    except exception.AcstorError as error:
        if error.kind in _FINAL:
            LOG.error("forgetting what was kept (%s); the agent brings it again", error)
            forget(disk_id)
        else:
            LOG.warning("not restored, the agent brings it again: %s", error)


def _manifest_of(image: AttachedImage) -> str:
    try:
        return manifest_name(image.manifest_path)
    except DataPlaneError as error:
        LOG.warning("which manifest image %s has is not known: %s", image.disk_id, error)
        return ""
