"""Chunks of a data plane that are asked for by their digests, whatever disk they are of."""

import logging
from collections.abc import Callable

from acstor.dataplane.attachments import Attachments
from acstor.mounting import mount_point
from acstor.native import DataPlane, map_errors

LOG = logging.getLogger(__name__)


class Chunks:
    """Target of the operations on chunks that are named one by one.

    :param runtime: returns the runtime.
    :param attachments: copies the files that name them, so that what is read is a plain file.
    :param mounted_at: where the data plane's own file system is.
    """

    def __init__(
        self, runtime: Callable[[], DataPlane], attachments: Attachments, mounted_at: str
    ) -> None:
        self._runtime = runtime
        self._attachments = attachments
        self._mounted_at = mounted_at

    def count(self, path: str) -> dict[str, int]:
        """Count those that are on this host, of the digests in a file."""
        mount_point.refuse_within(path, self._mounted_at)
        with self._attachments.arriving(path) as arrived, map_errors(f"chunks of {path}"):
            return self._runtime().count_chunks(arrived)

    def discard(self, path: str) -> dict[str, int]:
        """Take those from this host for good that the digests in a file name."""
        mount_point.refuse_within(path, self._mounted_at)
        with self._attachments.arriving(path) as arrived, map_errors(f"chunks of {path}"):
            found = self._runtime().discard_chunks(arrived)
        if found["held"]:
            LOG.info("discarded chunks: %d were here, %d still are", found["held"], found["left"])
        return found
