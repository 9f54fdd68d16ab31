"""Disks are read as they were stored, whatever is over them and wherever their chunks are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.origin import memory
from acstor.repository import layout
from acstor.repository.gc.garbage import Collector
from acstor.repository.reading.disk_reader import READ_SIZE_MAX, DataRun, DiskReader
from acstor.repository.repository import COMPRESSED_VERSION, FORMAT_VERSION, Repository
from testbed.doubles.memory_overlay import MemoryOverlay
from tests.unit.repository.images import (
    CHUNK_SIZE,
    chunk,
    disk,
    image_id,
    open_repository,
    register,
)
from tests.unit.repository.test_compaction import compact

NUMBERS = (1, 0, 2, 2, 0, 0, 3, 4)
CONTENT = disk(*NUMBERS) + chunk(5)[:512]


def text(number: int) -> bytes:
    """Return a chunk that compresses well."""
    return (f"line {number}\n".encode() * CHUNK_SIZE)[:CHUNK_SIZE]


def opened(
    repository: Repository, number: int = 0, overlay: MemoryOverlay | None = None
) -> DiskReader:
    record = repository.get_image(image_id(number)).record
    manifest = repository.load_manifest(record.manifest)
    return DiskReader(repository.origin, record.size_bytes, manifest, overlay)


@pytest.fixture(params=[COMPRESSED_VERSION - 1, FORMAT_VERSION])
def repository(request: pytest.FixtureRequest) -> Repository:
    """Return a repository, the older of which has no compressed images."""
    return open_repository(memory.MemoryOrigin(), request.param)


def test_any_part_is_what_was_stored(repository: Repository) -> None:
    content = CONTENT[: 4 * CHUNK_SIZE] + text(1) + text(2) + CONTENT[4 * CHUNK_SIZE :]
    register(repository, 0, content)
    reader = opened(repository)
    assert reader.size_bytes == len(content)
    assert reader.read(0, len(content)) == content

    @given(st.tuples(st.integers(0, len(content)), st.integers(0, len(content))).map(sorted))
    def part_is_equal(part: list[int]) -> None:
        start, end = part
        assert reader.read(start, end - start) == content[start:end]

    part_is_equal()


def test_parts_with_content_are_told(repository: Repository) -> None:
    register(repository, 0, CONTENT)
    assert list(opened(repository).data_runs()) == [
        DataRun(0, CHUNK_SIZE),
        DataRun(2 * CHUNK_SIZE, 4 * CHUNK_SIZE),
        DataRun(6 * CHUNK_SIZE, len(CONTENT)),
    ]


def test_what_was_written_lies_over_the_manifest(repository: Repository) -> None:
    register(repository, 0, CONTENT)
    zeroed = (6 * CHUNK_SIZE - 512, 1024 + CHUNK_SIZE)
    overlay = MemoryOverlay({512: b"x" * 1024, 4 * CHUNK_SIZE: b"y" * 512, zeroed[0]: zeroed[1]})
    expected = bytearray(CONTENT)
    expected[512:1536] = b"x" * 1024
    expected[4 * CHUNK_SIZE : 4 * CHUNK_SIZE + 512] = b"y" * 512
    expected[zeroed[0] : sum(zeroed)] = bytes(zeroed[1])
    reader = opened(repository, overlay=overlay)
    assert reader.read(0, len(CONTENT)) == expected
    for start in range(0, len(CONTENT), 512):
        assert reader.read(start, 512) == expected[start : start + 512]
    assert list(reader.data_runs()) == [
        DataRun(0, CHUNK_SIZE),
        DataRun(2 * CHUNK_SIZE, 4 * CHUNK_SIZE + 512),
        # The chunk that is zeros now is left out, that of which a part is left is not.
        DataRun(7 * CHUNK_SIZE, len(CONTENT)),
    ]
    reader.close()
    assert overlay.is_closed


def test_disk_of_zeros_may_have_writes_over_it() -> None:
    objects = memory.MemoryOrigin()
    reader = DiskReader(objects, 8192, None, MemoryOverlay({1024: b"z" * 512}))
    assert reader.read(0, 8192) == bytes(1024) + b"z" * 512 + bytes(8192 - 1536)
    assert list(reader.data_runs()) == [DataRun(1024, 1536)]
    assert DiskReader(objects, 8192, None).read(4096, 4096) == bytes(4096)


def test_larger_disk_than_its_manifest_ends_in_zeros(repository: Repository) -> None:
    register(repository, 0, CONTENT)
    manifest = repository.load_manifest(repository.get_image(image_id(0)).record.manifest)
    larger = DiskReader(repository.origin, len(CONTENT) + 8192, manifest)
    assert larger.read(0, larger.size_bytes) == CONTENT + bytes(8192)
    smaller = DiskReader(repository.origin, 3 * CHUNK_SIZE, manifest)
    assert smaller.read(0, 3 * CHUNK_SIZE) == CONTENT[: 3 * CHUNK_SIZE]
    assert list(smaller.data_runs())[-1] == DataRun(2 * CHUNK_SIZE, 3 * CHUNK_SIZE)


def test_moved_chunks_are_found() -> None:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(*range(1, 9)))
    register(repository, 1, disk(1, 5))
    repository.remove_image(image_id(0))
    for _ in range(2):
        compact(repository)
        for _ in range(3):
            Collector(repository, "w", 0.0, clock=lambda: 1.0).collect()
    assert opened(repository, 1).read(0, 2 * CHUNK_SIZE) == disk(1, 5)


def test_bytes_that_are_not_there_are_refused(repository: Repository) -> None:
    register(repository, 0, CONTENT)
    reader = opened(repository)
    for offset, size in ((-1, 1), (0, len(CONTENT) + 1), (len(CONTENT), 1), (0, -1)):
        with pytest.raises(exception.InvalidError):
            reader.read(offset, size)
    large = DiskReader(repository.origin, 1 << 40, None)
    with pytest.raises(exception.InvalidError):
        large.read(0, READ_SIZE_MAX + 1)


def test_damaged_chunk_is_never_returned(repository: Repository) -> None:
    register(repository, 0, CONTENT)
    origin = repository.origin
    for key in list(origin.list(layout.PACK_PREFIX)):
        content = bytearray(origin.get(key, 1 << 20))
        content[4096 + 100] ^= 1
        origin.delete(key)
        origin.put_if_absent(key, [content])
    with pytest.raises(exception.CorruptError, match="damaged"):
        opened(repository).read(0, len(CONTENT))


def test_lost_pack_is_an_error_that_names_it(repository: Repository) -> None:
    register(repository, 0, CONTENT)
    for key in list(repository.origin.list(layout.PACK_PREFIX)):
        repository.origin.delete(key)
    with pytest.raises(exception.CorruptError, match="packs/"):
        opened(repository).read(0, CHUNK_SIZE)
