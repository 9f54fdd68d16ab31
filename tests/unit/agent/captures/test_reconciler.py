"""Captures of a host from request to end: limits, aborts, deaths, an origin that is away."""

import contextlib
import dataclasses
import pathlib
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from acstor import exception
from acstor.agent.captures.orders import CommitOrder, Order, OriginOrder, ReadOrder, parse_order
from acstor.agent.captures.orders import encode_order as encode
from acstor.agent.captures.pins import PinKeeper
from acstor.agent.captures.processes import Hearing
from acstor.agent.captures.reconciler import CaptureReconciler
from acstor.agent.captures.settings import CaptureSettings
from acstor.agent.captures.storing import begin
from acstor.agent.captures.table import CaptureTable
from acstor.origin.base import Origin
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository
from acstor.repository.versions.record import DiskKind, Trigger
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.repository.volumes.store import NewVolume, VolumeStore
from acstor.versions.delayed_commit import Bounds
from acstor.versions.host_capture.progress import CaptureProgress
from acstor.versions.host_capture.request import VersionFields
from acstor.versions.host_capture.states import CaptureState
from testbed.doubles.memory_disk import MemoryDisk
from testbed.doubles.memory_hypervisor import MemoryAgent, MemoryHypervisor
from testbed.fixtures.conditions import wait_for
from tests.unit.agent.captures.guests import (
    SERVER,
    TASK,
    TASK_2,
    disk_at,
    guest_of_disks,
    request_of,
)
from tests.unit.agent.captures.test_reading import hold
from tests.unit.repository.images import CHUNK_SIZE, chunk, open_repository
from tests.unit.repository.versions.captures import SETTINGS, store_of

VOLUME = str(uuid.UUID(int=90))
SETTLE = 60.0


class SameProcess:
    """Does orders in the agent's process, on a disk in memory."""

    def __init__(self, store: VersionStore, hypervisor: MemoryHypervisor) -> None:
        self.store = store
        self.hypervisor = hypervisor
        self.orders: list[Order] = []
        self.error: exception.AcstorError | None = None
        self.before: Callable[[Order], None] = lambda order: None
        self.ends_when_unwanted = False
        self.leaves_frozen = False
        self.dies_after_commit = False

    def do(
        self, order: Order, hearing: Hearing, is_wanted: Callable[[], bool], seconds: float
    ) -> Mapping[str, Any]:
        assert parse_order(encode(order)) == order
        self.orders.append(order)
        self.before(order)
        if self.ends_when_unwanted:
            wait_for("an end", lambda: not is_wanted(), SETTLE)
            raise exception.UnavailableError("ended")
        if self.leaves_frozen:
            hearing.frozen(SERVER)
        if self.error is not None:
            raise self.error
        if isinstance(order, ReadOrder):
            return self._read(order, hearing)
        return self._commit(order, hearing)

    def _read(self, order: ReadOrder, hearing: Hearing) -> Mapping[str, Any]:
        from acstor.agent.captures.orders import HeldDisk, HeldMoment
        from acstor.repository.versions.record import Consistency
        from tests.unit.repository.versions.records import NOON

        hearing.progress(1, 2)
        source = MemoryDisk("vda", 2, {0: chunk(7)}, block_size=CHUNK_SIZE)
        _, writer = hold(pathlib.Path(order.folder), source, None)
        disk = HeldDisk(
            "vda", order.request.version_id("vda"), source.size_bytes, writer.held_bytes, True
        )
        moment = HeldMoment(NOON, Consistency.FS, "", (disk,), {"vdb": "it is swap"})
        begin(self.store, order.request, moment, order.origin.host)
        return moment.to_fields() | {
            "disks": [dataclasses.asdict(disk)],
        }

    def _commit(self, order: CommitOrder, hearing: Hearing) -> Mapping[str, Any]:
        from acstor.agent.captures.storing import CommitSettings, Committer

        settings = CommitSettings(SETTINGS, on_committed=hearing.committed)
        committer = Committer(self.store, order.origin.host, settings)
        for capture in order.captures:
            committer.commit(capture)
        if self.dies_after_commit:
            raise exception.UnavailableError("it was killed")
        return {"outcomes": {one.request.task: None for one in order.captures}}


class Host:
    """A host with one guest, and captures."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        (folder / "disk").write_bytes(b"")
        self.origin: Origin = MemoryOrigin()
        self.repository: Repository = open_repository(self.origin)
        self.store = store_of(self.repository)
        self.hypervisor = MemoryHypervisor(guest_of_disks(disk_at(folder / "disk")))
        self.processes = SameProcess(self.store, self.hypervisor)
        self.ended: list[str] = []
        self.now = 1000.0
        self.is_away = False
        self.pushed: dict[str, Any] = {}
        self.reconciler = self.new()

    def new(self, pins: PinKeeper | None = None, **changes: Any) -> CaptureReconciler:
        settings = CaptureSettings(
            origin=OriginOrder("memory", 1.0, "h1"),
            libvirt_uri="test",
            uses_monitor=True,
            scratch_path=str(self.folder),
            scratch_max=1 << 30,
            jobs=2,
            read_rate=0,
            write_rate=0,
            capacity=1 << 30,
            reserve_percent=0.0,
            nice=0,
            bounds=Bounds(0.0, 1 << 30),
            hold_seconds=3600.0,
            keep_ended=3600.0,
            pack_size=SETTINGS.pack_size,
            workers=0,
            known_chunks_max=1 << 10,
            origin_reserve_percent=0,
        )
        self.table = CaptureTable(str(self.folder / "captures"), "h1", now=lambda: self.now)
        self.reconciler = CaptureReconciler(
            dataclasses.replace(settings, **changes),
            self.table,
            self.processes,
            self.hypervisor,
            self._open_store,
            self,
            pins,
            on_end=self.ended.append,
            clock=lambda: self.now,
            now=lambda: self.now,
        )
        self.reconciler.take_stock()
        return self.reconciler

    @contextlib.contextmanager
    def _open_store(self) -> Iterator[VersionStore]:
        if self.is_away:
            raise exception.UnavailableError("the origin is away")
        yield self.store

    def call(self, method: str, /, *, call_timeout: float | None = None, **params: object) -> Any:
        assert method == "volume.push"
        if not self.pushed:
            raise exception.NotFoundError("volume is not open here")
        return self.pushed

    def settle(self) -> None:
        """Do what is to be done, until nothing is under way."""
        for _ in range(4):
            self.reconciler.step()
            wait_for("threads", self._is_idle, SETTLE)

    def _is_idle(self) -> bool:
        return not self.reconciler._reading and not self.reconciler._committing

    def progress(self, epoch: int = 1, task: str = TASK) -> CaptureProgress:
        return self.reconciler.progress_of(task, epoch)

    def version(self, task: str = TASK) -> VersionState | None:
        found = self.store.find(request_of(task=task).version_id("vda"))
        return None if found is None else found.record.state

    def left(self) -> list[str]:
        """Return what is on the host beside the records."""
        folder = self.folder / "captures"
        return [
            str(one) for one in folder.rglob("*") if one.is_file() and one.name != "capture.json"
        ]


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_capture_becomes_a_version(host: Host) -> None:
    assert host.reconciler.start_capture(request_of(), 1).state is CaptureState.QUEUED
    host.settle()
    found = host.progress()
    assert (found.state, found.failure) == (CaptureState.COMMITTED, None)
    assert found.left_out == {"vdb": "it is swap"}
    assert [disk.device for disk in found.disks] == ["vda"]
    assert host.version() is VersionState.COMMITTED
    assert host.ended == ["committed"]
    assert host.table.held_bytes == 0
    assert host.reconciler.discard(TASK, 1)
    with pytest.raises(exception.NotFoundError):
        host.progress()
    assert not (host.folder / "captures" / TASK).exists()
    assert host.version() is VersionState.COMMITTED


def test_asking_twice_captures_once(host: Host) -> None:
    host.reconciler.start_capture(request_of(), 1)
    host.reconciler.start_capture(request_of(), 1)
    host.settle()
    host.reconciler.start_capture(request_of(), 2)
    host.settle()
    assert sum(isinstance(order, ReadOrder) for order in host.processes.orders) == 1


def test_older_epoch_is_fenced(host: Host) -> None:
    host.reconciler.start_capture(request_of(), 5)
    for act in (
        lambda: host.reconciler.start_capture(request_of(), 4),
        lambda: host.progress(4),
        lambda: host.reconciler.abort(TASK, 4),
        lambda: host.reconciler.discard(TASK, 4),
    ):
        with pytest.raises(exception.FencedError):
            act()
    assert host.progress(6).epoch == 6
    with pytest.raises(exception.FencedError):
        host.progress(5)


def test_failure_is_told_and_leaves_nothing(host: Host) -> None:
    host.processes.error = exception.ExhaustedError("no room", hint="make some")
    host.reconciler.start_capture(request_of(), 1)
    host.settle()
    found = host.progress()
    assert found.state is CaptureState.FAILED
    assert found.failure is not None
    assert (found.failure.kind, found.failure.hint) == (exception.ErrorKind.EXHAUSTED, "make some")
    assert host.version() is None
    assert host.left() == []
    assert host.reconciler.start_capture(request_of(), 1).state is CaptureState.FAILED
    host.processes.error = None
    assert host.reconciler.start_capture(request_of(), 2).state is CaptureState.QUEUED
    host.settle()
    assert host.progress(2).state is CaptureState.COMMITTED


def test_abort_while_it_waits_and_while_it_is_read(host: Host) -> None:
    host.reconciler.start_capture(request_of(), 1)
    host.reconciler.abort(TASK, 1)
    host.settle()
    assert host.progress().state is CaptureState.ABORTED
    assert host.processes.orders == []
    host.processes.ends_when_unwanted = True
    host.reconciler.start_capture(request_of(task=TASK_2), 1)
    host.reconciler.step()
    wait_for("a process", lambda: len(host.processes.orders) == 1, SETTLE)
    host.reconciler.abort(TASK_2, 1)
    host.settle()
    assert host.progress(task=TASK_2).state is CaptureState.ABORTED
    assert host.left() == []
    assert host.ended == ["aborted", "aborted"]


def test_abort_of_what_is_held_abandons_its_versions(host: Host) -> None:
    host.new(bounds=Bounds(120.0, 1 << 30))
    slot = VersionFields("p", schedule="nightly", slot="1")
    host.reconciler._delayed.expect("nightly 1", ["another"])
    host.reconciler.start_capture(request_of(version=slot), 1)
    host.settle()
    assert host.progress().state is CaptureState.HELD
    assert host.version() is VersionState.CAPTURED
    host.is_away = True
    host.reconciler.discard(TASK, 1)
    host.settle()
    assert host.progress().state is CaptureState.ABORTED  # it waits for the origin
    assert host.version() is VersionState.CAPTURED
    host.is_away = False
    host.now += 400
    host.settle()
    assert host.version() is None
    with pytest.raises(exception.NotFoundError):
        host.progress()


def test_captures_of_a_slot_are_sent_together(host: Host) -> None:
    host.new(bounds=Bounds(120.0, 1 << 30))
    other = str(uuid.UUID(int=71))
    host.hypervisor.known[other] = dataclasses.replace(host.hypervisor.known[SERVER], server=other)
    slot = VersionFields("p", schedule="nightly", slot="1")
    host.reconciler.start_capture(request_of(version=slot), 1)
    host.reconciler.start_capture(request_of(version=slot, task=TASK_2, owner=other), 1)
    host.settle()
    commits = [one for one in host.processes.orders if isinstance(one, CommitOrder)]
    assert [len(one.captures) for one in commits] == [2]
    second = host.store.get(request_of(task=TASK_2).version_id("vda")).record
    assert second.state is VersionState.COMMITTED


def test_process_that_dies_after_its_commits_has_done_them(host: Host) -> None:
    host.processes.dies_after_commit = True
    host.reconciler.start_capture(request_of(), 1)
    host.settle()
    assert host.progress().state is CaptureState.COMMITTED
    assert host.reconciler._problems == {}


def test_one_capture_of_an_owner_and_few_of_a_host(host: Host) -> None:
    host.new(jobs=1)
    seen: list[int] = []
    host.processes.before = lambda order: seen.append(len(host.reconciler._reading))
    host.reconciler.start_capture(request_of(), 1)
    host.reconciler.start_capture(request_of(task=TASK_2), 1)
    host.settle()
    assert host.progress(task=TASK_2).state is CaptureState.COMMITTED
    reads = [one for one in host.processes.orders if isinstance(one, ReadOrder)]
    assert len(reads) == 2
    assert max(seen) == 1


def test_origin_that_is_away_puts_the_commit_off(host: Host) -> None:
    def go_away(order: Order) -> None:
        is_commit = isinstance(order, CommitOrder)
        away = exception.UnavailableError("the origin is away")
        host.processes.error = away if is_commit and host.is_away else None

    host.is_away = True
    host.processes.before = go_away
    host.reconciler.start_capture(request_of(), 1)
    host.settle()
    assert host.progress().state is CaptureState.HELD
    assert "away" in str(host.reconciler._problems)
    assert host.version() is VersionState.CAPTURED
    host.is_away = False
    host.now += 400
    host.settle()
    assert host.progress().state is CaptureState.COMMITTED
    assert host.reconciler._problems == {}


def test_origin_that_stays_away_is_a_failure_in_the_end(host: Host) -> None:
    def go_away(order: Order) -> None:
        away = exception.UnavailableError("the origin is away")
        host.processes.error = away if isinstance(order, CommitOrder) else None

    host.new(hold_seconds=-1.0)
    host.processes.before = go_away
    host.reconciler.start_capture(request_of(), 1)
    host.settle()
    assert host.progress().state is CaptureState.FAILED
    assert host.version() is None
    assert host.left() == []


@pytest.mark.parametrize("state", ["queued", "reading", "held", "committing"])
def test_agent_that_is_killed_anywhere_goes_on_or_clears_up(host: Host, state: str) -> None:
    """The agent dies with a copy of its folder taken at that moment."""
    kept = host.folder / "kept"

    def keep(order: Order) -> None:
        wanted = ReadOrder if state == "reading" else CommitOrder
        if state in ("reading", "committing") and isinstance(order, wanted):
            shutil.copytree(host.folder / "captures", kept)

    host.processes.before = keep
    if state == "held":
        host.new(bounds=Bounds(120.0, 1 << 30))
        host.reconciler._delayed.expect("nightly 1", ["another"])
    slot = VersionFields("p", schedule="nightly", slot="1") if state == "held" else None
    host.reconciler.start_capture(request_of(**({"version": slot} if slot else {})), 1)
    if state == "queued":
        shutil.copytree(host.folder / "captures", kept)
    else:
        host.settle()
    if state == "held":
        shutil.copytree(host.folder / "captures", kept)
    shutil.rmtree(host.folder / "captures")
    kept.rename(host.folder / "captures")
    host.processes.before = lambda order: None
    host.new()
    assert host.progress().state.value == {"committing": "held", "reading": "failed"}.get(
        state, state
    )
    if state == "reading":
        host.store.find(request_of().version_id("vda"))
        host.settle()
        assert host.version() in (None, VersionState.COMMITTED)
    else:
        host.settle()
        assert host.progress().state is CaptureState.COMMITTED
        assert host.version() is VersionState.COMMITTED
    assert host.left() == []


def test_guest_that_a_dead_process_has_frozen_is_thawed(host: Host) -> None:
    agent = MemoryAgent(is_frozen=True, deaf_thaws=1)
    host.hypervisor.agents[SERVER] = agent
    host.processes.leaves_frozen = True
    host.processes.error = exception.UnavailableError("it was killed")
    host.reconciler.start_capture(request_of(), 1)
    host.settle()
    assert not agent.is_frozen
    assert host.table.records[TASK].frozen == ""
    assert host.reconciler._problems == {}


def test_backup_that_a_dead_process_has_left_is_ended(host: Host) -> None:
    from acstor.agent.hypervisor.base import BackupRequest

    def leave(order: Order) -> None:
        host.hypervisor.begin_backup(
            BackupRequest(SERVER, {"vda": str(host.folder / "left")}, "/nowhere")
        )

    host.processes.before = leave
    host.processes.error = exception.UnavailableError("it was killed")
    host.reconciler.start_capture(request_of(), 1)
    host.settle()
    assert host.hypervisor.backups == {}
    assert not (host.folder / "left").exists()


def test_volume_is_published_without_a_scan(host: Host) -> None:
    VolumeStore(host.repository).create(NewVolume(VOLUME, 1 << 20))
    host.pushed = {"size_bytes": 1 << 20, "manifest": None, "logs": []}
    request = request_of(kind=DiskKind.VOLUME, owner=VOLUME, base_image=None)
    host.reconciler.start_capture(request, 1)
    host.settle()
    assert host.progress().state is CaptureState.COMMITTED
    record = host.store.get(request.version_id("")).record
    assert (record.state, record.disk.owner) == (VersionState.COMMITTED, VOLUME)
    assert host.processes.orders == []


def test_volume_that_is_not_open_here_is_a_failure(host: Host) -> None:
    VolumeStore(host.repository).create(NewVolume(VOLUME, 1 << 20))
    request = request_of(kind=DiskKind.VOLUME, owner=VOLUME, base_image=None)
    host.reconciler.start_capture(request, 1)
    host.settle()
    found = host.progress()
    assert found.failure is not None
    assert found.failure.kind is exception.ErrorKind.NOT_FOUND


def test_server_that_is_gone_is_read_from_its_pin(host: Host, tmp_path: pathlib.Path) -> None:
    specs = {"acstor:version_on": "delete"}
    guest = dataclasses.replace(host.hypervisor.known[SERVER], extra_specs=specs)
    host.hypervisor.known[SERVER] = guest
    pins = PinKeeper(host.hypervisor, lambda: str(tmp_path), 3600.0, 0.0)
    host.hypervisor.watch(pins.take_event)
    host.new(pins=pins)
    pins.look_once()
    host.reconciler.start_capture(request_of(task=TASK_2), 1)  # some version, long before
    host.settle()
    host.hypervisor.stop(SERVER)
    host.hypervisor.undefine(SERVER)
    (host.folder / "disk").unlink()
    pins.look_once()
    pin = pins.newest(SERVER)
    assert pin is not None
    version = VersionFields("a project", Trigger.DELETE)
    host.reconciler.start_capture(request_of(version=version), 1)
    host.settle()
    assert host.progress().state is CaptureState.COMMITTED
    (order,) = (
        one
        for one in host.processes.orders
        if isinstance(one, ReadOrder) and one.request.task == TASK
    )
    assert (order.pinned, order.pinned_at) == (pin.guest, pin.pinned_at)
    pins.look_once()
    assert pins.newest(SERVER) is None


def test_server_that_is_not_here_is_refused(host: Host) -> None:
    with pytest.raises(exception.NotFoundError):
        host.reconciler.start_capture(request_of(owner=TASK_2), 1)
    assert host.table.records == {}


def test_ended_captures_are_forgotten_in_time(host: Host) -> None:
    host.reconciler.start_capture(request_of(), 1)
    host.settle()
    host.now += 3601
    host.settle()
    assert host.table.records == {}


def test_host_without_pins_says_so(host: Host) -> None:
    assert not host.reconciler.follow(SERVER, frozenset({Trigger.DELETE}))


def test_damaged_record_is_a_problem_and_nothing_else(host: Host) -> None:
    host.reconciler.start_capture(request_of(), 1)
    path = host.folder / "captures" / TASK / "capture.json"
    path.write_text("{}")
    host.new()
    assert host.table.records == {}
    assert TASK in str(host.table.problems)
