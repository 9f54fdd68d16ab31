"""Volumes that follow their guests from host to host, and what the end of a process leaves."""

import contextlib
import pathlib
import shutil
import threading
import types
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.dataplane.volumes import reconciler
from acstor.dataplane.volumes.handover import fetching
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.volumes import doorbells
from acstor.repository.volumes.store import VolumeStore
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import SIZE, VOLUME, HostUnderTest, move_to_second

MUCH = 64 << 20
"""Bytes that the next owner would read for longer than a moment."""

# Live migration


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have hosts look at volumes all the time."""
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "_WATCH_INTERVAL", 0.02)


@pytest.mark.usefixtures("impatient")
def test_volume_follows_its_guest_and_back(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    host.restart()
    second = add_host("h2")
    host.open()
    host.device.write(512)
    store.begin_standby(VOLUME, "h2")
    opened = second.call("open", role="standby")
    assert (opened["state"], opened["role"], opened["size_bytes"]) == ("standby", "standby", SIZE)
    assert second.device.listener is not None
    assert store.get(VOLUME).record.owner == "h1"

    second.device.is_wanted = True
    wait_for("h2 serves", lambda: second.state == "serving")
    wait_for("h1 follows", lambda: host.state == "standby")
    record = store.get(VOLUME).record
    assert (record.owner, record.epoch) == ("h2", 2)
    assert len(record.logs) == 1, "what was written on h1 was pushed"
    assert second.call("status")["role"] == "owner"

    second.device.write(512)
    host.device.is_wanted = True
    wait_for("h1 serves", lambda: host.state == "serving")
    assert host.device.spec["epoch"] == 3
    assert len(host.device.spec["logs"]) == 2
    second.call("close", force=False)
    assert store.get(VOLUME).record.owner == "h1"
    host.call("close", force=False)
    assert store.get(VOLUME).record.owner is None


@pytest.mark.usefixtures("impatient")
def test_standby_survives_a_restart_of_its_data_plane(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    host.restart()
    second = add_host("h2")
    host.open()
    host.device.write(512)
    store.begin_standby(VOLUME, "h2")
    second.call("open", role="standby")
    second.restart()
    wait_for("h2 follows again", lambda: second.state == "standby")
    assert second.call("status")["role"] == "standby"
    second.device.is_wanted = True
    wait_for("h2 serves", lambda: second.state == "serving")
    wait_for("h1 follows", lambda: host.state == "standby")
    # And so does the one that was the owner: the guest may come back.
    host.restart()
    wait_for("h1 follows again", lambda: host.state == "standby")
    host.device.is_wanted = True
    wait_for("h1 serves", lambda: host.state == "serving")
    second.restart()
    wait_for("h2 follows", lambda: second.state == "standby")
    second.call("close", force=False)
    second.restart()
    assert second.client.call("volume.list") == []


@pytest.mark.usefixtures("impatient")
def test_owner_pushes_and_folds_before_anybody_asks(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    """All that a guest has written since would else be pushed while it waits."""
    host.restart()
    host.open()
    host.device.write(MUCH)
    host.device.is_log_long = True
    manifest = store.get(VOLUME).record.manifest
    assert host.device.pushed_ahead == 0, "no second host may open it"
    store.begin_standby(VOLUME, "h2")
    add_host("h2").call("open", role="standby")
    wait_for("the log is folded", lambda: store.get(VOLUME).record.manifest != manifest)
    host.device.is_log_long = False
    host.device.write(MUCH)
    wait_for("the rest is pushed", lambda: host.device.dirty_bytes == 0)
    assert (host.state, store.get(VOLUME).record.owner) == ("serving", "h1")
    store.disallow_host(VOLUME, "h2")
    wait_for("the volume is watched no more", lambda: not _is_pushed_ahead(host))


def _is_pushed_ahead(host: HostUnderTest) -> bool:
    """Return whether what is written now is pushed soon."""
    before = host.device.pushed_ahead
    host.device.write(512)
    for _ in range(100):
        host.plane.volumes.watching.watch(VOLUME)
    return host.device.pushed_ahead > before


@pytest.mark.usefixtures("impatient")
def test_push_ahead_that_fails_keeps_nobody_waiting(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A minute after a short outage of the origin, as the tasks that look after volumes rest."""
    host.open()
    store.begin_standby(VOLUME, "h2")
    runtime = host.plane.runtime
    assert runtime is not None
    tries = 0

    def fail(_: str) -> bool:
        nonlocal tries
        tries += 1
        raise exception.UnavailableError("the origin is full")

    monkeypatch.setattr(runtime, "volume_push_ahead", fail)
    for _ in range(3):
        assert host.plane.volumes.watching.watch(VOLUME), "it is looked at as closely as before"
    assert tries == 1, "and not pushed at each look"
    second = add_host("h2")
    second.call("open", role="standby")
    second.plane.volumes.migrations.ask_for(VOLUME, store.get(VOLUME).record)
    host.plane.volumes.watching.watch(VOLUME)
    assert host.state == "standby", "handed over"


@contextlib.contextmanager
def broken_disk(host: HostUnderTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within the block a volume cannot be noted as handed over; outlasting it, it does not open."""
    runtime = host.plane.runtime
    assert runtime is not None
    runtime.fail_every_open = "corrupt"

    def refuse(_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(host.plane.volumes.files, "note_standby", refuse)
        yield


@pytest.fixture
def stuck(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> HostUnderTest:
    """An owner whose disk failed amid a hand-over to the host h2, which is returned."""
    host.open()
    host.device.write(512)
    store.begin_standby(VOLUME, "h2")
    second = add_host("h2")
    second.call("open", role="standby")
    second.plane.volumes.migrations.ask_for(VOLUME, store.get(VOLUME).record)
    with broken_disk(host, monkeypatch), pytest.raises(exception.AcstorError):
        host.plane.volumes.watching.watch(VOLUME)
    assert (host.state, host.device.state) == ("serving", "standby"), "requests wait"
    return second


def test_hand_over_amid_which_the_log_was_damaged_is_finished(
    host: HostUnderTest, store: VolumeStore, stuck: HostUnderTest
) -> None:
    """All of it is in the origin, so that nobody needs the log."""
    host.plane.volumes.watching.watch(VOLUME)
    assert host.state == "standby"
    assert store.get(VOLUME).record.owner is None
    assert stuck.plane.volumes.fetching.fetch(VOLUME)
    assert stuck.state == "serving"


@pytest.mark.usefixtures("stuck")
def test_hand_over_that_nobody_waits_for_any_more_is_taken_back(
    host: HostUnderTest, store: VolumeStore
) -> None:
    store.disallow_host(VOLUME, "h2")
    with pytest.raises(exception.AcstorError, match="does not open"):
        host.plane.volumes.watching.watch(VOLUME)
    assert "does not open" in host.call("status")["error"]
    assert host.plane.runtime is not None
    host.plane.runtime.fail_every_open = None
    host.plane.volumes.watching.watch(VOLUME)
    assert (host.state, host.device.state) == ("serving", "open")
    assert host.call("status")["error"] is None
    assert store.get(VOLUME).record.owner == "h1"
    host.device.write(512)
    host.call("close", force=True)
    assert store.get(VOLUME).record.owner is None


@pytest.mark.usefixtures("stuck")
def test_volume_whose_hand_over_failed_is_closed(host: HostUnderTest, store: VolumeStore) -> None:
    host.call("close", force=True)
    assert store.get(VOLUME).record.owner is None
    assert host.client.call("volume.list_aside") == []


@pytest.mark.parametrize("error", [exception.UnavailableError("full"), OSError(28, "full")])
def test_fold_ahead_that_fails_is_not_repeated_at_each_look(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """Each stores packs of its own, which stay until they are collected."""
    host.open()
    store.begin_standby(VOLUME, "h2")
    runtime = host.plane.runtime
    assert runtime is not None
    tries = 0

    def fail(*_: object) -> dict[str, object]:
        nonlocal tries
        tries += 1
        raise error

    monkeypatch.setattr(runtime, "volume_push_ahead", lambda _: True)
    monkeypatch.setattr(host.plane.volumes.folds, "fold_in_turn", fail)
    for _ in range(3):
        assert host.plane.volumes.watching.watch(VOLUME)
    assert tries == 1
    second = add_host("h2")
    second.call("open", role="standby")
    second.plane.volumes.migrations.ask_for(VOLUME, store.get(VOLUME).record)
    host.plane.volumes.watching.watch(VOLUME)
    assert host.state == "standby", "handed over with the log as it is"


def test_folds_ahead_that_nobody_asked_for_leave_pauses(
    host: HostUnderTest, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.open()
    store.begin_standby(VOLUME, "h2")
    runtime = host.plane.runtime
    assert runtime is not None
    folds: list[object] = []
    monkeypatch.setattr(runtime, "volume_push_ahead", lambda _: True)
    monkeypatch.setattr(host.plane.volumes.folds, "fold_in_turn", lambda *_: folds.append(_))
    for _ in range(3):
        assert host.plane.volumes.watching.watch(VOLUME)
    assert len(folds) == 1


def test_hand_over_pushes_and_folds_while_requests_go_on(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = add_host("h2")
    host.open()
    store.begin_standby(VOLUME, "h2")
    second.call("open", role="standby")
    host.device.write(MUCH)
    host.device.is_log_long = True
    runtime = host.plane.runtime
    assert runtime is not None
    manifest = store.get(VOLUME).record.manifest
    push_ahead = runtime.volume_push_ahead
    seen: list[tuple[str, str, int]] = []

    def observed(volume: str) -> bool:
        # The volume answers, and its guest goes on.
        seen.append((host.state, host.device.state, host.device.dirty_bytes))
        return push_ahead(volume)

    monkeypatch.setattr(runtime, "volume_push_ahead", observed)
    host.plane.volumes.handover.hand_over(VOLUME)
    assert seen[0] == ("serving", "open", MUCH), "nothing was pushed before"
    assert host.state == "standby"
    record = store.get(VOLUME).record
    assert record.owner is None
    assert record.manifest != manifest, "little is to be read of the log"


def test_log_that_is_read_quickly_is_not_folded_while_somebody_waits(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    second = add_host("h2")
    host.open()
    store.begin_standby(VOLUME, "h2")
    second.call("open", role="standby")
    host.device.write(MUCH // 4)
    host.device.is_log_long = True
    manifest = store.get(VOLUME).record.manifest
    host.plane.volumes.handover.hand_over(VOLUME)
    assert host.state == "standby"
    assert store.get(VOLUME).record.manifest == manifest


def test_standby_asks_until_the_owner_has_pushed_everything(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long that takes, and through an outage of the origin."""
    second = add_host("h2")
    host.open()
    store.begin_standby(VOLUME, "h2")
    second.call("open", role="standby")
    volumes = second.plane.volumes
    record, asked = volumes.owner.record, 0

    def record_sometimes(volume: str) -> object:
        nonlocal asked
        asked += 1
        if asked % 2:
            raise exception.UnavailableError("the origin is away")
        return record(volume)

    monkeypatch.setattr(volumes.owner, "record", record_sometimes)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        # Hours, for the clock of the standby.
        waits.append(seconds)
        if len(waits) == 100:
            host.call("close", force=False)

    clock = iter(range(0, 10**9, 60))
    timeless = types.SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr(fetching, "time", timeless)
    assert volumes.fetching.fetch(VOLUME, wait)
    assert len(waits) >= 100
    assert max(waits) <= 1.0


def test_owner_that_looks_seldom_hears_who_waits(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "_DOORBELL_INTERVAL", 0.02)
    monkeypatch.setattr(reconciler, "_WATCH_INTERVAL", 3600.0)
    host.restart()
    second = add_host("h2")
    host.open()
    store.begin_standby(VOLUME, "h2")
    second.call("open", role="standby")
    second.device.is_wanted = True
    wait_for("h2 serves", lambda: second.state == "serving")
    wait_for("h1 follows", lambda: host.state == "standby")


def test_doorbell_that_cannot_be_rung_stops_nobody(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = add_host("h2")
    host.open()
    store.begin_standby(VOLUME, "h2")

    def is_away(*_: object) -> None:
        raise exception.UnavailableError("the origin is away")

    monkeypatch.setattr(doorbells, "ring", is_away)
    assert second.call("open", role="standby")["state"] == "standby"


def test_standby_of_a_volume_that_nobody_owns_is_its_owner(host: HostUnderTest) -> None:
    opened = host.call("open", role="standby")
    assert (opened["state"], opened["role"]) == ("serving", "owner")


@pytest.mark.usefixtures("impatient")
def test_owner_that_was_taken_over_notices_without_writing(
    host: HostUnderTest, store: VolumeStore, add_host: Callable[[str], HostUnderTest]
) -> None:
    host.restart()
    host.open()
    move_to_second(store, add_host)
    wait_for("the volume is fenced", lambda: host.state == "fenced")


# The end of a process


def test_last_process_pushes_what_the_origin_lacks(
    host: HostUnderTest, store: VolumeStore, origin: MemoryOrigin
) -> None:
    host.open()
    device = host.device
    device.write(512)
    host.plane.stop()
    assert device.dirty_bytes == 0
    assert device.freezes, "nothing is written behind the push"
    record = store.get(VOLUME).record
    assert record.owner == "h1", "the next process goes on with it"
    assert list(origin.list(layout.log_folder(VOLUME, record.epoch)))


def test_last_process_does_not_wait_for_an_origin_that_hangs(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch, origin: MemoryOrigin
) -> None:
    host.open()
    device = host.device
    device.write(512)
    answers = threading.Event()

    def hang(key: str, buffers: object) -> bool:
        answers.wait()
        raise exception.UnavailableError("the origin is away")

    with monkeypatch.context() as away:
        away.setattr(origin, "put_if_absent", hang)
        host.conf.set_override("stop_push_timeout", 0.1, "volumes")
        host.plane.stop()
        answers.set()
    assert device.dirty_bytes == 512, "it is in the local log"


def test_restart_pushes_nothing(host: HostUnderTest) -> None:
    host.open()
    device = host.device
    device.write(512)
    host.restart()
    assert device.dirty_bytes == 512


def test_log_is_removed_while_others_go_on(
    host: HostUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gigabytes of it take seconds, and the guest may want the volume back."""
    host.open()
    may_remove = threading.Event()
    directory = pathlib.Path(host.conf.volumes.directory)
    rmtree = shutil.rmtree

    def slowly(path: str, ignore_errors: bool = False) -> None:
        if pathlib.Path(path).name.startswith("removed-"):
            may_remove.wait(30)
        rmtree(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", slowly)
    host.call("close", force=False)
    host.open()
    host.device.write(512)
    assert list(directory.glob("removed-*/log/*")), "the one before is there still"
    may_remove.set()
    wait_for("it is removed", lambda: not list(directory.glob("removed-*")))
