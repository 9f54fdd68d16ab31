"""Copies of logs in other members: what is copied, from where, and what becomes of them."""

import contextlib
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin.base import Ref
from acstor.origin.memory import MemoryOrigin
from acstor.origin.pair import OriginPair
from acstor.origin.replicated.states import MemberEvent, MemberState
from acstor.origin.replicated.sync.change_log import CHANGES_PREFIX, Change, Segment
from acstor.registrar.member_upkeep import NotCondemned
from acstor.repository import layout
from acstor.repository.gc.condemnation import Tombstones
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from acstor.repository.volumes.log_places import RecordedLogs
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.members.cloud import NAMES, OBJECT_BYTES, VOLUME, Cloud, Host, words_of
from tests.unit.repository.versions.records import captured, committed, version_id
from tests.unit.repository.volumes.log_objects import log_object

OTHER = VOLUME.replace("1111", "3333", 1)


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
    for _ in range(2):
        host.write()
    cloud.store.assign(VOLUME, "b")
    host.acquire()
    host.write()
    return host


def collect(cloud: Cloud, times: int = 3) -> None:
    for _ in range(times):
        cloud.clock.now += 100
        Collector(Repository.open(cloud.open()), "g", 0.0, clock=cloud.clock).collect()


def test_every_member_gets_the_logs_of_the_others(cloud: Cloud, owner: Host) -> None:
    keeping = cloud.keeping()
    keeping.run()
    everything = sorted({*cloud.logs_in("a"), *cloud.logs_in("b")})
    assert len(everything) == 4, "three words and a seal"
    for name in NAMES:
        assert cloud.logs_in(name) == everything
    owner.write()
    assert len(cloud.logs_in("a")) == 4
    cloud.clock.now += 4000
    keeping.run()
    assert len(cloud.logs_in("a")) == len(cloud.logs_in("c")) == 5
    for name in ("a", "b"):
        cloud.stores[name].is_away = True
    assert words_of(cloud.open(), cloud.record().closed_until(VOLUME, owner.next - 1)) == [
        "x1", "x2", "x3", "x4",
    ]  # fmt: skip


def test_change_logs_tell_of_logs_by_volume(cloud: Cloud, owner: Host) -> None:
    keeping = cloud.keeping()
    keeping.run()
    origin = cloud.open()
    host = Host(cloud, "x", origin)
    host.acquire()
    host.write()
    origin.log.store_due(is_ending=True)
    segments = [
        Segment.parse(cloud.stores["b"].get(key, OBJECT_BYTES))
        for key in cloud.stores["b"].list(CHANGES_PREFIX)
    ]
    assert {disk for one in segments for disk in one.disks} == {VOLUME}
    keeping.run()
    assert cloud.logs_in("c") == cloud.logs_in("a")
    assert (3, host.next - 1) in cloud.logs_in("c")
    assert list(cloud.stores["b"].list(CHANGES_PREFIX)) == []


def test_log_that_nothing_names_is_not_copied(cloud: Cloud) -> None:
    key = layout.log_key(OTHER, 1, 7)
    cloud.stores["b"].put_if_absent(key, [log_object(OTHER, 1, 7)])
    cloud.keeping().run()
    assert not cloud.stores["a"].exists(key)


@pytest.mark.usefixtures("owner")
def test_nothing_is_copied_to_where_it_is_decided(cloud: Cloud) -> None:
    """Its owner stores something else in that slot next, or another one seals it."""
    cloud.keeping().run()
    record = cloud.record()
    key = layout.log_key(VOLUME, record.epoch, record.next + 5)
    content = log_object(VOLUME, record.epoch, record.next + 5, b"?")
    cloud.stores["a"].put_if_absent(key, [content])
    segment = Segment("a", "5a" * 16, 0, {VOLUME: (Change(key, len(content)),)})
    cloud.stores["a"].put_if_absent(segment.key, [segment.encode()])
    cloud.clock.now += 4000
    keeping = cloud.keeping()
    keeping.run()
    keeping.run()
    assert not cloud.stores["b"].exists(key)
    assert not cloud.stores["c"].exists(key)
    assert list(cloud.stores["a"].list(CHANGES_PREFIX)) == []


@pytest.mark.usefixtures("owner")
def test_what_is_collected_goes_from_all_members(cloud: Cloud) -> None:
    cloud.keeping().run()
    collect(cloud)
    assert len(cloud.logs_in("c")) == 4, "all is needed"
    cloud.allow(cloud.store, "nobody")
    cloud.store.disallow_host(VOLUME, "nobody")
    cloud.store.delete(VOLUME, force=True)
    cloud.stores["c"].is_away = True
    with pytest.raises(exception.UnavailableError):
        collect(cloud)
    assert [len(cloud.logs_in(name)) for name in "ab"] == [4, 4], "nothing is collected meanwhile"
    cloud.stores["c"].is_away = False
    collect(cloud)
    assert [cloud.logs_in(name) for name in NAMES] == [[], [], []]


@pytest.mark.usefixtures("owner")
def test_what_is_condemned_is_not_copied(cloud: Cloud) -> None:
    origin = cloud.open()
    is_wanted = NotCondemned(origin, cloud.clock)
    keys = sorted(cloud.stores["a"].list(layout.VOLUME_LOG_PREFIX))
    assert all(map(is_wanted, keys))
    cloud.allow(cloud.store, "nobody")
    cloud.store.disallow_host(VOLUME, "nobody")
    cloud.store.delete(VOLUME, force=True)
    collect(cloud, 1)
    assert Tombstones(origin).names()
    assert not any(map(is_wanted, keys))
    assert is_wanted(layout.log_key(OTHER, 1, 1))


@pytest.mark.usefixtures("owner")
def test_member_is_filled_whatever_logs_are_owed_to_it(cloud: Cloud) -> None:
    record = cloud.record()
    key = layout.log_key(VOLUME, record.epoch, record.next + 1)
    damaged = log_object(VOLUME, record.epoch, record.next + 1, b"?")[:-1] + b"!"
    cloud.stores["b"].put_if_absent(key, [damaged])
    cloud.membership.change("c", MemberEvent.DRAIN)
    cloud.membership.change("c", MemberEvent.REMOVE)
    cloud.stores["d"] = type(cloud.stores["a"])()
    cloud.membership._stores["d"] = cloud.stores["d"]  # type: ignore[index]
    cloud.membership.join("d")
    keeping = cloud.keeping("a", "b", "d")
    for _ in range(3):
        cloud.clock.now += 61
        keeping.run()
    assert cloud.open("a", "b", "d").view.state("d") is MemberState.ACTIVE
    assert len(cloud.logs_in("d")) == 4


def test_places_are_those_of_the_records(cloud: Cloud, owner: Host) -> None:
    origin = cloud.open()
    places = RecordedLogs(origin, lambda: "a")
    assert places.member_of(layout.log_folder(VOLUME, 1)) is None
    places.refresh()
    found = [places.member_of(layout.log_folder(VOLUME, epoch)) for epoch in (1, 2, 3)]
    assert found == ["a", "b", None]
    cloud.store.assign(VOLUME, "c")
    owner.access.records().acquire(VOLUME, "x")
    places.refresh()
    found = [places.member_of(layout.log_folder(VOLUME, epoch)) for epoch in (1, 2, 3)]
    assert found == ["a", "b", "c"], "one is not sealed yet"
    ref = layout.volume_ref(VOLUME)
    present = origin.get_ref(ref)
    assert present is not None
    MemoryOrigin.swap_ref(cloud.stores["a"], ref, present.token, b"{}")
    places.refresh()
    assert places.member_of(layout.log_folder(VOLUME, 2)) is None


class Reading(MemoryOrigin):
    """A store that notes which refs are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: list[str] = []

    def refresh_ref(self, name: str, known: Ref | None) -> Ref | None:
        self.looked_at.append(name)
        return super().refresh_ref(name, known)


def test_what_names_no_other_logs_any_more_is_looked_at_once() -> None:
    """There are ten times as many snapshots and versions as volumes, and a pass each minute."""
    refs = Reading()
    store = VolumeStore(Repository.init(OriginPair(MemoryOrigin(), refs)))
    volume = store.create(NewVolume(VOLUME, 1 << 20)).id
    store.snapshot(volume, OTHER)
    logs = (LogRange(VOLUME, 7, 1, 2, member="b"),)
    named = {version_id(1): committed(logs=logs), version_id(2): captured()}
    names = {layout.version_ref(one): record for one, record in named.items()}
    for name, record in names.items():
        refs.swap_ref(name, None, record.encode())
    places = RecordedLogs(refs, lambda: "a")
    places.refresh()
    assert set(names) < set(refs.looked_at)
    refs.looked_at.clear()
    places.refresh()
    assert refs.looked_at == [layout.volume_ref(volume), layout.version_ref(version_id(2))]
    assert places.member_of(layout.log_folder(VOLUME, 7)) == "b"
    for name in names:
        ref = refs.get_ref(name)
        assert ref is not None
        refs.swap_ref(name, ref.token, None)
    places.refresh()
    assert places.member_of(layout.log_folder(VOLUME, 7)) is None
