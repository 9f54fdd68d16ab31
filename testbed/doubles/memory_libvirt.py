"""The parts of the modules ``libvirt`` and ``libvirt_qemu`` that captures use, in memory."""

import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree


class LibvirtError(Exception):
    """``libvirt.libvirtError``."""

    def __init__(self, code: int, text: str = "failed") -> None:
        super().__init__(text)
        self._code = code

    def get_error_code(self) -> int:
        """Return the number of the error."""
        return self._code


class MemoryDomain:
    """A ``virDomain``."""

    def __init__(self, uuid: str, xml: str, *, is_active: bool = True) -> None:
        self.uuid = uuid
        self.xml = xml
        self.is_active = is_active
        self.operation = 0
        self.backup_xml = ""
        self.scratch = ""
        self.is_aborted = False
        self.is_beginning = False
        self.exports: dict[str, str] = {}
        self.agent: Callable[[str, int], Any] | None = None
        self.begin_error: LibvirtError | None = None
        self.monitor_works = True
        self.temp_used = 0

    def UUIDString(self) -> str:  # noqa: N802 - of libvirt
        """Return the UUID."""
        return self.uuid

    def XMLDesc(self, flags: int) -> str:  # noqa: N802 - of libvirt
        """Return the description."""
        return self.xml

    def isActive(self) -> int:  # noqa: N802 - of libvirt
        """Return 1 if it runs."""
        return int(self.is_active)

    def backupBegin(  # noqa: N802 - of libvirt
        self, backup_xml: str, checkpoint_xml: str | None, flags: int
    ) -> None:
        """Begin a backup."""
        assert checkpoint_xml is None  # one that is left keeps Nova from deleting the server
        if self.begin_error is not None:
            raise self.begin_error
        self.backup_xml = backup_xml
        self.operation = MemoryLibvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP
        self.exports["libvirt-nbd-libvirt-4-format"] = "libvirt-4-format"
        root = ElementTree.fromstring(backup_xml)
        scratch = root.find("disks/disk/scratch")
        self.scratch = "" if scratch is None else scratch.get("file", "")

    def jobStats(self, flags: int) -> dict[str, int]:  # noqa: N802 - of libvirt
        """Return what the job is."""
        if self.is_beginning:
            raise LibvirtError(MemoryLibvirt.VIR_ERR_INTERNAL_ERROR, "backup job data missing")
        told = {"operation": self.operation, "disk_temp_used": self.temp_used}
        if self.is_aborted:  # it is still there when the call to end it is answered
            self.operation = 0
        return told

    def abortJob(self) -> None:  # noqa: N802 - of libvirt
        """End the job."""
        if self.is_beginning:
            self.is_beginning = False
            raise LibvirtError(MemoryLibvirt.VIR_ERR_OPERATION_INVALID, "no job is active")
        self.is_aborted = True
        self.exports.clear()


class MemoryConnection:
    """A ``virConnect``."""

    def __init__(self, domains: list[MemoryDomain]) -> None:
        self._domains = domains
        self.is_alive = True
        self.callbacks: list[Callable[..., None]] = []

    def lookupByUUIDString(self, uuid: str) -> MemoryDomain:  # noqa: N802 - of libvirt
        """Return a domain."""
        for domain in self._domains:
            if domain.uuid == uuid:
                return domain
        raise LibvirtError(MemoryLibvirt.VIR_ERR_NO_DOMAIN)

    def listAllDomains(self, flags: int) -> list[MemoryDomain]:  # noqa: N802 - of libvirt
        """Return all domains."""
        return list(self._domains)

    def isAlive(self) -> bool:  # noqa: N802 - of libvirt
        """Return whether the connection is there."""
        return self.is_alive

    def setKeepAlive(self, interval: int, count: int) -> None:  # noqa: N802 - of libvirt
        """Set how soon a broken connection is noticed."""

    def domainEventRegisterAny(  # noqa: N802 - of libvirt
        self, domain: object, event: int, callback: Callable[..., None], opaque: object
    ) -> int:
        """Register for events."""
        self.callbacks.append(callback)
        return len(self.callbacks)

    def close(self) -> None:
        """Close."""
        self.is_alive = False


class MemoryLibvirt:
    """The module ``libvirt``."""

    libvirtError = LibvirtError  # noqa: N815 - of libvirt
    VIR_ERR_INTERNAL_ERROR = 1
    VIR_ERR_NO_SUPPORT = 3
    VIR_ERR_NO_DOMAIN = 42
    VIR_ERR_OPERATION_INVALID = 55
    VIR_ERR_OPERATION_TIMEOUT = 68
    VIR_ERR_AGENT_UNRESPONSIVE = 86
    VIR_ERR_OPERATION_UNSUPPORTED = 84
    VIR_ERR_AGENT_UNSYNCED = 97
    VIR_DOMAIN_JOB_OPERATION_BACKUP = 9
    VIR_DOMAIN_EVENT_ID_LIFECYCLE = 0
    VIR_DOMAIN_EVENT_UNDEFINED = 1
    VIR_DOMAIN_EVENT_STARTED = 2
    VIR_DOMAIN_EVENT_STOPPED = 5
    VIR_DOMAIN_EVENT_STOPPED_MIGRATED = 3

    def __init__(self, *domains: MemoryDomain) -> None:
        self.domains = list(domains)
        self.opened: list[MemoryConnection] = []
        self.open_error: LibvirtError | None = None

    def open(self, uri: str) -> MemoryConnection:
        """Open a connection."""
        if self.open_error is not None:
            raise self.open_error
        self.opened.append(MemoryConnection(self.domains))
        return self.opened[-1]

    def registerErrorHandler(  # noqa: N802 - of libvirt
        self, handler: Callable[..., None], context: object
    ) -> None:
        """Take who is told of errors."""

    def virEventRegisterDefaultImpl(self) -> None:  # noqa: N802 - of libvirt
        """Begin to have events."""

    def virEventRunDefaultImpl(self) -> None:  # noqa: N802 - of libvirt
        """Wait for events: there are none but those that a test makes."""
        raise LibvirtError(1, "no events here")


class MemoryLibvirtQemu:
    """The module ``libvirt_qemu``."""

    def qemuMonitorCommand(  # noqa: N802 - of libvirt
        self, domain: MemoryDomain, command: str, flags: int
    ) -> str:
        """Answer as QEMU does."""
        if not domain.monitor_works:
            return json.dumps({"error": {"class": "CommandNotFound", "desc": "no such command"}})
        asked = json.loads(command)
        arguments = asked.get("arguments", {})
        match asked["execute"]:
            case "query-block-exports":
                exports = [{"id": name, "node-name": node} for name, node in domain.exports.items()]
                return json.dumps({"return": exports})
            case "query-named-block-nodes":
                nodes = [
                    {"node-name": "libvirt-1-format", "file": "/other"},
                    {"node-name": "libvirt-4-format", "file": domain.scratch},
                    {"node-name": "libvirt-4-storage", "file": domain.scratch},
                ]
                return json.dumps({"return": nodes})
            case "block-export-add":
                assert arguments["allocation-depth"] is True
                domain.exports[arguments["id"]] = arguments["node-name"]
            case "block-export-del":
                del domain.exports[arguments["id"]]
            case other:
                raise AssertionError(other)
        return json.dumps({"return": {}})

    def qemuAgentCommand(  # noqa: N802 - of libvirt
        self, domain: MemoryDomain, command: str, timeout: int, flags: int
    ) -> str:
        """Answer as an agent does."""
        if domain.agent is None:
            raise LibvirtError(MemoryLibvirt.VIR_ERR_AGENT_UNRESPONSIVE, "not connected")
        return json.dumps({"return": domain.agent(json.loads(command)["execute"], timeout)})
