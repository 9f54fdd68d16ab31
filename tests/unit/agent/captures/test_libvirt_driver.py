"""The hypervisor behind libvirt: what is asked of it, and what its errors are here."""

import pathlib
from xml.etree import ElementTree

import pytest

from acstor import exception
from acstor.agent.hypervisor import libvirt_driver
from acstor.agent.hypervisor.base import AgentError, BackupRequest, LifecycleEvent
from acstor.agent.hypervisor.libvirt_driver import LibvirtHypervisor, backup_xml
from testbed.doubles.memory_libvirt import (
    LibvirtError,
    MemoryDomain,
    MemoryLibvirt,
    MemoryLibvirtQemu,
)
from tests.unit.agent.captures.guests import SERVER
from tests.unit.agent.captures.test_disk_choice import XML

REQUEST = BackupRequest(SERVER, {"vda": "/scratch/vda"}, "/scratch/nbd.sock")


class Host:
    """libvirt with one guest."""

    def __init__(self, *, uses_monitor: bool = True) -> None:
        self.domain = MemoryDomain(SERVER, XML)
        self.libvirt = MemoryLibvirt(self.domain)
        self.hypervisor = LibvirtHypervisor(
            "qemu:///system",
            uses_monitor=uses_monitor,
            modules=(self.libvirt, MemoryLibvirtQemu()),
        )


@pytest.fixture
def host() -> Host:
    return Host()


def test_guests_are_found(host: Host) -> None:
    guest = host.hypervisor.find(SERVER)
    assert guest is not None
    assert guest.is_active
    assert host.hypervisor.guests() == [guest]
    assert host.hypervisor.find(SERVER.replace("0", "1")) is None
    host.domain.xml = "<domain/>"
    assert host.hypervisor.guests() == []


def test_backup_names_every_disk_and_makes_no_checkpoint(host: Host) -> None:
    host.hypervisor.begin_backup(REQUEST)
    exports = host.hypervisor.exports(REQUEST)
    root = ElementTree.fromstring(host.domain.backup_xml)
    assert root.get("mode") == "pull"
    server = root.find("server")
    assert server is not None
    assert dict(server.attrib) == {"transport": "unix", "socket": "/scratch/nbd.sock"}
    disks = {disk.get("name"): disk.get("backup") for disk in root.iterfind("disks/disk")}
    assert disks.pop("vda") == "yes"
    assert set(disks.values()) == {"no"}
    assert root.find("incremental") is None
    assert exports["vda"].tells_layers
    assert host.domain.exports[exports["vda"].name] == "libvirt-4-format"


def test_backup_is_ended_with_the_exports_that_were_added(host: Host) -> None:
    host.hypervisor.begin_backup(REQUEST)
    host.hypervisor.exports(REQUEST)
    host.domain.temp_used = 5
    status = host.hypervisor.backup_status(SERVER)
    assert status is not None
    assert status.scratch_bytes == 5
    assert host.hypervisor.end_backup(SERVER)
    assert host.domain.is_aborted
    assert not host.hypervisor.end_backup(SERVER)
    assert host.hypervisor.backup_status(SERVER) is None


def test_backup_that_is_just_beginning_or_ending_is_one(host: Host) -> None:
    """libvirt has it as a job, and no data of it yet, or any more."""
    host.domain.is_beginning = True
    status = host.hypervisor.backup_status(SERVER)
    assert status is not None
    assert status.scratch_bytes == 0
    assert host.hypervisor.end_backup(SERVER)
    assert host.hypervisor.backup_status(SERVER) is None


def test_job_of_somebody_else_is_left_alone(host: Host) -> None:
    host.domain.operation = 3  # a migration
    assert not host.hypervisor.end_backup(SERVER)
    assert not host.domain.is_aborted


@pytest.mark.parametrize("uses_monitor", [True, False])
def test_backup_goes_without_the_monitor(uses_monitor: bool) -> None:
    host = Host(uses_monitor=uses_monitor)
    host.domain.monitor_works = False
    host.hypervisor.begin_backup(REQUEST)
    exports = host.hypervisor.exports(REQUEST)
    assert (exports["vda"].name, exports["vda"].tells_layers) == ("vda", False)
    assert host.hypervisor.end_backup(SERVER)


def test_guest_that_does_not_run_has_no_backup(host: Host) -> None:
    host.domain.is_active = False
    with pytest.raises(exception.ConflictError):
        host.hypervisor.begin_backup(REQUEST)
    with pytest.raises(exception.ConflictError):
        host.hypervisor.exports(REQUEST)
    assert host.hypervisor.backup_status(SERVER) is None
    assert not host.hypervisor.end_backup(SERVER)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (MemoryLibvirt.VIR_ERR_OPERATION_INVALID, exception.ConflictError),
        (MemoryLibvirt.VIR_ERR_OPERATION_TIMEOUT, exception.ConflictError),
        (MemoryLibvirt.VIR_ERR_NO_SUPPORT, exception.UnsupportedError),
        (MemoryLibvirt.VIR_ERR_OPERATION_UNSUPPORTED, exception.UnsupportedError),
        (MemoryLibvirt.VIR_ERR_NO_DOMAIN, exception.NotFoundError),
        (38, exception.UnavailableError),
    ],
)
def test_errors_have_kinds(host: Host, code: int, expected: type[Exception]) -> None:
    host.domain.begin_error = LibvirtError(code)
    with pytest.raises(expected):
        host.hypervisor.begin_backup(REQUEST)


def test_libvirt_that_is_away_is_unavailable_and_asked_again(host: Host) -> None:
    host.libvirt.open_error = LibvirtError(38, "no socket")
    with pytest.raises(exception.UnavailableError, match="no socket"):
        host.hypervisor.find(SERVER)
    host.libvirt.open_error = None
    assert host.hypervisor.find(SERVER) is not None
    host.libvirt.opened[-1].is_alive = False
    assert host.hypervisor.find(SERVER) is not None
    assert len(host.libvirt.opened) == 2
    host.hypervisor.close()
    host.hypervisor.close()


def test_agent_is_asked_with_a_deadline(host: Host) -> None:
    asked: list[tuple[str, int]] = []

    def agent(command: str, timeout: int) -> int:
        asked.append((command, timeout))
        return 2

    host.domain.agent = agent
    assert host.hypervisor.ask_agent(SERVER, "guest-fsfreeze-freeze", 5) == 2
    assert asked == [("guest-fsfreeze-freeze", 5)]
    host.domain.agent = None
    with pytest.raises(AgentError) as caught:
        host.hypervisor.ask_agent(SERVER, "guest-fsfreeze-thaw", 5)
    assert caught.value.is_late
    host.domain.is_active = False
    with pytest.raises(AgentError, match="does not run"):
        host.hypervisor.ask_agent(SERVER, "guest-fsfreeze-thaw", 5)


def test_events_are_told_and_a_move_is_no_stop(host: Host) -> None:
    told: list[tuple[str, LifecycleEvent]] = []
    host.hypervisor.watch(lambda server, event: told.append((server, event)))
    (callback,) = host.libvirt.opened[-1].callbacks
    for event, detail in ((2, 0), (5, 0), (5, 3), (1, 0), (4, 0)):
        callback(None, host.domain, event, detail, None)
    assert told == [
        (SERVER, LifecycleEvent.STARTED),
        (SERVER, LifecycleEvent.STOPPED),
        (SERVER, LifecycleEvent.MIGRATED),
        (SERVER, LifecycleEvent.UNDEFINED),
    ]
    host.hypervisor.close()
    callback(None, host.domain, 2, 0, None)
    assert len(told) == 4


def test_host_without_the_binding_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "libvirt", None)
    with pytest.raises(exception.UnsupportedError) as caught:
        libvirt_driver.import_binding()
    assert "python3-libvirt" in caught.value.hint


def test_names_in_a_backup_are_escaped(tmp_path: pathlib.Path) -> None:
    request = BackupRequest(SERVER, {"vda": "/scratch/a'&<b"}, "/s")
    root = ElementTree.fromstring(backup_xml(request, ["vda"]))
    scratch = root.find("disks/disk/scratch")
    assert scratch is not None
    assert scratch.get("file") == "/scratch/a'&<b"
