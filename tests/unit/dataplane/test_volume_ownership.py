"""Answers that are lost, folds that are kept late, pushes beside folds: by the admin socket."""

import errno
import os
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.dataplane.volumes import reconciler
from acstor.dataplane.volumes.files import VolumeFiles
from acstor.origin.base import Ref
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import VolumeStore
from testbed.doubles.memory_preloads import failure
from testbed.doubles.memory_volumes import words_of
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest

REF = layout.volume_ref(VOLUME)


def collect(origin: MemoryOrigin) -> None:
    clock = iter(range(1000))
    for _ in range(3):
        Collector(Repository.open(origin), "x", 0.0, clock=lambda: float(next(clock))).collect()


def open_with_quick_looks(host: HostUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open the volume on a host that looks at its record again and again, and write to it."""
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "_WATCH_INTERVAL", 0.02)
    host.restart()
    host.open()
    host.device.write(512)


def test_hand_over_whose_answer_was_lost_leaves_a_standby(
    host: HostUnderTest,
    store: VolumeStore,
    origin: MemoryOrigin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The release takes effect, and the destination owns the volume before h1 knows."""
    open_with_quick_looks(host, monkeypatch)
    store.begin_standby(VOLUME, "h2")
    inner = origin.swap_ref
    lost: list[VolumeRecord] = []

    def swap_ref(name: str, expected: str | None, content: bytes | None) -> str | None:
        token = inner(name, expected, content)
        if name == REF and not lost and content is not None:
            record = VolumeRecord.parse(content, VOLUME)
            if record.owner is None:
                store.acquire(VOLUME, "h2")
                lost.append(record)
                raise exception.UnavailableError("the answer was lost")
        return token

    monkeypatch.setattr(origin, "swap_ref", swap_ref)
    store.describe(VOLUME, metadata={"wanted_by": "h2"})
    wait_for("h1 follows", lambda: lost and host.state == "standby")
    assert host.device.state == "standby", "requests wait; nothing is served in the old epoch"
    record = store.get(VOLUME).record
    assert (record.owner, record.epoch, record.unsealed) == ("h2", 2, 1)
    host.restart()
    wait_for("h1 follows again", lambda: host.state == "standby")


def test_volume_that_was_given_back_without_an_answer_is_owned_anew(
    host: HostUnderTest,
    store: VolumeStore,
    origin: MemoryOrigin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A detach (or hard reboot) whose release took effect; then the volume is attached again."""
    host.open()
    before = host.device.write(512)
    inner = origin.swap_ref

    def swap_ref(name: str, expected: str | None, content: bytes | None) -> str | None:
        inner(name, expected, content)
        raise exception.UnavailableError("the answer was lost, and the origin is away")

    with monkeypatch.context() as away:
        away.setattr(origin, "swap_ref", swap_ref)
        with pytest.raises(exception.AcstorError):
            host.call("close", force=True)
    assert store.get(VOLUME).record.owner is None
    assert host.open()["epoch"] == 2
    after = host.device.write(512)
    host.call("close", force=True)
    assert words_of(origin, store.get(VOLUME).record.disk) == [before, after]


@pytest.mark.parametrize("is_restarted", [True, False])
def test_volume_that_may_be_given_back_is_not_served_without_the_origin(
    host: HostUnderTest,
    store: VolumeStore,
    origin: MemoryOrigin,
    monkeypatch: pytest.MonkeyPatch,
    is_restarted: bool,
) -> None:
    host.open()
    host.device.write(512)

    def is_away(*_: object) -> None:
        raise exception.UnavailableError("the origin is away")

    with monkeypatch.context() as away:
        away.setattr(origin, "swap_ref", is_away)
        with pytest.raises(exception.UnavailableError):
            host.call("close", force=False)
        away.setattr(origin, "get_ref", is_away)
        if is_restarted:
            host.restart()
            wait_for("it was tried", lambda: "being closed" in str(host.call("status")["error"]))
            assert host.state == "opening"
        with pytest.raises(exception.UnavailableError):
            host.open()
    assert host.open()["epoch"] == 1, "it was not given back, as the origin says now"
    host.call("close", force=False)
    assert store.get(VOLUME).record.owner is None


@pytest.mark.parametrize("is_restarted", [True, False])
def test_fold_that_the_host_could_not_keep_is_mended_from_the_record(
    host: HostUnderTest,
    store: VolumeStore,
    origin: MemoryOrigin,
    monkeypatch: pytest.MonkeyPatch,
    is_restarted: bool,
) -> None:
    """The log's file system is full when the installed fold is to be kept; then a collection."""
    host.open()
    history = []
    for _ in range(3):
        history.append(host.device.write(512))
        host.call("push")
    keep = VolumeFiles.keep

    def full(self: VolumeFiles, kept: object, manifest: bytes | None = None) -> None:
        if store.get(VOLUME).record.manifest is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        keep(self, kept, manifest)  # type: ignore[arg-type]

    with monkeypatch.context() as disk:
        disk.setattr(VolumeFiles, "keep", full)
        with pytest.raises(exception.AcstorError):
            host.call("fold")
    record = store.get(VOLUME).record
    assert record.manifest is not None
    collect(origin)
    if is_restarted:
        host.restart()
        wait_for("the volume is served", lambda: host.state == "serving")
        assert host.device.spec["next"] == record.next
        assert host.device.manifest == record.manifest
    history.append(host.device.write(512))
    pushed = host.call("push")
    assert pushed["sequence"] >= record.next, "no slot is used twice"
    collect(origin)
    assert host.call("fold")["is_folded"], "folds are not refused for ever"
    assert host.device.manifest == store.get(VOLUME).record.manifest
    history.append(host.device.write(512))
    host.call("close", force=False)
    collect(origin)
    assert words_of(origin, store.get(VOLUME).record.disk) == history


def test_stale_fold_is_noticed_without_another(
    host: HostUnderTest,
    store: VolumeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The manifest here is the record's long before what it alone names is collected."""
    open_with_quick_looks(host, monkeypatch)
    host.call("push")

    def is_broken(manifest_path: str) -> None:
        raise failure("unavailable", "the manifest cannot be read")

    with monkeypatch.context() as failing:
        failing.setattr(host.device, "set_base", is_broken)
        with pytest.raises(exception.AcstorError):
            host.call("fold")
    assert host.device.manifest is None
    wait_for("the new base", lambda: host.device.manifest == store.get(VOLUME).record.manifest)


def test_snapshot_beside_a_fold_is_of_one_moment(
    host: HostUnderTest,
    store: VolumeStore,
    origin: MemoryOrigin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fold that read what was written after the push is installed before the push is answered."""
    host.open()
    history = [host.device.write(512)]
    push = host.device.push
    inner = origin.get_ref
    is_pushed: list[int] = []

    def pushed_by_snapshot() -> dict[str, object]:
        answer = push()
        is_pushed.append(answer["sequence"])
        return answer

    def late(name: str) -> Ref | None:
        if name == REF and is_pushed:
            monkeypatch.undo()
            history.append(host.device.write(512))
            host.device.push()
            host.call("fold")
        return inner(name)

    monkeypatch.setattr(host.device, "push", pushed_by_snapshot)
    monkeypatch.setattr(origin, "get_ref", late)
    answer = host.call("push")
    record = store.get(VOLUME).record
    assert record.manifest is not None, "the fold was installed"
    assert answer["manifest"] == record.manifest
    assert answer["sequence"] >= record.next - 1
    disk = record.pushed_disk(VOLUME, answer["sequence"])
    assert words_of(origin, disk) == history, "everything until the moment, and no more"


def test_new_guest_waits_for_the_record_where_the_owner_is_not_known(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    origin: MemoryOrigin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host that comes back, beside an origin that is away, after its volumes were moved."""
    host.open()
    host.plane.stop_for_next()
    store.disallow_host(VOLUME, "h1")
    store.allow_host(VOLUME, "h2")
    second = add_host("h2")
    second.open()
    second.plane.stop_for_next()

    def is_away(name: str) -> None:
        raise exception.UnavailableError("the origin is away")

    with monkeypatch.context() as away:
        away.setattr(origin, "get_ref", is_away)
        host.plane.start()
        wait_for("clients that were there go on", lambda: host.state == "serving")
        with pytest.raises(exception.UnavailableError):
            host.open()
    with pytest.raises(exception.FencedError):
        host.open()
