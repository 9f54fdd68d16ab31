"""Disks of one moment written back as a set, with UEFI variables, whoever fails or is killed."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping

import pytest

from acstor import exception
from acstor.agent.captures.orders import HeldCapture, HeldMoment
from acstor.agent.captures.processes import Hearing
from acstor.agent.hypervisor.domain_xml import DiskPlace, Guest, GuestDisk
from acstor.agent.restores.orders import RestoreOrder, RestoreReport
from acstor.agent.restores.uefi_variables import SUFFIX
from acstor.versions.host_restore.request import RestoredDisk
from testbed.fixtures.documents import ROOT
from testbed.fixtures.qmp import Qemu
from tests.functional.captures import test_processes as captures
from tests.functional.captures.test_processes import CHUNK, SERVER, qemu_img, run
from tests.functional.restores.test_disks import (
    DAMAGE,
    Killer,
    RestoredHost,
    do,
    failed,
    is_done,
)

FIRMWARE_BYTES = 528 << 10
"""Bytes of the variables of OVMF."""
FORMER, LATER = (bytes([number]) * FIRMWARE_BYTES for number in (1, 2))


@pytest.fixture(autouse=True)
def imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have children import what the wheel does not have."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


class SetHost(RestoredHost):
    """A host with a stopped server of a qcow2 root disk, two ephemeral disks, UEFI variables."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.raw = folder / "disk.eph0"
        self.raw.write_bytes(bytes(3 * CHUNK) + b"one" + bytes(5 * CHUNK - 3))
        self.qcow2 = folder / "disk.eph1"
        qemu_img("create", "-q", "-f", "qcow2", str(self.qcow2), str(6 * CHUNK))
        run("qemu-io", "-f", "qcow2", "-c", f"write -P 3 {CHUNK} {CHUNK}", str(self.qcow2))
        self.nvram = folder / "variables.fd"
        self.nvram.write_bytes(FORMER)
        self.nvram.chmod(0o640)

    @property
    def guest(self) -> Guest:
        ephemeral = (
            GuestDisk("vdb", DiskPlace.FILE, str(self.raw), "raw"),
            GuestDisk("vdc", DiskPlace.FILE, str(self.qcow2), "qcow2"),
        )
        disks = super().guest.disks + ephemeral
        return Guest(SERVER, self.is_active, disks, nvram=str(self.folder / "variables.fd"))

    def take_set(self, number: int) -> dict[str, str]:
        """Take versions of all disks; return them by device."""
        request = self.request(number)
        order = self.read_order(request)
        moment = HeldMoment.from_fields(captures.do(order))
        report = captures.PROCESSES.do(
            self.commit_order(HeldCapture(request, moment, order.folder)),
            Hearing(),
            lambda: True,
            300.0,
        )
        assert report == {"outcomes": {request.task: None}}
        return {device: request.version_id(device) for device in ("vda", "vdb", "vdc")}

    def spoil(self) -> None:
        """Write to every disk as a guest would, and to the variables."""
        self.write(*DAMAGE)
        self.raw.write_bytes(b"two" + bytes(8 * CHUNK - 3))
        commands = (f"write -P 4 0 {CHUNK}", f"write -z {CHUNK} {CHUNK}")
        run("qemu-io", "-f", "qcow2", *(f"-c{one}" for one in commands), str(self.qcow2))
        self.nvram.write_bytes(LATER)

    def state(self) -> tuple[str, ...]:
        """Return what a guest would find on its disks, and in the variables."""
        flat = self.folder / "flat"
        qemu_img("convert", "-f", "qcow2", "-O", "raw", str(self.qcow2), str(flat))
        parts = (self.raw.read_bytes(), flat.read_bytes(), self.nvram.read_bytes())
        return (self.converted(), *(hashlib.sha256(part).hexdigest() for part in parts))

    def set_order(
        self, versions: Mapping[str, str], *, has_nvram: bool = True, write_rate: int = 0
    ) -> RestoreOrder:
        (first, version), *further = versions.items()
        known = self.order(version, write_rate=write_rate)
        request = dataclasses.replace(
            known.request,
            device=first,
            further=tuple(RestoredDisk(*one) for one in further),
            nvram=version if has_nvram else None,
        )
        return dataclasses.replace(known, request=request)

    def restore_set(self, versions: Mapping[str, str], *, has_nvram: bool = True) -> RestoreReport:
        return do(self.set_order(versions, has_nvram=has_nvram))

    def damage_version(self, version: str, kept: str) -> None:
        """Have the origin lose the packs that are one version's alone."""
        of_kept = self.repository.load_manifest(str(self.store.get(kept).record.manifest)).packs()
        manifest = self.repository.load_manifest(str(self.store.get(version).record.manifest))
        lost = {pack.hex() for pack in manifest.packs()} - {pack.hex() for pack in of_kept}
        assert lost
        for pack in (self.folder / "origin" / "packs").rglob("*"):
            if pack.is_file() and pack.name in lost:
                pack.write_bytes(bytes(pack.stat().st_size))


@pytest.fixture
def host(tmp_path: pathlib.Path) -> SetHost:
    return SetHost(tmp_path)


def test_all_disks_and_the_variables_are_as_they_were(host: SetHost) -> None:
    wanted = host.state()
    versions = host.take_set(1)
    host.spoil()
    before = host.nvram.stat()
    if is_root := os.geteuid() == 0:
        os.chown(host.nvram, 12, 34)
        os.setxattr(host.nvram, "user.label", b"guest")
    report = host.restore_set(versions)
    assert (report.failure, report.is_touched) == (None, True)
    assert host.state() == wanted
    after = host.nvram.stat()
    assert after.st_mode == before.st_mode
    assert after.st_ino != before.st_ino
    if is_root:
        assert (after.st_uid, after.st_gid) == (12, 34)
        assert os.getxattr(host.nvram, "user.label") == b"guest"
    again = host.restore_set(versions)
    assert (again.failure, again.is_touched, again.written.written_bytes) == (None, False, 0)
    assert host.nvram.stat().st_ino == after.st_ino


def test_only_disks_that_are_named_are_written(host: SetHost) -> None:
    wanted = host.state()
    versions = host.take_set(1)
    host.spoil()
    former = host.state()
    assert host.restore_set({"vdc": versions["vdc"]}, has_nvram=False).failure is None
    assert host.state() == (former[0], former[1], wanted[2], former[3])


def test_what_fails_at_the_second_disk_is_written_back(host: SetHost) -> None:
    versions = host.take_set(1)
    host.spoil()
    former = host.state()
    kept = host.take_set(2)
    host.damage_version(versions["vdb"], kept["vdb"])
    report = host.restore_set(versions)
    assert failed(report).kind is exception.ErrorKind.CORRUPT
    assert report.is_touched
    assert host.state()[0] != former[0]
    assert host.nvram.read_bytes() == LATER
    assert host.restore_set(kept).failure is None
    assert host.state() == former


@pytest.mark.parametrize("name", ["restoring_child", "qemu-nbd"])
def test_killed_anywhere_a_set_goes_on(host: SetHost, name: str) -> None:
    """Each process is killed at pieces further and further apart, until one comes to its end."""
    wanted = host.state()
    versions = host.take_set(1)
    host.spoil()
    at, rate = 1, CHUNK * 2
    while not is_done(host.set_order(versions, write_rate=rate), Killer(name, at)):
        host.check()
        assert host.nvram.read_bytes() in (FORMER, LATER)
        at += 1
        rate = CHUNK * 32
    assert at > 1
    assert host.state() == wanted
    assert not pathlib.Path(f"{host.nvram}{SUFFIX}").exists()


def test_set_of_which_one_disk_is_in_use_is_refused_untouched(host: SetHost) -> None:
    versions = host.take_set(1)
    host.spoil()
    former = host.state()
    qemu = Qemu(host.folder)
    opened = {
        "driver": "qcow2",
        "node-name": "disk",
        "file": {"driver": "file", "filename": str(host.qcow2)},
    }
    try:
        assert "return" in qemu.execute({"execute": "blockdev-add", "arguments": opened})
        report = host.restore_set(versions)
    finally:
        qemu.stop()
    assert failed(report).kind is exception.ErrorKind.FENCED
    assert not report.is_touched
    assert host.state() == former


@pytest.mark.parametrize(
    ("variables", "words"),
    [(LATER + bytes(512), "another firmware"), (None, "is not there")],
)
def test_variables_that_cannot_be_replaced_have_nothing_written(
    host: SetHost, variables: bytes | None, words: str
) -> None:
    versions = host.take_set(1)
    host.spoil()
    host.nvram.unlink()
    if variables is not None:
        host.nvram.write_bytes(variables)
    disks = host.converted(), host.raw.read_bytes()
    report = host.restore_set(versions)
    assert words in failed(report).message
    assert not report.is_touched
    assert (host.converted(), host.raw.read_bytes()) == disks
    assert host.restore_set(versions, has_nvram=False).failure is None


def test_hypervisor_that_knows_no_variables_is_refused(host: SetHost) -> None:
    """The description of the server is another than when it was captured."""
    versions = host.take_set(1)
    order = host.set_order(versions)
    known = pathlib.Path(order.libvirt_uri)
    known.write_text(json.dumps({**json.loads(known.read_bytes()), "nvram": None}))
    report = do(order)
    assert "no UEFI variables" in failed(report).message
    assert not report.is_touched
