"""Limits of volumes' sizes: those of the manifests that they have, or are to have."""

import random
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION, Repository
from acstor.repository.upgrade import upgrade
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register
from tests.unit.repository.volumes.hosts import Owner

WHOLE_MAX = layout.CHUNKS_MAX * CHUNK_SIZE
PAGED_MAX = layout.PAGED_CHUNKS_MAX * CHUNK_SIZE
VOLUME = image_id(100)
OTHER = image_id(101)
SNAPSHOT = image_id(102)


@pytest.fixture
def origin() -> MemoryOrigin:
    return MemoryOrigin()


def store_of(origin: MemoryOrigin, version: int) -> VolumeStore:
    return VolumeStore(open_repository(origin, version), wait=lambda seconds: None)


def refused(call: Callable[[], object], version: int) -> exception.InvalidError:
    """Return the error that names the limit of a version of manifests."""
    limit = {1: WHOLE_MAX, 2: PAGED_MAX}[version]
    text = f"a manifest of version {version} describes in chunks of {CHUNK_SIZE} bytes, {limit} at"
    with pytest.raises(exception.InvalidError, match=text) as refusal:
        call()
    return refusal.value


@pytest.mark.parametrize(
    ("version", "manifests", "limit"),
    [(INDEX_VERSION, 1, WHOLE_MAX), (COMPRESSED_VERSION, 2, PAGED_MAX)],
)
def test_limit_is_that_of_the_manifests_that_the_repository_makes(
    origin: MemoryOrigin, version: int, manifests: int, limit: int
) -> None:
    store = store_of(origin, version)
    assert store.makes_paged() is (manifests == 2)
    refused(lambda: store.create(NewVolume(VOLUME, limit + 512)), manifests)
    assert store.find(VOLUME) is None
    store.create(NewVolume(VOLUME, limit - 512))
    refused(lambda: store.resize(VOLUME, limit + 512), manifests)
    assert store.get(VOLUME).record.size_bytes == limit - 512
    store.resize(VOLUME, limit)
    refused(lambda: store.clone(NewVolume(OTHER, limit + 512), VOLUME), manifests)
    assert store.clone(NewVolume(OTHER, limit), VOLUME).record.size_bytes == limit
    store.snapshot(VOLUME, SNAPSHOT)
    larger = NewVolume(image_id(103), limit + 512)
    refused(lambda: store.create_from_snapshot(larger, SNAPSHOT), manifests)


def test_no_disk_is_larger_than_64_tib(origin: MemoryOrigin) -> None:
    store = VolumeStore(Repository.init(origin, 1 << 20))
    store.create(NewVolume(VOLUME, 64 << 40))
    with pytest.raises(exception.InvalidError, match=f"{64 << 40} at most"):
        store.resize(VOLUME, (64 << 40) + 512)


def test_upgrade_counts_without_a_restart(origin: MemoryOrigin) -> None:
    store = store_of(origin, INDEX_VERSION)
    store.create(NewVolume(VOLUME, WHOLE_MAX))
    error = refused(lambda: store.resize(VOLUME, WHOLE_MAX + 512), 1)
    assert "acstor repository upgrade" in error.hint
    assert str(PAGED_MAX) in error.hint
    upgrade(origin)
    assert store.makes_paged()
    store.resize(VOLUME, PAGED_MAX)


def test_origin_that_is_not_there_is_no_older_repository(origin: MemoryOrigin) -> None:
    store = store_of(origin, INDEX_VERSION)
    origin.delete(layout.FORMAT_KEY)
    with pytest.raises(exception.UnavailableError):
        store.makes_paged()


def test_manifest_of_before_the_upgrade_keeps_its_limit(origin: MemoryOrigin) -> None:
    before = open_repository(origin, INDEX_VERSION)
    register(before, 1, disk(1, 2))
    repository = upgrade(origin)
    register(repository, 2, disk(3, 4))
    old, present = (repository.get_image(image_id(n)).record.manifest for n in (1, 2))
    store = VolumeStore(repository)
    large = WHOLE_MAX + 512
    error = refused(lambda: store.create_from_manifest(NewVolume(VOLUME, large), old), 1)
    assert "copy" in error.hint
    assert store.find(VOLUME) is None
    store.create_from_manifest(NewVolume(VOLUME, WHOLE_MAX), old)
    refused(lambda: store.resize(VOLUME, large), 1)
    assert store.get(VOLUME).record.size_bytes == WHOLE_MAX
    store.create_from_manifest(NewVolume(OTHER, large), present)
    store.resize(OTHER, PAGED_MAX)


def test_fold_of_the_former_version_is_not_installed_where_the_volume_has_grown(
    origin: MemoryOrigin,
) -> None:
    """It began before the upgrade; the next one makes a manifest of version 2."""
    store = store_of(origin, INDEX_VERSION)
    store.create(NewVolume(VOLUME, WHOLE_MAX))
    store.allow_host(VOLUME, "a")
    owner = Owner(store, origin, VOLUME, "a", random.Random(5))
    owner.acquire()
    owner.write("one")
    upgrade(origin)
    store.resize(VOLUME, WHOLE_MAX + 512)
    refused(owner.fold, 1)
    assert store.get(VOLUME).record.manifest is None


def test_revert_to_a_manifest_of_before_the_upgrade_keeps_its_limit(origin: MemoryOrigin) -> None:
    store = store_of(origin, INDEX_VERSION)
    store.create(NewVolume(VOLUME, WHOLE_MAX))
    empty = store.snapshot(VOLUME, OTHER).id
    store.allow_host(VOLUME, "a")
    owner = Owner(store, origin, VOLUME, "a", random.Random(5))
    owner.acquire()
    owner.write("one")
    owner.fold()
    folded = store.snapshot(VOLUME, SNAPSHOT, owner.push()).id
    owner.release()
    store.disallow_host(VOLUME, "a")
    upgrade(origin)
    store.revert(VOLUME, empty)
    store.resize(VOLUME, WHOLE_MAX + 512)
    refused(lambda: store.revert(VOLUME, folded), 1)
    assert store.get(VOLUME).record.pending is None
