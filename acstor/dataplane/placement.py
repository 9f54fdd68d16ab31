"""Ring and distance threshold of a data plane, kept for the next process."""

import logging
import threading
from collections.abc import Callable

from acstor import exception
from acstor.dataplane.attachments import Attachments
from acstor.mounting import mount_point
from acstor.native import DataPlane, map_errors

LOG = logging.getLogger(__name__)


class Placement:
    """Target of the operations that change which hosts are asked for a chunk.

    :param runtime: returns the runtime.
    :param attachments: what the next process restores.
    :param lock: of one change of attachments at a time.
    :param mounted_at: where the data plane's own file system is.
    """

    def __init__(
        self,
        runtime: Callable[[], DataPlane],
        attachments: Attachments,
        lock: threading.RLock,
        mounted_at: str,
    ) -> None:
        self._runtime = runtime
        self._attachments = attachments
        self._lock = lock
        self._mounted_at = mounted_at

    def set_ring(self, path: str) -> dict[str, object]:
        """Use the ring in a file from now on and keep it for restarts."""
        mount_point.refuse_within(path, self._mounted_at)
        with self._lock, self._attachments.arriving(path) as arrived:
            with map_errors(f"ring {path}"):
                ring = self._runtime().set_ring(arrived)
            self._attachments.keep_ring(arrived)
        LOG.info("using ring generation %s", ring.get("generation"))
        return ring

    def set_distance_threshold(self, hops: int | None) -> dict[str, object]:
        """Ask no host from so many hops on, also after restarts; None: as configured."""
        with self._lock:
            with map_errors("distance threshold"):
                self._runtime().set_distance_threshold(hops)
            self._attachments.keep_distance_threshold(hops)
        in_use = self._runtime().status().get("distance_threshold")
        LOG.info("distance threshold: %s", "none" if in_use is None else f"{in_use} hops")
        return {"hops": in_use}

    def restore(self, runtime: DataPlane) -> None:
        """Give a new runtime what the process before had."""
        with map_errors("restoring"):
            runtime.set_distance_threshold(self._attachments.distance_threshold())
        ring_path = self._attachments.ring_path()
        if ring_path is None:
            return
        try:
            with map_errors("restoring"):
                runtime.set_ring(ring_path)
        except exception.AcstorError as error:
            LOG.error("the kept ring is not usable (%s); the agent brings the next", error)
