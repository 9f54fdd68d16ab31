"""A hypervisor in memory, as libvirt and QEMU behave: jobs die with the guest, scratch fills up."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from acstor import exception
from acstor.agent.hypervisor.base import (
    AgentError,
    BackupExport,
    BackupRequest,
    BackupStatus,
    Hypervisor,
    LifecycleEvent,
    OnEvent,
)
from acstor.agent.hypervisor.domain_xml import Guest


@dataclasses.dataclass
class MemoryAgent:
    """The agent in a guest."""

    file_systems: int = 2
    is_frozen: bool = False
    freeze_is_late: bool = False
    """True where a freeze comes after its deadline: it is an error, and happens."""
    deaf_thaws: int = 0
    """Thaws that are not answered before one is."""
    thaws_by_itself: bool = False
    """True where it thaws before it is asked to, as VSS of Windows does."""


class MemoryHypervisor(Hypervisor):
    """Guests in memory."""

    def __init__(self, *guests: Guest) -> None:
        self.known = {guest.server: guest for guest in guests}
        self.agents: dict[str, MemoryAgent] = {}
        self.backups: dict[str, BackupRequest] = {}
        self.scratch_bytes = 0
        self.asked: list[str] = []
        """Commands that agents were asked, and calls of backups."""
        self.on_event: OnEvent | None = None
        self.frozen_at_backup: list[bool] = []
        self.foreign_job: set[str] = set()
        """Guests with a job of somebody else."""

    def find(self, server: str) -> Guest | None:
        """See :class:`.Hypervisor`."""
        return self.known.get(server)

    def guests(self) -> list[Guest]:
        """See :class:`.Hypervisor`."""
        return list(self.known.values())

    def begin_backup(self, request: BackupRequest) -> None:
        """See :class:`.Hypervisor`."""
        self.asked.append("begin_backup")
        guest = self.known.get(request.server)
        if guest is None:
            raise exception.NotFoundError(f"there is no guest {request.server}")
        if not guest.is_active or request.server in (*self.backups, *self.foreign_job):
            raise exception.ConflictError(f"guest {request.server} has another job")
        agent = self.agents.get(request.server)
        self.frozen_at_backup.append(agent is not None and agent.is_frozen)
        self.backups[request.server] = request
        for path in request.scratch.values():
            with open(path, "x"):
                pass

    def exports(self, request: BackupRequest) -> dict[str, BackupExport]:
        """See :class:`.Hypervisor`."""
        self.asked.append("exports")
        if request.server not in self.backups:
            raise exception.ConflictError(f"guest {request.server} has no backup")
        return {device: BackupExport(device, True) for device in request.scratch}

    def backup_status(self, server: str) -> BackupStatus | None:
        """See :class:`.Hypervisor`."""
        return BackupStatus(self.scratch_bytes) if server in self.backups else None

    def end_backup(self, server: str) -> bool:
        """See :class:`.Hypervisor`."""
        self.asked.append("end_backup")
        request = self.backups.pop(server, None)
        if request is None:
            return False
        for path in request.scratch.values():
            os.unlink(path)
        return True

    def ask_agent(self, server: str, command: str, timeout_s: int) -> Any:
        """See :class:`.Hypervisor`."""
        self.asked.append(command)
        agent = self.agents.get(server)
        guest = self.known.get(server)
        if agent is None or guest is None or not guest.is_active:
            raise AgentError("no agent")
        if command == "guest-fsfreeze-freeze":
            agent.is_frozen = True
            if agent.freeze_is_late:
                raise AgentError("late", is_late=True)
            return agent.file_systems
        if agent.deaf_thaws:
            agent.deaf_thaws -= 1
            raise AgentError("late", is_late=True)
        was_frozen, agent.is_frozen = agent.is_frozen, False
        return agent.file_systems if was_frozen and not agent.thaws_by_itself else 0

    def watch(self, on_event: OnEvent) -> None:
        """See :class:`.Hypervisor`."""
        self.on_event = on_event

    def close(self) -> None:
        """See :class:`.Hypervisor`."""

    # What happens to guests

    def stop(self, server: str, event: LifecycleEvent = LifecycleEvent.STOPPED) -> None:
        """Stop a guest: its job dies, and the scratch files go."""
        self.known[server] = dataclasses.replace(self.known[server], is_active=False)
        self.end_backup(server)
        if self.on_event is not None:
            self.on_event(server, event)

    def start(self, server: str) -> None:
        """Start a guest."""
        self.known[server] = dataclasses.replace(self.known[server], is_active=True)
        if self.on_event is not None:
            self.on_event(server, LifecycleEvent.STARTED)

    def undefine(self, server: str) -> None:
        """Forget a guest."""
        del self.known[server]
        if self.on_event is not None:
            self.on_event(server, LifecycleEvent.UNDEFINED)


class FaultyHypervisor(Hypervisor):
    """A hypervisor whose calls fail.

    :param faults: what a call raises, by its name.
    """

    def __init__(self, inner: Hypervisor, faults: Mapping[str, Exception]) -> None:
        self.inner = inner
        self.faults = dict(faults)

    def _call(self, name: str, *arguments: Any) -> Any:
        if name in self.faults:
            raise self.faults[name]
        return getattr(self.inner, name)(*arguments)

    def find(self, server: str) -> Guest | None:
        """See :class:`.Hypervisor`."""
        found: Guest | None = self._call("find", server)
        return found

    def guests(self) -> list[Guest]:
        """See :class:`.Hypervisor`."""
        return list(self._call("guests"))

    def begin_backup(self, request: BackupRequest) -> None:
        """See :class:`.Hypervisor`."""
        self._call("begin_backup", request)

    def exports(self, request: BackupRequest) -> dict[str, BackupExport]:
        """See :class:`.Hypervisor`."""
        return dict(self._call("exports", request))

    def backup_status(self, server: str) -> BackupStatus | None:
        """See :class:`.Hypervisor`."""
        found: BackupStatus | None = self._call("backup_status", server)
        return found

    def end_backup(self, server: str) -> bool:
        """See :class:`.Hypervisor`."""
        return bool(self._call("end_backup", server))

    def ask_agent(self, server: str, command: str, timeout_s: int) -> Any:
        """See :class:`.Hypervisor`."""
        return self._call("ask_agent", server, command, timeout_s)

    def watch(self, on_event: OnEvent) -> None:
        """See :class:`.Hypervisor`."""
        self._call("watch", on_event)

    def close(self) -> None:
        """See :class:`.Hypervisor`."""
        self.inner.close()
