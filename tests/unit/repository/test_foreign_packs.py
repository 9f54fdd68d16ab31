"""Packs that are in order and that no image may share: of volumes, or of chunks of another size."""

import pathlib

import pytest

from acstor import native
from acstor.origin import memory
from acstor.repository import layout
from acstor.repository.images import registration
from acstor.repository.pack_filler import random_salt
from acstor.repository.pack_reader import DATA_OFFSET, RECORD_SIZE
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION, Repository
from acstor.repository.verification import Verifier
from tests.unit.repository.images import (
    CHUNK_SIZE,
    SETTINGS,
    chunk,
    disk,
    open_repository,
    read_back,
    register,
)


@pytest.fixture(params=[INDEX_VERSION, COMPRESSED_VERSION], ids=["plain", "compressed"])
def repository(request: pytest.FixtureRequest) -> Repository:
    return open_repository(memory.MemoryOrigin(), request.param)


def store_pack(
    repository: Repository, pack_class: str, chunk_size: int, *, is_sound: bool = True
) -> str:
    """Store a pack of version 2 with one chunk; return its id."""
    content = chunk(1) * (chunk_size // CHUNK_SIZE)
    buffer = bytearray(DATA_OFFSET + chunk_size + RECORD_SIZE)
    writer = native.PackWriter(buffer, chunk_size, pack_class, random_salt())
    scan = native.scan_buffer(content, chunk_size)
    writer.append(native.compress_chunks(scan, content, [0], 1))
    pack, size, records = writer.seal()
    stored = buffer[:size]
    if not is_sound:
        stored[DATA_OFFSET] ^= 1
    repository.origin.put_if_absent(layout.pack_key(pack.hex()), [stored, records.to_bytes()])
    return pack.hex()


KINDS = [("volume", CHUNK_SIZE), ("image", 2 * CHUNK_SIZE), ("volume", 2 * CHUNK_SIZE)]


@pytest.mark.parametrize(("pack_class", "chunk_size"), KINDS)
def test_registration_shares_none_of_them(
    repository: Repository, tmp_path: pathlib.Path, pack_class: str, chunk_size: int
) -> None:
    store_pack(repository, pack_class, chunk_size)
    settings = registration.Settings(SETTINGS.pack_size, 0, cache_path=str(tmp_path))
    for number in range(3):  # from the second on by the cache
        content = disk(1, 2, 3 + number)
        assert register(repository, number, content, settings).new == (3 if number == 0 else 1)
        assert read_back(repository, number) == content


def test_verification_reads_packs_of_volumes(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3))
    store_pack(repository, "volume", CHUNK_SIZE)
    assert Verifier(repository).verify().damages == []
    damaged = store_pack(repository, "volume", CHUNK_SIZE, is_sound=False)
    (damage,) = Verifier(repository).verify().damages
    assert (damage.pack, damage.offset, damage.image) == (damaged, DATA_OFFSET, None)
