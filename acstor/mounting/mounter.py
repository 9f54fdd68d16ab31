"""The interface of what mounts, and the options of the mount."""

from dataclasses import dataclass
from typing import Protocol

from oslo_config import cfg


@dataclass(frozen=True)
class MountOptions:
    """Configured options of the mount."""

    mount_point: str
    """Absolute."""
    allow_other: bool
    """True if users other than root may use it."""
    read_ahead_kb: int
    """Of buffered reads, KiB."""
    unmount_grace: float
    """Seconds that those who use it have before they get errors."""

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> "MountOptions":
        """Return the options of a checked configuration."""
        return cls(
            mount_point=conf.dataplane.mount_point,
            allow_other=conf.dataplane.allow_other,
            read_ahead_kb=conf.dataplane.read_ahead_kb,
            # A stop has as long for its other parts.
            unmount_grace=conf.dataplane.stop_timeout / 4,
        )


class Mounter(Protocol):
    """Mounts at the mount point of the configuration. Every method has a bound on its time.

    Each raises an :class:`acstor.exception.AcstorError`: ``UnavailableError`` where the kernel
    refuses or nobody answers.
    """

    def mount(self) -> int:
        """Mount a file system that nobody serves yet; return its descriptor, the caller's.

        The directory is made when missing, and a mount there that has no process any more is taken
        away first.

        :raises FencedError: when a mount is there that some process has.
        """

    def set_read_ahead(self) -> None:
        """Set the read-ahead of the mount that is there."""

    def unmount(self) -> None:
        """Unmount; who still uses it after the grace of the configuration gets errors."""

    def detach(self) -> None:
        """Take what is mounted away at once; who has files of it open keeps them."""
