"""One fold of a host at a time."""

import threading
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.dataplane.volumes import reconciler
from acstor.dataplane.volumes.folds.turns import FoldTurns
from acstor.dataplane.volumes.handover import ahead
from acstor.dataplane.volumes.local_volume import LocalVolume
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.doubles.memory_volumes import MemoryVolume
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import SIZE, VOLUME, HostUnderTest

OTHER = "6a4c1f58-02a9-4a35-8a6f-0a6e0a2f7d10"


@pytest.fixture
def other(host: HostUnderTest, store: VolumeStore, monkeypatch: pytest.MonkeyPatch) -> MemoryVolume:
    """A volume that is being folded, for as long as it takes."""
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    host.restart()
    store.create(NewVolume(OTHER, SIZE))
    store.allow_host(OTHER, "h1")
    host.plane.volumes.opening.open(OTHER, "owner")
    assert host.plane.runtime is not None
    device = host.plane.runtime.volumes[OTHER]
    device.write(512)
    host.plane.volumes.pushes.push(OTHER)
    device.may_fold.clear()
    device.is_fold_due = True
    wait_for("a fold", lambda: device.is_folding)
    host.open()
    host.device.write(512)
    host.call("push")
    return device


def ask(host: HostUnderTest) -> None:
    assert host.call("fold")["is_folded"]


def fold_ahead(host: HostUnderTest) -> None:
    volumes = host.plane.volumes
    host.device.is_log_long = True
    assert volumes.ahead.push(volumes.table.find_or_add(VOLUME), is_asked=True)


@pytest.mark.parametrize("fold", [ask, fold_ahead])
def test_fold_that_takes_its_time_gives_way_to_that_of_another_volume_once(
    host: HostUnderTest,
    store: VolumeStore,
    other: MemoryVolume,
    fold: Callable[[HostUnderTest], None],
) -> None:
    seen: list[bool] = []
    host.device.on_fold = lambda: seen.append(other.is_folding)
    fold(host)
    assert seen == [False]
    # It would take as long as before, were it spread over time again.
    wait_for("the other is folded", lambda: store.get(OTHER).record.manifest is not None)
    assert not other.may_fold.is_set()


def test_fold_ahead_does_not_wait_for_one_that_gives_no_way(
    host: HostUnderTest, store: VolumeStore, other: MemoryVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "_FOLD_WAIT", 0.0)
    volumes = host.plane.volumes
    host.device.is_log_long = True
    with volumes.fold_turns.at_once():
        assert not volumes.ahead.push(volumes.table.find_or_add(VOLUME), is_asked=True)
    assert store.get(VOLUME).record.manifest is None


def test_turns_of_many_never_overlap() -> None:
    unwanted = threading.Event()

    def set_unwanted(local: LocalVolume, is_unwanted: bool) -> None:
        unwanted.set() if is_unwanted else unwanted.clear()

    turns = FoldTurns(set_unwanted)
    held = threading.Lock()
    overlaps: list[str] = []

    def take(name: str) -> None:
        local = LocalVolume(name)
        for _ in range(50):
            with turns.over_time(local) if name.startswith("slow") else turns.at_once():
                if not held.acquire(blocking=False):
                    overlaps.append(name)
                    return
                held.release()

    names = [f"{kind} {number}" for kind in ("slow", "quick") for number in range(3)]
    threads = [threading.Thread(target=take, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert overlaps == []
    assert not unwanted.is_set()


def test_turn_that_is_not_to_be_had_in_time_leaves_the_others_theirs() -> None:
    turns = FoldTurns(lambda local, is_unwanted: None)
    slow = LocalVolume("slow")
    with turns.over_time(slow):
        with pytest.raises(exception.OverloadedError), turns.at_once(0.0):
            pass
        assert slow.has_given_way
    with turns.over_time(slow):
        pass
    with turns.at_once(0.0):
        pass
