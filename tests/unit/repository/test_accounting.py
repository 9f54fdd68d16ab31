"""Accounting: every stored byte is overhead, live or garbage; of an image, its own or shared."""

import random

import pytest

from acstor.origin import memory
from acstor.repository import layout, upgrade
from acstor.repository.accounting import account, account_owners
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION, Repository
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register


@pytest.fixture(params=[INDEX_VERSION, COMPRESSED_VERSION], ids=["plain", "compressed"])
def repository(request: pytest.FixtureRequest) -> Repository:
    return open_repository(memory.MemoryOrigin(), request.param)


def chunks_of(repository: Repository) -> dict[str, tuple[int, int]]:
    """Return by id what each image, volume and snapshot needs, and needs alone, in chunks."""
    return {
        one.owner.id: (one.used_bytes // CHUNK_SIZE, one.unique_bytes // CHUNK_SIZE)
        for one in account(repository).owners
    }


def test_shared_chunks_are_nobodys_own(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3, 3, 0))
    register(repository, 1, disk(3, 4, 5, 6, 7))
    register(repository, 2, disk(4, 1))
    assert chunks_of(repository) == {image_id(0): (3, 1), image_id(1): (5, 3), image_id(2): (2, 0)}
    space = account(repository)
    assert space.live_bytes == 7 * CHUNK_SIZE
    assert space.garbage_bytes == 0
    repository.remove_image(image_id(1))
    space = account(repository)
    assert (space.live_bytes, space.unreadable) == (4 * CHUNK_SIZE, [])
    assert space.garbage_bytes >= 3 * CHUNK_SIZE
    assert chunks_of(repository) == {image_id(0): (3, 2), image_id(2): (2, 1)}


def test_all_bytes_are_accounted_for(repository: Repository) -> None:
    choice = random.Random(5)
    for number in range(8):
        register(repository, number, disk(*(choice.randint(0, 40) for _ in range(30))))
    for number in (1, 4):
        repository.remove_image(image_id(number))
    space = account(repository)
    keys = list(repository.origin.list(layout.PACK_PREFIX))
    assert space.packs == len(keys)
    assert space.stored_bytes == sum(map(repository.origin.size, keys))
    parts = space.overhead_bytes + space.live_bytes + space.garbage_bytes
    assert parts == space.stored_bytes
    needed = {
        (entry.pack, entry.offset, entry.stored_size)
        for image in repository.list_images()
        for _, entry in repository.load_manifest(image.record.manifest).entries()
    }
    assert space.live_bytes == sum(size for *_, size in needed)


def test_nothing_of_what_is_collected_is_left(repository: Repository) -> None:
    register(repository, 0, disk(1, 2))
    repository.remove_image(image_id(0))
    assert account(repository).garbage_bytes == account(repository).stored_bytes > 0
    for _ in range(2):
        Collector(repository, "host", 0.0, clock=lambda: 1.0).collect()
    assert account(repository).stored_bytes == 0


def test_volume_and_snapshot_share_the_chunks_of_their_image() -> None:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(1, 2))
    manifest = repository.get_image(image_id(0)).record.manifest
    store = VolumeStore(repository)
    store.create_from_manifest(NewVolume(image_id(1), 2 * CHUNK_SIZE), manifest)
    assert chunks_of(repository) == {image_id(0): (2, 0), image_id(1): (2, 0)}
    repository.remove_image(image_id(0))
    assert chunks_of(repository) == {image_id(1): (2, 2)}


def test_unreadable_manifest_is_named() -> None:
    origin = memory.MemoryOrigin()
    register(open_repository(origin, INDEX_VERSION), 0, disk(1, 2))
    repository = upgrade.upgrade(origin, COMPRESSED_VERSION)
    register(repository, 1, disk(1, 2))
    digest = repository.get_image(image_id(0)).record.manifest
    origin.delete(layout.manifest_key(digest))
    space = account(repository)
    assert [subject.id for subject in space.unreadable] == [image_id(0)]
    assert space.live_bytes == 2 * CHUNK_SIZE


def test_what_disks_of_an_owner_share_is_counted_once(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3))
    register(repository, 1, disk(2, 3, 4))
    register(repository, 2, disk(4, 5))
    owners = {image_id(0): "a", image_id(1): "a", image_id(2): "b"}
    found = account_owners(repository, lambda subject: owners[subject.id]).owners
    chunks = {one.owner: (one.used_bytes, one.unique_bytes, one.shared_bytes) for one in found}
    assert chunks == {
        "a": (4 * CHUNK_SIZE, 3 * CHUNK_SIZE, CHUNK_SIZE),
        "b": (2 * CHUNK_SIZE, CHUNK_SIZE, CHUNK_SIZE),
    }
