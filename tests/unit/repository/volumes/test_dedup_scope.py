"""The scope of a volume's new chunks: what keeps it, what changes it, what refuses it."""

import random
import uuid

import pytest

from acstor import exception
from acstor.origin import memory
from acstor.repository.repository import Format, Repository
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.images import CHUNK_SIZE
from tests.unit.repository.volumes.hosts import Owner

GIB = 1 << 30


def new(**fields: object) -> NewVolume:
    return NewVolume(str(uuid.uuid4()), GIB, **fields)  # type: ignore[arg-type]


@pytest.fixture
def origin() -> memory.MemoryOrigin:
    return memory.MemoryOrigin()


@pytest.fixture
def store(origin: memory.MemoryOrigin) -> VolumeStore:
    return VolumeStore(Repository.init(origin, CHUNK_SIZE))


def test_scope_outlasts_what_is_done_to_the_volume(
    store: VolumeStore, origin: memory.MemoryOrigin
) -> None:
    made = store.create(new(dedup_scope="a project"))
    store.allow_host(made.id, "a")
    owner = Owner(store, origin, made.id, "a", random.Random(5))
    owner.acquire()
    owner.write("content")
    owner.fold()
    owner.push()
    store.resize(made.id, 2 * GIB)
    owner.release()
    store.disallow_host(made.id, "a")
    renamed = store.rename(made.id, str(uuid.uuid4()))
    assert store.get(renamed.id).record.dedup_scope == "a project"


def test_copy_has_the_scope_that_is_asked_for(store: VolumeStore) -> None:
    made = store.create(new(dedup_scope="a project"))
    snapshot = store.snapshot(made.id, str(uuid.uuid4()))
    clone = store.clone(new(dedup_scope="another"), made.id)
    restored = store.create_from_snapshot(new(), snapshot.id)
    assert (clone.record.dedup_scope, restored.record.dedup_scope) == ("another", None)


def test_scope_changes_and_goes(store: VolumeStore) -> None:
    made = store.create(new())
    for scope in ("a project", "another", None):
        store.set_dedup_scope(made.id, scope)
        assert store.get(made.id).record.dedup_scope == scope
    with pytest.raises(exception.InvalidError, match="scope"):
        store.set_dedup_scope(made.id, "")


def test_scope_is_refused_where_older_releases_may_be(origin: memory.MemoryOrigin) -> None:
    older = Format(str(uuid.uuid4()), CHUNK_SIZE, version=3)
    origin.put_if_absent("format", [older.encode()])
    store = VolumeStore(Repository.open(origin))
    made = store.create(new())
    with pytest.raises(exception.UnsupportedError, match="needs 4"):
        store.create(new(dedup_scope="a project"))
    with pytest.raises(exception.UnsupportedError, match="needs 4"):
        store.set_dedup_scope(made.id, "a project")
    store.set_dedup_scope(made.id, None)
