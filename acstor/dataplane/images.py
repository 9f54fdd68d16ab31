"""The images of a data plane: attached and withdrawn, and kept so for the next process."""

import logging
import threading
from collections.abc import Callable

from acstor.dataplane.attachments import Attachments
from acstor.dataplane.restored_images import RestoredImages
from acstor.mounting import mount_point
from acstor.native import DataPlane, map_errors

LOG = logging.getLogger(__name__)


class Images:
    """Targets of the operations on images that change what the next process restores.

    :param runtime: returns the runtime.
    :param attachments: what the next process restores.
    :param restored: images that were attached before and are not yet again.
    :param lock: of one change of attachments at a time.
    :param mounted_at: where the data plane's own file system is.
    :param chunk_size: of the repository, bytes.
    """

    def __init__(
        self,
        runtime: Callable[[], DataPlane],
        attachments: Attachments,
        restored: RestoredImages,
        lock: threading.RLock,
        *,
        mounted_at: str,
        chunk_size: int,
    ) -> None:
        self._runtime = runtime
        self._attachments = attachments
        self._restored = restored
        self._lock = lock
        self._mounted_at = mounted_at
        self._chunk_size = chunk_size

    def attach(self, manifest_path: str, is_partial: bool | None = None) -> dict[str, object]:
        """Attach the image of a manifest file and keep it for restarts.

        :param is_partial: whether pages are missing in the file, which are fetched from the
            origin. An older release, which would not fetch them, does not know it and refuses.
        """
        mount_point.refuse_within(manifest_path, self._mounted_at)
        with self._lock, self._attachments.arriving(manifest_path) as arrived:
            with map_errors(f"attaching {manifest_path}"):
                image = self._runtime().attach_image(arrived)
            self._attachments.keep_image(str(image["id"]), arrived, str(image["manifest"]))
            self._restored.settled(str(image["id"]))
            if self._attachments.chunk_size() is None:
                self._attachments.keep_chunk_size(self._chunk_size)
        how = "whose manifest is fetched by the page" if is_partial else "with all of its manifest"
        LOG.info("attached image %s of %s bytes, %s", image["id"], image.get("size_bytes"), how)
        return image

    def detach(self, disk_id: str) -> str:
        """Withdraw an image; return ``removed``, or ``hidden`` while it is in use."""
        with self._lock:
            if self._restored.is_waiting(disk_id):
                # Guests may have it open: it is attached without a name when that works.
                self._attachments.hide_image(disk_id)
                return "hidden"
            with map_errors(f"detaching {disk_id}"):
                state = self._runtime().detach_image(disk_id)
            if state == "removed":
                self._attachments.forget_image(disk_id)
            else:
                self._attachments.hide_image(disk_id)
        LOG.info("detached image %s: %s", disk_id, state)
        return state

    def set_working_set(self, disk_id: str, path: str) -> None:
        """Use the working set in a file from now on and keep it for restarts."""
        mount_point.refuse_within(path, self._mounted_at)
        with self._lock, self._attachments.arriving(path) as arrived:
            with map_errors(f"working set {path} of {disk_id}"):
                self._runtime().set_working_set(disk_id, arrived)
            self._attachments.keep_working_set(disk_id, arrived)

    def set_boot_profile(self, disk_id: str, path: str) -> None:
        """Use the boot profile in a file from now on and keep it for restarts."""
        mount_point.refuse_within(path, self._mounted_at)
        with self._lock, self._attachments.arriving(path) as arrived:
            with map_errors(f"boot profile {path} of {disk_id}"):
                self._runtime().set_boot_profile(disk_id, arrived)
            self._attachments.keep_boot_profile(disk_id, arrived)
