"""Interface of a hypervisor: guests, backups of disks that are in use, the guests' agents, events.

Implemented by :class:`.LibvirtHypervisor`, and for tests in memory and with faults
(``testbed/doubles``). Methods may take seconds, and may be called from any thread.
"""

import abc
import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

from acstor.agent.hypervisor.domain_xml import Guest


class LifecycleEvent(enum.StrEnum):
    """Event of a guest."""

    STARTED = "started"
    STOPPED = "stopped"
    """It was shut down, destroyed, or has crashed."""
    MIGRATED = "migrated"
    """It has stopped here because it runs on another host."""
    UNDEFINED = "undefined"
    """The hypervisor knows it no more."""


OnEvent = Callable[[str, LifecycleEvent], None]
"""Told the UUID of a guest and what happened, on a thread of the hypervisor's own: return soon."""


@dataclasses.dataclass(frozen=True, slots=True)
class BackupRequest:
    """Request for a backup in pull mode, of several disks at one moment."""

    server: str
    """UUID of the guest."""
    scratch: Mapping[str, str]
    """By device, the file that is to keep what the guest overwrites meanwhile; made and removed by
    the hypervisor, on another file system than the disks: when it is full the guest's writes
    fail."""
    socket_path: str
    """Unix socket of the NBD server that is to be opened."""


@dataclasses.dataclass(frozen=True, slots=True)
class BackupExport:
    """Export of a disk in a backup."""

    name: str
    tells_layers: bool
    """True where it has the context ``qemu:allocation-depth``: 1 is the scratch file, 2 the disk's
    own file, 3 and more what it is based on."""


@dataclasses.dataclass(frozen=True, slots=True)
class BackupStatus:
    """Status of a backup that is under way."""

    scratch_bytes: int
    """Bytes that the scratch files take."""


class AgentError(Exception):
    """A guest's agent did not do what it was asked: it is not there, is late, or refuses."""

    def __init__(self, reason: str, *, is_late: bool = False) -> None:
        """Keep the reason.

        :param is_late: set where it may still do it.
        """
        super().__init__(reason)
        self.is_late = is_late


class Hypervisor(abc.ABC):
    """A hypervisor. Every method may raise :class:`~acstor.exception.UnavailableError`."""

    @abc.abstractmethod
    def find(self, server: str) -> Guest | None:
        """Return a guest, None where there is none of that UUID."""

    @abc.abstractmethod
    def guests(self) -> list[Guest]:
        """Return all guests, those that do not run included."""

    @abc.abstractmethod
    def begin_backup(self, request: BackupRequest) -> None:
        """Begin a backup: exports show the disks as they are now, whatever is written then.

        It makes no checkpoint: one that is left would keep Nova from deleting the server. It does
        nothing else, since the guest may be frozen meanwhile.

        :raises NotFoundError: when there is no such guest.
        :raises ConflictError: when it does not run, or another job of the guest is under way.
        :raises UnsupportedError: when the hypervisor has no such backups.
        """

    @abc.abstractmethod
    def exports(self, request: BackupRequest) -> dict[str, BackupExport]:
        """Return the exports of a backup that was begun, by device.

        :raises ConflictError: when it has ended.
        """

    @abc.abstractmethod
    def backup_status(self, server: str) -> BackupStatus | None:
        """Return how a backup is, None where none is under way: it was ended, or the guest was."""

    @abc.abstractmethod
    def end_backup(self, server: str) -> bool:
        """End a backup, and leave nothing of it; return whether one was under way.

        A job of another kind is left alone. Repeating it is safe.
        """

    @abc.abstractmethod
    def ask_agent(self, server: str, command: str, timeout_s: int) -> Any:
        """Have the agent in a guest do something; return what it answers.

        :param command: name of a command without arguments, as ``guest-fsfreeze-thaw``.
        :raises AgentError: when it does not.
        """

    @abc.abstractmethod
    def watch(self, on_event: OnEvent) -> None:
        """Call ``on_event`` from now on, until :meth:`close`; only one may watch."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release the connection; closing again does nothing."""
