"""Refusals by who has opened the home alone, or cannot ask a member: no log is taken for short."""

import contextlib
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.repository import layout
from acstor.repository.gc import claim
from acstor.repository.repository import Repository
from acstor.repository.volumes.epoch_log import ClosedLogs, EpochLog
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.store import PushedState, VolumeStore
from tests.unit.repository.members.cloud import OBJECT_BYTES, VOLUME, Cloud, Host

SNAPSHOT = "99999999-2222-4333-8444-555555555555"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with contextlib.closing(Cloud()) as made:
        yield made


@pytest.fixture
def owner(cloud: Cloud) -> Host:
    """An owner that has written in the home, and then in b."""
    cloud.allow(cloud.store, "x")
    host = cloud.host("x")
    host.acquire()
    host.write()
    cloud.store.assign(VOLUME, "b")
    host.acquire()
    host.write()
    return host


def pushed(cloud: Cloud, owner: Host) -> PushedState:
    record = cloud.record()
    return PushedState(record.size_bytes, record.pushed_disk(VOLUME, owner.next - 1))


def copy_all(cloud: Cloud, source: str, target: str) -> None:
    for key in list(cloud.stores[source].list(layout.VOLUME_LOG_PREFIX)):
        content = cloud.stores[source].get(key, OBJECT_BYTES)
        cloud.stores[target].put_if_absent(key, [content])


def home_alone(cloud: Cloud) -> VolumeStore:
    return VolumeStore(Repository.open(cloud.stores["a"]), wait=lambda seconds: None)


@pytest.mark.usefixtures("owner")
def test_it_takes_no_volume_that_is_elsewhere(cloud: Cloud) -> None:
    store, before = home_alone(cloud), cloud.record()
    with pytest.raises(exception.UnsupportedError, match="b of the origin is not open here"):
        store.acquire(VOLUME, "x")
    store.assign(VOLUME, None)
    store.disallow_host(VOLUME, "x")
    with pytest.raises(exception.UnsupportedError, match="b of the origin is not open here"):
        store.settle(VOLUME, lambda volume, epoch, first, member: (None, first))
    assert (cloud.record().epoch, cloud.record().owner) == (before.epoch, "x")


def test_it_takes_no_snapshot_of_what_it_cannot_see(cloud: Cloud, owner: Host) -> None:
    state = pushed(cloud, owner)
    assert [one.member for one in state.disk.logs] == [None, "b"]
    store = home_alone(cloud)
    with pytest.raises(exception.UnavailableError, match="b of the origin is not open here"):
        store.snapshot(VOLUME, SNAPSHOT, state)
    assert store.find_snapshot(SNAPSHOT) is None
    copy_all(cloud, "b", "a")
    assert store.snapshot(VOLUME, SNAPSHOT, state).record.logs == state.disk.logs
    restored = store.get_snapshot(SNAPSHOT).record.logs
    assert [one.member for one in restored] == [None, "b"]


def test_it_reads_no_log_that_is_not_there_as_short(cloud: Cloud, owner: Host) -> None:
    home, record = cloud.stores["a"], cloud.record()
    logs = pushed(cloud, owner).disk.logs
    key = logs[-1].key(logs[-1].last)
    with pytest.raises(exception.UnavailableError, match="b of the origin is not open here"):
        ClosedLogs(lambda: home, logs).get(key, OBJECT_BYTES)
    epoch = EpochLog(lambda: home, VOLUME, record.epoch, record.member)
    copy_all(cloud, "b", "a")
    for call in (
        lambda: list(epoch.list(layout.log_folder(VOLUME, record.epoch))),
        lambda: epoch.put_if_absent(layout.log_key(VOLUME, record.epoch, owner.next), [b"x"]),
        lambda: epoch.get(key, OBJECT_BYTES),
    ):
        with pytest.raises(exception.UnavailableError, match="b of the origin is not open here"):
            call()
    assert ClosedLogs(lambda: home, logs).get(key, OBJECT_BYTES), "by its key a copy is as good"


def test_epoch_takes_no_other_epochs_slots(cloud: Cloud, owner: Host) -> None:
    log = EpochLog(lambda: owner.origin, VOLUME, 2, "b")
    for folder in (layout.log_folder(VOLUME, 1), "", layout.VOLUME_LOG_PREFIX):
        with pytest.raises(exception.InternalError):
            log.list(folder)
    with pytest.raises(exception.InternalError):
        log.put_if_absent(layout.log_key(VOLUME, 1, owner.next), [b"x"])
    assert log.put_if_absent(layout.pack_key("ab" * 32), [b"of a fold"])
    assert cloud.stores["a"].exists(layout.pack_key("ab" * 32))


def test_logs_in_the_home_need_no_member_that_is_away(cloud: Cloud, owner: Host) -> None:
    logs = pushed(cloud, owner).disk.logs
    cloud.stores["b"].is_away = cloud.stores["c"].is_away = True
    assert claim.missing_logs(cloud.open(), logs[:1]) == []
    with pytest.raises(exception.UnavailableError):
        claim.missing_logs(cloud.open(), logs)
    copy_all_from = cloud.stores["b"]
    copy_all_from.is_away = False
    copy_all(cloud, "b", "a")
    cloud.stores["c"].is_away = False
    copy_all_from.is_away = True
    with pytest.raises(exception.UnavailableError):
        claim.missing_logs(cloud.open(), logs)
    copy_all_from.is_away = False
    assert claim.missing_logs(cloud.open(), logs) == []


def test_what_no_member_has_is_missing(cloud: Cloud, owner: Host) -> None:
    logs = pushed(cloud, owner).disk.logs
    key = logs[-1].key(logs[-1].last)
    copy_all(cloud, "b", "c")
    cloud.stores["b"].delete(key)
    assert claim.missing_logs(cloud.open(), logs) == [], "c has it"
    cloud.stores["c"].delete(key)
    beyond = LogRange(VOLUME, 2, logs[-1].first, logs[-1].last + 1, member="b")
    assert claim.missing_logs(cloud.open(), [beyond]) == [key, beyond.key(beyond.last)]


def test_settling_seals_in_the_member_of_the_epoch(cloud: Cloud, owner: Host) -> None:
    cloud.store.disallow_host(VOLUME, "x")
    sealed: list[tuple[int, str | None]] = []

    def seal(volume: str, epoch: int, first: int, member: str | None) -> tuple[int | None, int]:
        sealed.append((epoch, member))
        end = owner._seal(volume, epoch, first, member)
        return end.last, end.seal

    after = cloud.store.settle(VOLUME, seal).after
    assert sealed == [(2, "b")]
    assert [(one.epoch, one.member) for one in after.logs] == [(1, None), (2, "b")]
    assert (after.owner, after.unsealed, after.unsealed_member) == (None, None, None)
