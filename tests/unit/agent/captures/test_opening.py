"""Moments that are opened: of guests that run, that do not, and of pins; nothing is left of any."""

import dataclasses
import os
import pathlib
import threading
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.agent.captures.opening import BackupWatch, MomentOpener
from acstor.agent.captures.sources.base import DiskSource
from acstor.agent.captures.sources.uefi_variables import read_nvram
from acstor.agent.hypervisor.base import BackupExport, BackupRequest
from acstor.repository.versions.record import Consistency
from acstor.versions.host_capture.request import WantedConsistency
from testbed.doubles.memory_disk import MemoryDisk
from testbed.doubles.memory_hypervisor import FaultyHypervisor, MemoryAgent, MemoryHypervisor
from testbed.fixtures.conditions import wait_for
from tests.unit.agent.captures.guests import SERVER, disk_at, guest_of_disks, request_of
from tests.unit.repository.versions.records import NOON


class Host:
    """A host with one guest of two disks; the scratch folder counts as another file system."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        disks = []
        for device in ("vda", "vdb"):
            path = folder / device
            path.write_bytes(bytes(4096))
            disks.append(disk_at(path, device))
        self.nvram = folder / "nvram.fd"
        self.nvram.write_bytes(b"variables")
        self.guest = guest_of_disks(
            *disks, nvram=str(self.nvram), has_agent=True, is_agent_connected=True
        )
        self.hypervisor = MemoryHypervisor(self.guest)
        self.hypervisor.agents[SERVER] = MemoryAgent()
        self.opened: list[DiskSource] = []
        self.frozen: list[str] = []
        monkeypatch.setattr(MomentOpener, "_check_scratch", lambda self, choice: None)
        self.opener = MomentOpener(
            self.hypervisor,
            str(self.scratch),
            1 << 30,
            self.frozen.append,
            self._export,
            self._file,
            lambda: NOON,
        )

    def _export(
        self, device: str, path: str, export: BackupExport, check: Callable[[], None]
    ) -> DiskSource:
        return self._file(device, path, "qcow2", check)

    def _file(
        self, device: str, path: str, disk_format: str, check: Callable[[], None]
    ) -> DiskSource:
        self.opened.append(MemoryDisk(device, 1, {0: b"a" * 4096}, check=check))
        return self.opened[-1]

    def stop(self) -> None:
        self.hypervisor.stop(SERVER)


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def left(host: Host) -> list[str]:
    return [*os.listdir(host.scratch), *host.hypervisor.backups]


def test_running_guest_is_frozen_only_while_the_backup_begins(host: Host) -> None:
    with host.opener.opened(request_of()) as moment:
        assert host.hypervisor.frozen_at_backup == [True]
        assert not host.hypervisor.agents[SERVER].is_frozen
        assert [source.device for source in moment.sources] == ["vda", "vdb"]
        assert (moment.created_at, moment.consistency) == (NOON, Consistency.FS)
        assert moment.nvram == b"variables"
        for source in moment.sources:
            source.check_unchanged()
    assert left(host) == []
    assert all(isinstance(one, MemoryDisk) and one.is_closed for one in host.opened)
    assert host.frozen == [SERVER, ""]


def test_nothing_but_the_backup_begins_while_the_guest_is_frozen(host: Host) -> None:
    with host.opener.opened(request_of()):
        pass
    assert host.hypervisor.asked[:4] == [
        "guest-fsfreeze-freeze", "begin_backup", "guest-fsfreeze-thaw", "exports"
    ]  # fmt: skip


def test_only_disks_that_are_asked_for_are_backed_up(host: Host) -> None:
    with host.opener.opened(request_of(devices=("vdb",))):
        assert list(host.hypervisor.backups[SERVER].scratch) == ["vdb"]
    assert left(host) == []


def test_guest_that_stops_meanwhile_is_of_no_one_moment(host: Host) -> None:
    with host.opener.opened(request_of()) as moment:
        host.stop()
        with pytest.raises(exception.ConflictError, match="was ended"):
            moment.sources[0].check_unchanged()
    assert left(host) == []


def test_full_scratch_ends_the_backup_before_the_guest_has_errors(host: Host) -> None:
    with host.opener.opened(request_of()) as moment:
        host.hypervisor.scratch_bytes = (1 << 30) + 1
        with pytest.raises(exception.ExhaustedError, match="scratch"):
            moment.sources[0].check_unchanged()
        assert host.hypervisor.backups == {}
    assert left(host) == []


def test_full_file_system_of_scratch_ends_the_backup(host: Host) -> None:
    with host.opener.opened(request_of()):
        status = os.statvfs(host.scratch)
        fields = list(status)
        fields[4] = 0  # f_bavail
        watch = BackupWatch(
            host.hypervisor,
            SERVER,
            str(host.scratch),
            1 << 40,
            look=lambda path: os.statvfs_result(fields),
        )
        with pytest.raises(exception.ExhaustedError):
            watch.check()
        assert host.hypervisor.backups == {}


def test_guest_with_another_job_is_left_alone(host: Host) -> None:
    host.hypervisor.foreign_job.add(SERVER)
    with pytest.raises(exception.ConflictError), host.opener.opened(request_of()):
        raise AssertionError("another job is under way")
    assert not host.hypervisor.agents[SERVER].is_frozen
    assert left(host) == []


@pytest.mark.parametrize("wanted", [WantedConsistency.BEST, WantedConsistency.CRASH])
def test_backup_that_does_not_begin_in_time_freezes_nobody(
    host: Host, wanted: WantedConsistency
) -> None:
    may_begin = threading.Event()
    begin_backup = host.hypervisor.begin_backup

    def begin_late(request: BackupRequest) -> None:
        may_begin.wait(60)
        begin_backup(request)

    host.hypervisor.begin_backup = begin_late  # type: ignore[method-assign]
    opener = dataclasses.replace(host.opener, begin_seconds=0.01)
    if wanted is WantedConsistency.BEST:
        opener = dataclasses.replace(host.opener, frozen_seconds=0.01)
    with pytest.raises(exception.DeadlineError), opener.opened(request_of(consistency=wanted)):
        raise AssertionError("it has not begun")
    assert not host.hypervisor.agents[SERVER].is_frozen
    ended = host.hypervisor.asked.count("end_backup")
    may_begin.set()
    wait_for("its end", lambda: host.hypervisor.asked.count("end_backup") > ended, 60.0)
    wait_for("nothing left", lambda: not left(host), 60.0)


def test_nothing_is_left_when_an_export_cannot_be_opened(host: Host) -> None:
    def fail(*arguments: object) -> DiskSource:
        raise exception.UnavailableError("no server")

    opener = dataclasses.replace(host.opener, open_export=fail)
    with pytest.raises(exception.UnavailableError), opener.opened(request_of()):
        raise AssertionError("it was not opened")
    assert left(host) == []


def test_scratch_beside_the_disks_is_refused(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with (
        pytest.raises(exception.ConfigurationError, match="scratch_path"),
        host.opener.opened(request_of(consistency=WantedConsistency.CRASH)),
    ):
        raise AssertionError("a full one would be an error in the guest")
    assert host.hypervisor.frozen_at_backup == []
    assert "guest-fsfreeze-freeze" not in host.hypervisor.asked


def test_stopped_guest_is_read_at_rest(host: Host) -> None:
    host.stop()
    with host.opener.opened(request_of()) as moment:
        assert (moment.consistency, moment.created_at) == (Consistency.CRASH, NOON)
        assert moment.nvram == b"variables"
        moment.sources[0].check_unchanged()
        host.hypervisor.start(SERVER)
        with pytest.raises(exception.ConflictError, match="was started"):
            moment.sources[0].check_unchanged()
    assert "begin_backup" not in host.hypervisor.asked


def test_pinned_disks_are_read_though_the_guest_is_gone(host: Host, tmp_path: pathlib.Path) -> None:
    os.link(tmp_path / "vda", tmp_path / "pinned")
    pinned = dataclasses.replace(
        host.guest, is_active=False, disks=(disk_at(tmp_path / "pinned"),), nvram=None
    )
    host.hypervisor.undefine(SERVER)
    with host.opener.opened(request_of(), pinned, NOON) as moment:
        assert [source.device for source in moment.sources] == ["vda"]
        assert moment.created_at == NOON


def test_pin_that_a_guest_writes_to_again_is_refused(host: Host, tmp_path: pathlib.Path) -> None:
    os.link(tmp_path / "vda", tmp_path / "pinned")
    pinned = dataclasses.replace(
        host.guest, is_active=False, disks=(disk_at(tmp_path / "pinned"),), nvram=None
    )
    with (
        pytest.raises(exception.ConflictError, match="was started"),
        host.opener.opened(request_of(), pinned, NOON),
    ):
        raise AssertionError("the guest writes to it")


def test_server_that_is_not_here_is_not_found(host: Host) -> None:
    with (
        pytest.raises(exception.NotFoundError),
        host.opener.opened(request_of(owner=request_of().task)),
    ):
        raise AssertionError("it is not here")


def test_hypervisor_that_fails_at_the_end_is_only_told_of(host: Host) -> None:
    faulty = FaultyHypervisor(host.hypervisor, {})
    opener = dataclasses.replace(host.opener, hypervisor=faulty)
    with opener.opened(request_of()):
        faulty.faults["end_backup"] = exception.UnavailableError("libvirt is away")
    assert os.listdir(host.scratch) == []


def test_variables_are_read_within_bounds(tmp_path: pathlib.Path) -> None:
    assert read_nvram(None) is None
    assert read_nvram(str(tmp_path / "none")) is None
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(exception.UnsupportedError):
        read_nvram(str(large))
    (tmp_path / "link").symlink_to(large)
    with pytest.raises(exception.UnavailableError):
        read_nvram(str(tmp_path / "link"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(exception.UnsupportedError, match="no regular file"):
        read_nvram(str(tmp_path / "pipe"))
