"""Processes of captures: a pinned overlay becomes versions, and any of them may be killed."""

import hashlib
import pathlib
import subprocess
import uuid
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.agent.captures.orders import (
    CommitOrder,
    HeldCapture,
    HeldMoment,
    OriginOrder,
    ReadLimits,
    ReadOrder,
)
from acstor.agent.captures.processes import ChildProcesses, Hearing
from acstor.agent.hypervisor.domain_xml import DiskPlace, Guest, GuestDisk
from acstor.origin.opening import open_origin
from acstor.repository.images.usage import base_name
from acstor.repository.repository import Repository
from acstor.repository.versions.record import DiskKind
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.versions.host_capture.request import CaptureRequest, VersionFields
from testbed.fixtures.descendants import kill_descendants
from testbed.fixtures.documents import ROOT
from testbed.fixtures.stored_chunks import read_chunk
from tests.unit.repository.images import image_id, register
from tests.unit.repository.versions.records import NOON

CHUNK = 64 << 10
SIZE = 64 * CHUNK
SERVER = str(uuid.UUID(int=70))
IMAGE = image_id(0)
PROCESSES = ChildProcesses(("-m", "testbed.fixtures.capturing_child"))


@pytest.fixture(autouse=True)
def imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have children import what the wheel does not have."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


class Host:
    """A host with one pinned disk, over the base file of a registered image."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        (folder / "origin").mkdir()
        self.url = f"file://{folder / 'origin'}"
        self.repository = Repository.init(open_origin(self.url, 60.0), CHUNK)
        self.store = VersionStore(self.repository)
        base = folder / base_name(IMAGE)
        content = b"".join(bytes([number + 1]) * CHUNK for number in range(48)) + bytes(16 * CHUNK)
        base.write_bytes(content)
        register(self.repository, 0, content)
        self.disk = folder / "disk"
        qemu_img("create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), str(self.disk))
        self.write(f"write -P 200 {CHUNK} {2 * CHUNK}", f"write -z {10 * CHUNK} {CHUNK}")
        (folder / "variables.fd").write_bytes(b"variables")

    def write(self, *commands: str) -> None:
        options = [option for command in commands for option in ("-c", command)]
        run("qemu-io", "-f", "qcow2", *options, str(self.disk))

    @property
    def guest(self) -> Guest:
        disk = GuestDisk("vda", DiskPlace.FILE, str(self.disk), "qcow2")
        return Guest(SERVER, False, (disk,), nvram=str(self.folder / "variables.fd"))

    def request(self, number: int, parent: str | None = None) -> CaptureRequest:
        return CaptureRequest(
            str(uuid.UUID(int=number)),
            DiskKind.INSTANCE,
            SERVER,
            VersionFields("a project"),
            parents={"vda": parent} if parent else {},
            base_image=IMAGE,
        )

    def read_order(self, request: CaptureRequest, read_rate: int = 0) -> ReadOrder:
        folder = self.folder / "captures" / request.task
        folder.mkdir(parents=True)
        return ReadOrder(
            OriginOrder(self.url, 60.0, "h1"),
            request,
            str(folder),
            ReadLimits(read_rate, 0, 1 << 30, 0.0, 1 << 30),
            "none",
            uses_monitor=False,
            scratch_path=str(self.folder),
            nice=1,
            pinned=self.guest,
            pinned_at=NOON,
        )

    def commit_order(self, *captures: HeldCapture) -> CommitOrder:
        return CommitOrder(OriginOrder(self.url, 60.0, "h1"), captures, 1 << 20, 1, 1 << 16, 0, 1)

    def take(self, number: int, parent: str | None = None) -> str:
        """Take a version; return its id."""
        request = self.request(number, parent)
        order = self.read_order(request)
        moment = HeldMoment.from_fields(do(order))
        record = self.store.get(request.version_id("vda")).record
        assert (record.state, record.is_restorable) == (VersionState.CAPTURED, False)
        told: list[str] = []
        capture = HeldCapture(request, moment, order.folder)
        report = PROCESSES.do(
            self.commit_order(capture), Hearing(committed=told.append), lambda: True, 300.0
        )
        assert report == {"outcomes": {request.task: None}}
        assert told == [request.version_id("vda")]
        return told[0]

    def digest(self, version: str) -> str:
        """Return the digest of a version's content."""
        record = self.store.get(version).record
        assert record.manifest is not None
        manifest = self.repository.load_manifest(record.manifest)
        found = hashlib.sha256()
        for index in range(manifest.chunk_count):
            entry = manifest.entry(index)
            chunk = (
                bytes(CHUNK) if entry is None else read_chunk(self.repository.origin, entry, CHUNK)
            )
            found.update(chunk)
        return found.hexdigest()

    def converted(self) -> str:
        target = self.folder / "converted"
        qemu_img("convert", "-f", "qcow2", "-O", "raw", str(self.disk), str(target))
        return hashlib.sha256(target.read_bytes()).hexdigest()


def run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)


def qemu_img(*arguments: str) -> None:
    run("qemu-img", *arguments)


def do(order: ReadOrder | CommitOrder, is_wanted: Callable[[], bool] = lambda: True) -> object:
    return PROCESSES.do(order, Hearing(), is_wanted, 300.0)


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_versions_have_the_bytes_that_qemu_reads(host: Host) -> None:
    first = host.take(1)
    assert host.digest(first) == host.converted()
    record = host.store.get(first).record
    assert record.created_at == NOON
    assert record.nvram is not None
    assert record.delta is not None
    assert (record.delta.changed_chunks, record.delta.stored_chunks) == (3, 1)
    host.write(f"write -P 201 {20 * CHUNK} 512", f"discard {CHUNK} {CHUNK}")
    second = host.take(2, first)
    assert host.digest(second) == host.converted()
    record = host.store.get(second).record
    assert record.parent == first
    assert record.delta is not None
    assert (record.delta.changed_chunks, record.delta.stored_chunks) == (2, 1)


def test_process_that_is_not_wanted_ends_by_itself_and_says_so(host: Host) -> None:
    """Also while it waits for its rate, here for hours."""
    order = host.read_order(host.request(1), read_rate=1024)
    patient = ChildProcesses(("-m", "testbed.fixtures.capturing_child"), end_grace=3600.0)
    read: list[int] = []
    hearing = Hearing(progress=lambda done, total: read.append(done))
    with pytest.raises(exception.UnavailableError, match="not wanted"):
        patient.do(order, hearing, lambda: not read, 300.0)
    assert host.store.find(host.request(1).version_id("vda")) is None


def test_process_that_is_killed_is_an_error(host: Host) -> None:
    killed: list[int] = []

    def kill() -> bool:
        killed.extend(kill_descendants("capturing_child"))
        return True

    order = host.read_order(host.request(1), read_rate=1024)
    with pytest.raises(exception.UnavailableError, match="has ended"):
        do(order, kill)
    assert killed
    assert host.store.find(host.request(1).version_id("vda")) is None


def test_failure_of_one_capture_does_not_fail_the_others(host: Host) -> None:
    requests = [host.request(number) for number in (1, 2)]
    orders = [host.read_order(request) for request in requests]
    captures = [
        HeldCapture(request, HeldMoment.from_fields(do(order)), order.folder)
        for request, order in zip(requests, orders, strict=True)
    ]
    data = pathlib.Path(orders[0].folder, "vda", "data")
    data.write_bytes(bytes(data.stat().st_size))
    report = PROCESSES.do(host.commit_order(*captures), Hearing(), lambda: True, 300.0)
    outcomes = report["outcomes"]
    assert outcomes[requests[0].task]["kind"] == "corrupt"
    assert outcomes[requests[1].task] is None
    assert host.digest(requests[1].version_id("vda")) == host.converted()


def test_captures_of_one_batch_store_what_they_have_in_common_once(host: Host) -> None:
    """Two servers of one template change alike: CloudVS, §3.5."""
    requests = [host.request(number) for number in (1, 2)]
    orders = [host.read_order(request) for request in requests]
    captures = [
        HeldCapture(request, HeldMoment.from_fields(do(order)), order.folder)
        for request, order in zip(requests, orders, strict=True)
    ]
    PROCESSES.do(host.commit_order(*captures), Hearing(), lambda: True, 300.0)
    stored = []
    for request in requests:
        version = request.version_id("vda")
        assert host.digest(version) == host.converted()
        delta = host.store.get(version).record.delta
        assert delta is not None
        stored.append(delta.stored_chunks)
    assert stored == [1, 0]


def test_error_of_a_process_keeps_its_kind(host: Host) -> None:
    order = host.read_order(host.request(1))
    host.disk.unlink()
    with pytest.raises(exception.NotFoundError, match="does not exist"):
        do(order)
