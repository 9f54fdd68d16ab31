"""Volumes that follow their guests from host to host, and what the end of a process leaves."""

import threading
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.dataplane_host import volume_duty
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.volumes import bells
from acstor.volumes.store import VolumeStore
from tests.fixtures.conditions import wait_for
from tests.unit.dataplane_host.volume_hosts import SIZE, VOLUME, HostUnderTest, move_to_second

# Live migration


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have hosts look at volumes all the time."""
    monkeypatch.setattr(volume_duty, "_INTERVAL", 0.02)
    monkeypatch.setattr(volume_duty, "_WATCH_INTERVAL", 0.02)


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


def test_owner_that_looks_seldom_hears_who_waits(
    host: HostUnderTest,
    store: VolumeStore,
    add_host: Callable[[str], HostUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(volume_duty, "_INTERVAL", 0.02)
    monkeypatch.setattr(volume_duty, "_BELL_INTERVAL", 0.02)
    monkeypatch.setattr(volume_duty, "_WATCH_INTERVAL", 3600.0)
    host.restart()
    second = add_host("h2")
    host.open()
    store.begin_standby(VOLUME, "h2")
    second.call("open", role="standby")
    second.device.is_wanted = True
    wait_for("h2 serves", lambda: second.state == "serving")
    wait_for("h1 follows", lambda: host.state == "standby")


def test_bell_that_cannot_be_rung_stops_nobody(
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

    monkeypatch.setattr(bells, "ring", is_away)
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
