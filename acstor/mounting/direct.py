"""Mounting in this very process, which needs CAP_SYS_ADMIN."""

import logging
import os

from acstor import exception, native
from acstor.mounting import mount_point
from acstor.mounting.mounter import MountOptions

LOG = logging.getLogger(__name__)

_CAP_SYS_ADMIN = 21
"""Number of the capability (capabilities(7))."""


def may_mount(status_file: str = "/proc/self/status") -> bool:
    """Return whether this process may mount."""
    with open(status_file, encoding="ascii", errors="replace") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name == "CapEff":
                return bool(int(value, 16) >> _CAP_SYS_ADMIN & 1)
    return False


class DirectMounter:
    """A :class:`acstor.mounting.mounter.Mounter`."""

    def __init__(self, options: MountOptions) -> None:
        self._options = options

    def mount(self) -> int:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        path = self._options.mount_point
        try:
            # A path that is mounted on is there, and looking at it would ask the file system.
            if not mount_point.is_mounted(path):
                os.makedirs(path, mode=0o755, exist_ok=True)
        except OSError as error:
            raise exception.UnavailableError(
                f"{path} cannot be made: {error.strerror}", hint="make the directory, as root's"
            ) from error
        with native.map_errors("mounting"):
            return native.mount_images(path, self._options.allow_other, self._options.read_ahead_kb)

    def set_read_ahead(self) -> None:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        with native.map_errors("setting the read-ahead"):
            native.set_read_ahead(self._options.mount_point, self._options.read_ahead_kb)

    def unmount(self) -> None:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        path = self._options.mount_point
        with native.map_errors("unmounting"):
            outcome = native.unmount_images(path, self._options.unmount_grace)
        if outcome == "aborted":
            LOG.warning("%s was in use when it was unmounted: those who did get errors", path)

    def detach(self) -> None:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        path = self._options.mount_point
        try:
            mount_point.detach_all(path)
        except OSError as error:
            raise exception.UnavailableError(
                f"{path} cannot be detached: {error.strerror}", hint="run the process as root"
            ) from error
