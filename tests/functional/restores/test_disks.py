"""Versions written into disks of stopped servers with QEMU's own tools, whoever is killed.

Content is compared with what ``qemu-img convert`` makes of the disk.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import uuid
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.agent.captures.processes import ChildProcesses, Hearing
from acstor.agent.hypervisor.domain_xml import DiskPlace, Guest, GuestDisk
from acstor.agent.restores.orders import RestoreOrder, RestoreReport
from acstor.agent.restores.target import open_target
from acstor.repository.images.usage import base_name
from acstor.versions.host_restore.request import RestoreRequest
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.descendants import kill_descendants
from testbed.fixtures.documents import ROOT
from testbed.fixtures.qmp import Qemu
from tests.functional.captures.test_processes import (
    CHUNK,
    IMAGE,
    SERVER,
    SIZE,
    Host,
    qemu_img,
    run,
)

PROCESSES = ChildProcesses(("-m", "testbed.fixtures.restoring_child"), purpose="a restore")
DAMAGE = (
    f"write -P 9 0 {CHUNK}",
    f"write -P 8 {CHUNK} 512",
    f"write -P 7 {12 * CHUNK} {4 * CHUNK}",
    f"write -z {30 * CHUNK} {2 * CHUNK}",
    f"write -P 6 {60 * CHUNK} {CHUNK}",
    f"discard {2 * CHUNK} {CHUNK}",
)
"""Writes of a user; 10 chunks are other than before."""


@pytest.fixture(autouse=True)
def imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have children import what the wheel does not have."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


class RestoredHost(Host):
    """A host with one disk of a stopped server."""

    disk_format = "qcow2"
    is_active = False

    @property
    def guest(self) -> Guest:
        disk = GuestDisk("vda", DiskPlace.FILE, str(self.disk), self.disk_format)
        return Guest(SERVER, self.is_active, (disk,))

    def make_raw(self) -> None:
        """Have the disk be raw from now on."""
        raw = self.disk.with_name("raw")
        qemu_img("convert", "-f", "qcow2", "-O", "raw", str(self.disk), str(raw))
        raw.rename(self.disk)
        self.disk_format = "raw"

    def write(self, *commands: str) -> None:
        options = [option for command in commands for option in ("-c", command)]
        run("qemu-io", "-f", self.disk_format, *options, str(self.disk))

    def converted(self) -> str:
        target = self.folder / "converted"
        qemu_img("convert", "-f", self.disk_format, "-O", "raw", str(self.disk), str(target))
        return hashlib.sha256(target.read_bytes()).hexdigest()

    def order(
        self, version: str, *, write_rate: int = 0, project: str = "a project"
    ) -> RestoreOrder:
        known = self.folder / "guest.json"
        known.write_text(json.dumps(dataclasses.asdict(self.guest)))
        request = RestoreRequest(str(uuid.UUID(int=50)), SERVER, "vda", version, project, IMAGE)
        return RestoreOrder(
            self.read_order(self.request(90 + len(os.listdir(self.folder / "captures")))).origin,
            request,
            0,
            write_rate,
            str(known),
            uses_monitor=False,
            nice=1,
        )

    def restore(self, version: str, project: str = "a project") -> RestoreReport:
        """Restore a version; return the report."""
        return do(self.order(version, project=project))

    def _checked(self) -> "subprocess.CompletedProcess[bytes] | None":
        """Return what qemu-img says of the disk; None while a process that dies has its lock."""
        done = subprocess.run(
            ["qemu-img", "check", "-f", "qcow2", str(self.disk)],
            timeout=120, capture_output=True, check=False,
        )  # fmt: skip
        return None if b"another process using the image" in done.stderr else done

    def check(self) -> None:
        """The image is whole; what a killed process has leaked is no damage."""
        if self.disk_format == "qcow2":
            done = wait_for("who was killed has let go of the disk", self._checked)
            assert done.returncode in (0, 3), done.stdout


def do(
    order: RestoreOrder,
    is_wanted: Callable[[], bool] = lambda: True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RestoreReport:
    hearing = Hearing(progress=progress)
    return RestoreReport.from_fields(PROCESSES.do_line(order.encode(), hearing, is_wanted, 300.0))


def failed(report: RestoreReport) -> exception.AcstorError:
    assert report.failure is not None
    return report.failure.to_error()


@pytest.fixture
def host(tmp_path: pathlib.Path) -> RestoredHost:
    return RestoredHost(tmp_path)


@pytest.mark.parametrize("is_raw", [False, True])
def test_disk_is_the_version_again(host: RestoredHost, is_raw: bool) -> None:
    if is_raw:
        host.make_raw()
    wanted = host.take(1)
    base = (host.folder / pathlib.Path(host.guest.disks[0].path or "").name).stat().st_ino
    host.write(*DAMAGE)
    assert host.digest(wanted) != host.converted()
    report = host.restore(wanted)
    assert report.failure is None
    assert report.is_touched
    assert host.digest(wanted) == host.converted()
    assert host.disk.stat().st_ino == base
    host.check()
    # Chunk 1 and 2 are the version's alone; of the others a qcow2's base file has all.
    assert report.written.written_bytes == 10 * CHUNK
    if not is_raw:
        assert 0 < report.written.fetched_bytes < CHUNK
        assert report.written.local_bytes > 0
    again = host.restore(wanted)
    assert (again.failure, again.is_touched) == (None, False)
    assert (again.written.written_bytes, again.written.fetched_bytes) == (0, 0)


def test_restore_is_taken_back_by_the_version_before(host: RestoredHost) -> None:
    first = host.take(1)
    host.write(*DAMAGE)
    second = host.take(2, first)
    for version in (first, second, first):
        assert host.restore(version).failure is None
        assert host.digest(version) == host.converted()
    host.check()


def test_base_file_that_is_another_is_not_believed(host: RestoredHost) -> None:
    """Chunks that the base file has otherwise than its image are fetched."""
    wanted = host.take(1)
    digest = host.digest(wanted)
    host.write(*DAMAGE)
    backing = host.folder / base_name(IMAGE)
    with backing.open("r+b") as file:
        file.seek(12 * CHUNK)
        file.write(b"other")
    report = host.restore(wanted)
    assert report.failure is None
    assert host.converted() == digest


class Killer:
    """Kills processes when one of a restore says for the n-th time how far it is."""

    def __init__(self, name: str, at: int) -> None:
        self._name, self._at, self._heard = name, at, 0

    def hear(self, done: int, total: int) -> None:
        self._heard += 1
        if self._heard == self._at:
            kill_descendants(self._name)


def is_done(order: RestoreOrder, killer: Killer) -> bool:
    """Do an order; return whether it came to its end."""
    try:
        report = do(order, progress=killer.hear)
    except exception.UnavailableError:
        return False
    if report.failure is None:
        return True
    assert failed(report).is_transient
    return False


@pytest.mark.parametrize("is_raw", [False, True])
@pytest.mark.parametrize("name", ["restoring_child", "qemu-nbd"])
def test_killed_anywhere_it_goes_on(host: RestoredHost, name: str, is_raw: bool) -> None:
    """Each process is killed at every further piece, until one comes to its end."""
    if is_raw:
        host.make_raw()
    wanted = host.take(1)
    host.write(*DAMAGE)
    at = 1
    # The first one is slow, so that a busy machine, too, kills it before its end.
    rate = CHUNK * 2
    while not is_done(host.order(wanted, write_rate=rate), Killer(name, at)):
        host.check()
        at += 1
        rate = CHUNK * 16
    assert at > 1
    assert host.digest(wanted) == host.converted()
    host.check()


def test_one_that_is_not_wanted_ends_soon_and_says_whether_it_wrote(host: RestoredHost) -> None:
    wanted = host.take(1)
    host.write(*DAMAGE)
    told: list[int] = []
    order = dataclasses.replace(host.order(wanted), write_rate=CHUNK)
    report = do(order, lambda: not told, lambda done, total: told.append(done))
    assert failed(report).is_transient
    assert host.restore(wanted).failure is None
    assert host.digest(wanted) == host.converted()


def test_disk_that_is_in_use_is_refused(host: RestoredHost, tmp_path: pathlib.Path) -> None:
    wanted = host.take(1)
    qemu = Qemu(tmp_path)
    try:
        opened = {
            "driver": "qcow2",
            "node-name": "disk",
            "file": {"driver": "file", "filename": str(host.disk)},
        }
        assert "return" in qemu.execute({"execute": "blockdev-add", "arguments": opened})
        report = host.restore(wanted)
        assert failed(report).kind is exception.ErrorKind.FENCED
        assert not report.is_touched
    finally:
        qemu.stop()
    assert host.restore(wanted).failure is None


def test_disk_that_is_written_cannot_be_started(host: RestoredHost) -> None:
    """A guest that is started meanwhile does not get the lock."""
    target = open_target("vda", str(host.disk), "qcow2")
    try:
        with pytest.raises(subprocess.CalledProcessError):
            host.write("read 0 512")
    finally:
        target.close()
    host.write("read 0 512")


@pytest.mark.parametrize("is_there", [True, False])
def test_disk_that_is_replaced_while_it_is_written_is_not_restored(
    host: RestoredHost, is_there: bool
) -> None:
    """As by a rebuild or a resize: what was written is nobody's disk any more."""
    target = open_target("vda", str(host.disk), "qcow2")
    try:
        target.write(0, memoryview(bytes([7]) * 512))
        host.disk.rename(host.disk.with_name("former"))
        if is_there:
            host.disk.write_bytes(host.disk.with_name("former").read_bytes())
        with pytest.raises(exception.ConflictError, match="replaced or moved"):
            target.finish()
    finally:
        target.close()


def test_server_that_runs_is_refused(host: RestoredHost) -> None:
    wanted = host.take(1)
    host.is_active = True
    report = host.restore(wanted)
    assert failed(report).kind is exception.ErrorKind.FENCED
    assert "runs" in failed(report).message
    assert not report.is_touched


def test_version_of_another_project_does_not_exist(host: RestoredHost) -> None:
    report = host.restore(host.take(1), project="another")
    assert isinstance(failed(report), exception.NotFoundError)


def test_disk_that_cannot_be_written_is_refused_untouched(host: RestoredHost) -> None:
    wanted = host.take(1)
    digest = host.converted()
    qemu_img("snapshot", "-c", "one", str(host.disk))
    report = host.restore(wanted)
    assert "1 snapshots inside" in failed(report).message
    qemu_img("snapshot", "-d", "one", str(host.disk))
    qemu_img("resize", "-q", "-f", "qcow2", str(host.disk), str(SIZE + CHUNK))
    report = host.restore(wanted)
    assert "resized" in failed(report).message
    assert not report.is_touched
    qemu_img("resize", "-q", "-f", "qcow2", "--shrink", str(host.disk), str(SIZE))
    assert host.converted() == digest


def test_chunk_that_is_damaged_is_never_written(host: RestoredHost) -> None:
    wanted = host.take(1)
    host.write(f"write -P 8 {CHUNK} {2 * CHUNK}")
    damaged = host.converted()
    for pack in (host.folder / "origin" / "packs").rglob("*"):
        if pack.is_file():
            pack.write_bytes(bytes(pack.stat().st_size))
    report = host.restore(wanted)
    assert failed(report).kind is exception.ErrorKind.CORRUPT
    assert not report.is_touched
    assert host.converted() == damaged
