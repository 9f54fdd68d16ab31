"""Versions in a repository: captures, locks, expiry, uses, pages of many."""

import dataclasses
import datetime
from collections.abc import Callable
from typing import Any

import pytest

from acstor import exception
from acstor.origin import memory
from acstor.repository import layout
from acstor.repository.repository import COMPACTION_VERSION, Repository
from acstor.repository.versions.captures import Stored
from acstor.repository.versions.locks import Lock
from acstor.repository.versions.record import DiskKind, DiskName
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.repository.volumes.record import DiskState, Pending
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register
from tests.unit.repository.versions.records import (
    HOUR,
    NOON,
    VOLUME,
    captured,
    committed,
    version_id,
)

ID = version_id(1)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime.datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repository() -> Repository:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(1, 2, 3))
    return repository


@pytest.fixture
def store(repository: Repository, clock: Clock) -> VersionStore:
    return VersionStore(repository, wait=lambda seconds: None, now=clock)


@pytest.fixture
def manifest(repository: Repository) -> str:
    return repository.get_image(image_id(0)).record.manifest


def commit(store: VersionStore, manifest: str, number: int = 1) -> str:
    """Make a version of an image's content."""
    version = version_id(number)
    store.begin(version, captured(size_bytes=3 * CHUNK_SIZE))
    store.announce(version, "h1", (), manifest)
    store.commit(version, "h1", Stored(manifest))
    return version


# Captures


def test_a_capture_becomes_a_version(store: VersionStore, manifest: str) -> None:
    store.begin(ID, captured())
    assert not store.get(ID).record.is_restorable
    store.announce(ID, "h1", ["ab" * 32], manifest)
    assert store.get(ID).record.pending == Pending(DiskState(manifest), ("ab" * 32,))
    assert store.find_lost(Stored(manifest)) == set()
    store.commit(ID, "h1", Stored(manifest, ("ab" * 32,)))
    found = store.get(ID).record
    assert (found.state, found.host, found.pending) == (VersionState.COMMITTED, None, None)
    assert (found.manifest, found.packs, found.committed_at) == (manifest, ("ab" * 32,), NOON)
    assert found.is_restorable


def test_a_commit_may_be_repeated(store: VersionStore, manifest: str) -> None:
    commit(store, manifest)
    change = store.commit(ID, "h1", Stored(manifest))
    assert change.before == change.after


def test_a_capture_belongs_to_its_host(store: VersionStore, manifest: str) -> None:
    store.begin(ID, captured())
    calls: list[Callable[[], object]] = [
        lambda: store.announce(ID, "h2"),
        lambda: store.commit(ID, "h2", Stored(manifest)),
        lambda: store.note_part(ID, "h2", nvram=manifest),
        lambda: store.abandon(ID, "h2"),
    ]
    for call in calls:
        with pytest.raises(exception.FencedError, match="host h1"):
            call()


def test_an_abandoned_capture_is_gone(store: VersionStore, manifest: str) -> None:
    store.begin(ID, captured())
    store.abandon(ID)
    assert store.find(ID) is None
    with pytest.raises(exception.NotFoundError):
        store.commit(ID, "h1", Stored(manifest))
    with pytest.raises(exception.NotFoundError):
        store.abandon(ID, "h1")


def test_a_version_is_not_abandoned(store: VersionStore, manifest: str) -> None:
    commit(store, manifest)
    with pytest.raises(exception.FencedError, match="committed"):
        store.abandon(ID)
    with pytest.raises(exception.FencedError, match="committed"):
        store.announce(ID, "h1")


def test_ids_are_not_used_twice(store: VersionStore) -> None:
    store.begin(ID, captured())
    with pytest.raises(exception.ConflictError, match="exists already"):
        store.begin(ID, captured())


def test_what_is_lost_is_found_before_the_commit(store: VersionStore, manifest: str) -> None:
    packs = store._repository.load_manifest(manifest).packs()
    store._origin.delete(layout.pack_key(packs[0].hex()))
    assert store.find_lost(Stored(manifest)) == {packs[0]}
    store._origin.delete(layout.manifest_key(manifest))
    with pytest.raises(exception.NotFoundError):
        store.find_lost(Stored(manifest))


def test_packs_of_a_capture_are_bounded(store: VersionStore) -> None:
    store.begin(ID, captured())
    store.announce(ID, "h1", ["ab" * 32] * 4096)
    with pytest.raises(exception.ExhaustedError, match="more than 4096 packs"):
        store.announce(ID, "h1", ["ab" * 32] * 4097)


def test_a_pushed_volume_becomes_a_version(store: VersionStore, manifest: str) -> None:
    volumes = VolumeStore(store._repository)
    volumes.create_from_manifest(NewVolume(VOLUME, 3 * CHUNK_SIZE), manifest)
    state = volumes.get(VOLUME).record.disk
    record = committed(
        disk=DiskName(DiskKind.VOLUME, VOLUME), manifest=state.manifest, logs=state.logs
    )
    assert store.publish(ID, record).record == store.get(ID).record


def test_a_volume_that_was_folded_since_is_pushed_again(store: VersionStore, manifest: str) -> None:
    store._origin.delete(layout.manifest_key(manifest))
    with pytest.raises(exception.ConflictError, match="collected meanwhile"):
        store.publish(ID, committed(manifest=manifest))
    assert store.find(ID) is None


def test_older_repositories_have_no_versions() -> None:
    older = open_repository(memory.MemoryOrigin(), COMPACTION_VERSION)
    with pytest.raises(exception.UnsupportedError, match="format version 7, versions of disks"):
        VersionStore(older)


# Locks and expiry


def test_a_locked_version_is_not_deleted(store: VersionStore, manifest: str, clock: Clock) -> None:
    commit(store, manifest)
    store.lock(ID, Lock("ransomware", NOON + HOUR))
    with pytest.raises(exception.ConflictError, match=r"locked until .*13:00:00.*: ransomware"):
        store.delete(ID)
    clock.now += HOUR
    store.delete(ID)
    assert store.find(ID) is None


def test_a_locked_version_does_not_expire(store: VersionStore, manifest: str, clock: Clock) -> None:
    commit(store, manifest)
    store.set_expiry(ID, NOON + HOUR)
    store.lock(ID, Lock())
    clock.now += 2 * HOUR
    assert store.expire(ID) is None
    store.unlock(ID)
    expired = store.expire(ID)
    assert expired is not None
    assert expired.id == ID
    assert store.expire(ID) is None


def test_a_version_does_not_expire_too_early(store: VersionStore, manifest: str) -> None:
    commit(store, manifest)
    assert store.expire(ID) is None
    store.set_expiry(ID, NOON + HOUR)
    assert store.expire(ID) is None
    assert store.get(ID).record.expires_at == NOON + HOUR


def test_a_lock_keeps_the_expiry_from_coming_earlier(store: VersionStore, manifest: str) -> None:
    commit(store, manifest)
    store.set_expiry(ID, NOON + 5 * HOUR)
    store.lock(ID, Lock())
    with pytest.raises(exception.ConflictError, match="cannot expire earlier"):
        store.set_expiry(ID, NOON + 4 * HOUR)
    store.set_expiry(ID, NOON + 6 * HOUR)
    store.set_expiry(ID, None)
    with pytest.raises(exception.ConflictError, match="cannot expire earlier"):
        store.set_expiry(ID, NOON + 6 * HOUR)


def test_a_lock_is_not_replaced_by_a_shorter_one(
    store: VersionStore, manifest: str, clock: Clock
) -> None:
    commit(store, manifest)
    store.lock(ID, Lock("", NOON + 2 * HOUR))
    with pytest.raises(exception.ConflictError, match="longer"):
        store.lock(ID, Lock("", NOON + HOUR))
    store.lock(ID, Lock("", NOON + 3 * HOUR))
    clock.now += 3 * HOUR
    store.lock(ID, Lock("", clock.now + HOUR))
    store.lock(ID, Lock("for ever"))
    with pytest.raises(exception.ConflictError, match="longer"):
        store.lock(ID, Lock("", clock.now + 100 * HOUR))


def test_a_capture_is_not_deleted(store: VersionStore) -> None:
    store.begin(ID, captured())
    with pytest.raises(exception.ConflictError, match="being captured on host h1"):
        store.delete(ID)


# Uses


def test_a_version_in_use_goes_with_its_last_use(store: VersionStore, manifest: str) -> None:
    commit(store, manifest)
    store.begin_use(ID, "image/1")
    store.begin_use(ID, "restore/2")
    store.begin_use(ID, "image/1")
    store.delete(ID)
    assert store.get(ID).record.state is VersionState.CONDEMNED
    calls: list[Callable[[], object]] = [
        lambda: store.delete(ID),
        lambda: store.begin_use(ID, "image/3"),
        lambda: store.describe(ID, name="x"),
    ]
    for call in calls:
        with pytest.raises(exception.NotFoundError, match="deleted"):
            call()
    store.end_use(ID, "image/1")
    store.end_use(ID, "image/1")
    assert store.get(ID).record.uses == ("restore/2",)
    store.end_use(ID, "restore/2")
    assert store.find(ID) is None
    assert store.end_use(ID, "restore/2") is None


def test_a_version_outlives_its_uses(store: VersionStore, manifest: str) -> None:
    commit(store, manifest)
    store.begin_use(ID, "image/1")
    store.end_use(ID, "image/1")
    store.end_use(ID, "image/1")
    assert store.get(ID).record.uses == ()


def test_a_capture_is_not_used(store: VersionStore) -> None:
    store.begin(ID, captured())
    with pytest.raises(exception.ConflictError, match="on host h1 only"):
        store.begin_use(ID, "image/1")
    with pytest.raises(exception.InvalidError, match="no use"):
        store.begin_use(ID, "an image")


# Descriptions and pages


def test_names_and_labels_are_changed(store: VersionStore, manifest: str) -> None:
    commit(store, manifest)
    store.describe(ID, labels={"a": "1", "b": "2"})
    store.describe(ID, name="before", labels={"a": None})
    found = store.get(ID).record
    assert (found.name, dict(found.labels)) == ("before", {"b": "2"})
    with pytest.raises(exception.InvalidError):
        store.describe(ID, name="x" * 300)


def test_versions_are_listed_page_by_page(store: VersionStore) -> None:
    ids = [version_id(number) for number in (0, 1, 2, 9, 15)]
    for one in reversed(ids):
        store.begin(one, captured())
    assert list(store.list_ids()) == ids
    assert list(store.list_ids(ids[1])) == ids[2:]
    assert list(store.list_ids(version_id(8))) == ids[3:]
    assert [version.id for version in store.list(ids[3])] == ids[4:]
    store.abandon(ids[2])
    assert list(store.list_ids(ids[2])) == ids[3:]


def test_every_change_makes_another_state(store: VersionStore, manifest: str) -> None:
    commit(store, manifest)
    change = store.describe(ID, name="x")
    assert change.before.nonce != change.after.nonce
    same = store.describe(ID, name="x")
    assert same.after == same.before == change.after


def test_unsound_records_are_not_written(store: VersionStore) -> None:
    broken: list[dict[str, Any]] = [{"size_bytes": 1}, {"group_size": 0}, {"name": "\n"}]
    for fields in broken:
        with pytest.raises(exception.InvalidError):
            store.begin(ID, dataclasses.replace(captured(), **fields))
    assert store.find(ID) is None
