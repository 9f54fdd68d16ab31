"""The hypervisor behind libvirt.

Its binding for Python comes with the distribution and is imported when a connection is made: a host
without it has no captures of servers, and everything else.

Source: https://libvirt.org/formatbackup.html and ``src/qemu/qemu_backup.c``; what each call does to
Nova's own is in RFD 36.
"""

import contextlib
import importlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from acstor import exception, untrusted_json
from acstor.agent.hypervisor.base import (
    AgentError,
    BackupExport,
    BackupRequest,
    BackupStatus,
    Hypervisor,
    LifecycleEvent,
    OnEvent,
)
from acstor.agent.hypervisor.domain_xml import Guest, parse_guest
from acstor.backoff import BackOff

LOG = logging.getLogger(__name__)

KEEPALIVE_SECONDS = 5
KEEPALIVE_COUNT = 6
"""Unanswered messages after which a connection counts as broken."""
END_TIMEOUT = 30.0
"""Seconds that a backup may take to end."""
_END = BackOff(first=0.02, longest=0.5)
_EXPORT_OF_OURS = "acstor-"
_HINT = "check that libvirt runs, and that this user may use [captures] libvirt_uri"


def import_binding() -> tuple[Any, Any]:
    """Return the modules ``libvirt`` and ``libvirt_qemu``.

    :raises UnsupportedError: where the binding is not installed.
    """
    try:
        # By name: it comes with the distribution, and is none of the requirements that pip reads.
        return importlib.import_module("libvirt"), importlib.import_module("libvirt_qemu")
    except ImportError as error:
        raise exception.UnsupportedError(
            "the Python binding of libvirt is not installed",
            hint="install python3-libvirt where ACStor's Python finds it (a virtual environment "
            "needs --system-site-packages, or libvirt-python), or set [captures] enabled = false",
        ) from error


class LibvirtHypervisor(Hypervisor):
    """Guests of one libvirt.

    :param uri: for example ``qemu:///system``.
    :param uses_monitor: whether QEMU's monitor may be asked for a map of the layers. libvirt marks
        guests of which it was as tainted.
    :param modules: for tests; None: :func:`import_binding`.
    :raises UnsupportedError: see :func:`import_binding`.
    """

    def __init__(
        self, uri: str, *, uses_monitor: bool = True, modules: tuple[Any, Any] | None = None
    ) -> None:
        self._libvirt, self._qemu = modules or import_binding()
        self._uri = uri
        self._uses_monitor = uses_monitor
        self._lock = threading.Lock()
        self._connection: Any = None
        self._on_event: OnEvent | None = None
        # libvirt writes every error to standard error unless it is told who takes them.
        self._libvirt.registerErrorHandler(lambda context, error: None, None)

    # Guests

    def find(self, server: str) -> Guest | None:
        """See :class:`.Hypervisor`."""
        with self._mapped(f"guest {server}"):
            domain = self._domain(server)
            return None if domain is None else self._guest(domain)

    def guests(self) -> list[Guest]:
        """See :class:`.Hypervisor`."""
        found = []
        with self._mapped("guests"):
            for domain in self._connected().listAllDomains(0):
                try:
                    found.append(self._guest(domain))
                except self._libvirt.libvirtError:
                    LOG.debug("a guest was undefined while guests were listed")
                except exception.InvalidError as error:
                    LOG.warning("a guest is left out: %s", error)
        return found

    def _guest(self, domain: Any) -> Guest:
        return parse_guest(domain.XMLDesc(0), is_active=bool(domain.isActive()))

    # Backups

    def begin_backup(self, request: BackupRequest) -> None:
        """See :class:`.Hypervisor`."""
        with self._mapped(f"backup of guest {request.server}"):
            domain = self._present(request.server)
            if not domain.isActive():
                raise exception.ConflictError(f"guest {request.server} does not run")
            disks = {disk.device for disk in self._guest(domain).disks}
            domain.backupBegin(backup_xml(request, sorted(disks)), None, 0)

    def exports(self, request: BackupRequest) -> dict[str, BackupExport]:
        """See :class:`.Hypervisor`."""
        with self._mapped(f"backup of guest {request.server}"):
            domain = self._present(request.server)
            if not domain.isActive():
                raise exception.ConflictError(f"guest {request.server} does not run any more")
            exports = {device: BackupExport(device, False) for device in request.scratch}
            if self._uses_monitor:
                exports.update(self._layer_exports(domain, request))
            return exports

    def backup_status(self, server: str) -> BackupStatus | None:
        """See :class:`.Hypervisor`."""
        with self._mapped(f"backup of guest {server}"):
            domain = self._domain(server)
            if domain is None or not domain.isActive():
                return None
            stats = self._backup_stats(domain)
            return None if stats is None else BackupStatus(int(stats.get("disk_temp_used", 0)))

    def end_backup(self, server: str) -> bool:
        """See :class:`.Hypervisor`."""
        with self._mapped(f"backup of guest {server}"):
            domain = self._domain(server)
            if domain is None or not domain.isActive() or not self._has_backup(domain):
                return False
            # Ours first: an export keeps the file of the layer open.
            for export in self._exports_of_ours(domain):
                self._monitor(domain, "block-export-del", {"id": export, "mode": "hard"})
            try:
                domain.abortJob()
            except self._libvirt.libvirtError as error:
                if error.get_error_code() != self._libvirt.VIR_ERR_OPERATION_INVALID:
                    raise
                LOG.debug("the backup of guest %s has ended by itself", server)
            self._wait_for_end(domain)
            return True

    def _wait_for_end(self, domain: Any) -> None:
        """Wait until QEMU has ended a job: that goes on after libvirt has answered."""
        until, attempts = time.monotonic() + END_TIMEOUT, 0
        while domain.isActive() and self._has_backup(domain):
            if time.monotonic() >= until:
                raise exception.DeadlineError(
                    f"the backup of guest {domain.UUIDString()} does not end in {END_TIMEOUT:g} s",
                    hint="look at 'virsh domjobinfo' and the log of libvirt",
                )
            attempts += 1
            time.sleep(_END.seconds(attempts))

    def _has_backup(self, domain: Any) -> bool:
        return self._backup_stats(domain) is not None

    def _backup_stats(self, domain: Any) -> dict[str, Any] | None:
        """Return what is told of a backup; None: the guest has no job, or one of another kind."""
        try:
            stats: dict[str, Any] = domain.jobStats(0)
        except self._libvirt.libvirtError as error:
            if error.get_error_code() == self._libvirt.VIR_ERR_INTERNAL_ERROR:
                return {}  # "backup job data missing": it is just beginning, or ending
            raise
        operation = stats.get("operation", 0)
        return stats if operation == self._libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP else None

    def _layer_exports(self, domain: Any, request: BackupRequest) -> dict[str, BackupExport]:
        """Have exports that tell of layers, too; where that fails, do without."""
        made = {}
        try:
            nodes = self._exported_nodes(domain)
            for device, scratch in request.scratch.items():
                node = nodes.get(scratch)
                if node is None:
                    continue
                name = _EXPORT_OF_OURS + device
                wanted = {"id": name, "type": "nbd", "node-name": node, "name": name}
                self._monitor(
                    domain,
                    "block-export-add",
                    {**wanted, "writable": False, "allocation-depth": True},
                )
                made[device] = BackupExport(name, True)
        except (exception.AcstorError, self._libvirt.libvirtError) as error:
            LOG.warning(
                "guest %s: QEMU tells nothing of layers, whole disks are read: %s",
                request.server,
                exception.one_line(error),
            )
        return made

    def _exported_nodes(self, domain: Any) -> dict[str, str]:
        """Return the exported nodes by their files: how libvirt calls either depends on it."""
        exports = self._monitor(domain, "query-block-exports", {})
        exported = {str(export.get("node-name")) for export in exports}
        nodes = self._monitor(domain, "query-named-block-nodes", {"flat": True})
        return {
            str(node.get("file")): str(node["node-name"])
            for node in nodes
            if node.get("node-name") in exported
        }

    def _exports_of_ours(self, domain: Any) -> list[str]:
        if not self._uses_monitor:
            return []
        with contextlib.suppress(exception.AcstorError, self._libvirt.libvirtError):
            found = self._monitor(domain, "query-block-exports", {})
            names = [str(one.get("id")) for one in found]
            return [name for name in names if name.startswith(_EXPORT_OF_OURS)]
        return []

    def _monitor(self, domain: Any, command: str, arguments: dict[str, Any]) -> Any:
        text = json.dumps({"execute": command, "arguments": arguments})
        return _returned(command, self._qemu.qemuMonitorCommand(domain, text, 0))

    # The agent in the guest

    def ask_agent(self, server: str, command: str, timeout_s: int) -> Any:
        """See :class:`.Hypervisor`."""
        with self._mapped(f"agent of guest {server}"):
            domain = self._domain(server)
            if domain is None or not domain.isActive():
                raise AgentError("the guest does not run")
            try:
                answer = self._qemu.qemuAgentCommand(
                    domain, json.dumps({"execute": command}), timeout_s, 0
                )
                return _returned(command, answer)
            except self._libvirt.libvirtError as error:
                late = (
                    self._libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
                    self._libvirt.VIR_ERR_OPERATION_TIMEOUT,
                    self._libvirt.VIR_ERR_AGENT_UNSYNCED,
                )
                raise AgentError(
                    exception.one_line(error), is_late=error.get_error_code() in late
                ) from error
            except exception.AcstorError as error:
                raise AgentError(error.message) from error

    # Events

    def watch(self, on_event: OnEvent) -> None:
        """See :class:`.Hypervisor`."""
        self.close()  # one that was opened before would tell of nothing
        self._on_event = on_event
        self._libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=self._run_events, name="libvirt-events", daemon=True).start()
        with self._mapped("events"):
            self._connected()

    def close(self) -> None:
        """See :class:`.Hypervisor`."""
        self._on_event = None
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(self._libvirt.libvirtError):
                connection.close()

    def _run_events(self) -> None:
        while self._on_event is not None:
            try:
                self._libvirt.virEventRunDefaultImpl()
            except self._libvirt.libvirtError as error:
                LOG.warning("libvirt's events: %s", exception.one_line(error))
                return

    def _take_event(
        self, connection: Any, domain: Any, event: int, detail: int, context: Any
    ) -> None:
        del connection, context
        happened = self._event_of(event, detail)
        on_event = self._on_event
        if happened is not None and on_event is not None:
            on_event(domain.UUIDString(), happened)

    def _event_of(self, event: int, detail: int) -> LifecycleEvent | None:
        libvirt = self._libvirt
        if event == libvirt.VIR_DOMAIN_EVENT_STARTED:
            return LifecycleEvent.STARTED
        if event == libvirt.VIR_DOMAIN_EVENT_UNDEFINED:
            return LifecycleEvent.UNDEFINED
        if event != libvirt.VIR_DOMAIN_EVENT_STOPPED:
            return None
        is_elsewhere = detail == libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED
        return LifecycleEvent.MIGRATED if is_elsewhere else LifecycleEvent.STOPPED

    # The connection

    def _connected(self) -> Any:
        with self._lock:
            if self._connection is not None and self._connection.isAlive():
                return self._connection
            connection = self._libvirt.open(self._uri)
            if self._on_event is not None:
                connection.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_COUNT)
                connection.domainEventRegisterAny(
                    None, self._libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._take_event, None
                )
            self._connection = connection
            return connection

    def _domain(self, server: str) -> Any:
        try:
            return self._connected().lookupByUUIDString(server)
        except self._libvirt.libvirtError as error:
            if error.get_error_code() == self._libvirt.VIR_ERR_NO_DOMAIN:
                return None
            raise

    def _present(self, server: str) -> Any:
        domain = self._domain(server)
        if domain is None:
            raise exception.NotFoundError(f"there is no guest {server} on this host")
        return domain

    @contextlib.contextmanager
    def _mapped(self, what: str) -> Iterator[None]:
        """Raise ACStor's errors in place of libvirt's."""
        try:
            yield
        except self._libvirt.libvirtError as error:
            libvirt, code = self._libvirt, error.get_error_code()
            text = f"{what}: libvirt: {exception.one_line(error)}"
            if code == libvirt.VIR_ERR_NO_DOMAIN:
                raise exception.NotFoundError(text) from error
            if code in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_OPERATION_TIMEOUT):
                raise exception.ConflictError(
                    text, hint="another job of the guest is under way: try again after it"
                ) from error
            if code in (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_OPERATION_UNSUPPORTED):
                raise exception.UnsupportedError(
                    text, hint="backups of running guests need libvirt 6.0 and QEMU 4.2 or newer"
                ) from error
            raise exception.UnavailableError(text, hint=_HINT) from error


def backup_xml(request: BackupRequest, devices: list[str]) -> str:
    """Return the description of a backup.

    :param devices: of all disks of the guest: those that are not asked for are left out by name,
        because libvirt takes what is not named.
    """
    root = ElementTree.Element("domainbackup", mode="pull")
    ElementTree.SubElement(root, "server", transport="unix", socket=request.socket_path)
    disks = ElementTree.SubElement(root, "disks")
    for device in devices:
        if device not in request.scratch:
            ElementTree.SubElement(disks, "disk", name=device, backup="no")
            continue
        disk = ElementTree.SubElement(disks, "disk", name=device, backup="yes", type="file")
        ElementTree.SubElement(disk, "driver", type="qcow2")
        ElementTree.SubElement(disk, "scratch", file=request.scratch[device])
    return ElementTree.tostring(root, encoding="unicode")


def _returned(command: str, text: str) -> Any:
    """Return what a command returned.

    :raises UnavailableError: when it failed, or its answer is none.
    """
    try:
        answer = untrusted_json.load(text, f"the answer to {command}")
    except ValueError as error:
        raise exception.UnavailableError(f"{command}: QEMU's answer is no JSON") from error
    if not isinstance(answer, dict) or "return" not in answer:
        reason = answer.get("error", {}) if isinstance(answer, dict) else {}
        raise exception.UnavailableError(f"{command}: {str(reason)[:200]}")
    return answer["return"]
