"""One suite for versions of disks over every kind of origin."""

import datetime
import pathlib
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from acstor.repository.versions import version_refs
from acstor.repository.versions.captures import Stored
from acstor.repository.versions.locks import Lock
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from tests.compliance.origins import VOLUME_ORIGINS
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, register
from tests.unit.repository.versions.captures import NumberedDisk, numbers_of, store_of, take
from tests.unit.repository.versions.records import NOON, captured, version_id

BASE = (1, 2, 3, 4)
ID = version_id(1)
HOUR = datetime.timedelta(hours=1)


@pytest.fixture(params=sorted(VOLUME_ORIGINS))
def origin(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[base.Origin]:
    opened = VOLUME_ORIGINS[request.param](tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def store(origin: base.Origin) -> VersionStore:
    return store_of(Repository.init(origin, CHUNK_SIZE))


@pytest.fixture
def manifest(store: VersionStore) -> str:
    register(store.repository, 0, disk(*BASE))
    return store.repository.get_image(image_id(0)).record.manifest


def test_versions_are_taken_one_after_the_other(store: VersionStore, manifest: str) -> None:
    contents = {1: (20, 2, 3, 4), 2: (20, 21, 3, 0), 3: (20, 21, 22, 0), 4: (1, 2, 22, 4)}
    parent = manifest
    for number, numbers in contents.items():
        parent = take(store, number, NumberedDisk(numbers), parent)
    for number, numbers in contents.items():
        found = store.get(version_id(number)).record.manifest
        assert found is not None
        assert numbers_of(store.repository.origin, found) == list(numbers)


def test_ids_are_listed_in_order_from_any_place(store: VersionStore) -> None:
    ids = [version_id(number) for number in range(16)]
    for one in ids[::-1]:
        store.begin(one, captured())
    assert list(store.list_ids()) == ids
    assert list(store.list_ids(ids[6])) == ids[7:]
    assert sorted(version_refs.version_ids(store.repository.origin)) == ids
    assert len(list(store.repository.origin.list_refs(layout.version_shard(0x10)))) == 1


def test_a_record_changes_by_its_rules(store: VersionStore, manifest: str) -> None:
    store.begin(ID, captured(size_bytes=len(BASE) * CHUNK_SIZE))
    store.announce(ID, "h1", (), manifest)
    store.commit(ID, "h1", Stored(manifest))
    store.lock(ID, Lock("kept", NOON + HOUR))
    with pytest.raises(exception.ConflictError):
        store.delete(ID)
    store.unlock(ID)
    store.begin_use(ID, "image/1")
    store.delete(ID)
    assert store.get(ID).record.state is VersionState.CONDEMNED
    store.end_use(ID, "image/1")
    assert store.find(ID) is None


def test_what_no_version_needs_is_collected(store: VersionStore, manifest: str) -> None:
    first = take(store, 1, NumberedDisk((20, 2, 3, 4)), manifest)
    take(store, 2, NumberedDisk((20, 21, 3, 4)), first)
    store.repository.remove_image(image_id(0))
    store.delete(ID)
    collector = Collector(store.repository, "host", 0.0, clock=lambda: 1.0)
    for _ in range(3):
        collector.collect()
    found = store.get(version_id(2)).record.manifest
    assert found is not None
    assert numbers_of(store.repository.origin, found) == [20, 21, 3, 4]
    store.delete(version_id(2))
    for _ in range(3):
        collector.collect()
    assert list(store.repository.origin.list(layout.PACK_PREFIX)) == []
