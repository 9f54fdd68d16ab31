"""Registration: what is stored, what is refused, what is found again."""

import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

from acstor import exception, native
from acstor.origin import faulty, memory
from acstor.repository import layout
from acstor.repository.images import registration
from acstor.repository.pack_reader import DIGEST_SIZE, RECORD_SIZE
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION, Repository
from acstor.repository.source.base import Extent
from acstor.repository.verification import Verifier
from tests.unit.repository.images import (
    CHUNK_SIZE,
    SETTINGS,
    disk,
    image_id,
    open_repository,
    read_back,
    register,
)
from tests.unit.repository.memory_source import MemorySource


@pytest.fixture(params=[INDEX_VERSION, COMPRESSED_VERSION], ids=["plain", "compressed"])
def repository(request: pytest.FixtureRequest) -> Repository:
    return open_repository(memory.MemoryOrigin(), request.param)


def test_registered_image_reads_back(repository: Repository) -> None:
    content = disk(1, 2, 0, 3, 1, 4, 5, 6, 7)
    report = register(repository, 0, content)
    assert report.status == "registered"
    assert (report.chunks, report.unique, report.zero, report.duplicate, report.new) == (
        9, 7, 1, 1, 7,
    )  # fmt: skip
    assert report.packs == 2
    assert read_back(repository, 0) == content
    assert Verifier(repository).verify().damages == []


def test_partial_last_chunk_is_padded_and_size_rounded_to_512(repository: Repository) -> None:
    content = disk(1, 2)[: CHUNK_SIZE + 700]
    report = register(repository, 0, content)
    assert report.size_bytes == CHUNK_SIZE + 1024
    assert read_back(repository, 0) == content + bytes(1024 - 700)


def test_holes_are_not_read(repository: Repository) -> None:
    source = MemorySource(disk(1, 9, 9, 9, 2), [(CHUNK_SIZE + 100, 4 * CHUNK_SIZE + 100)])
    request = registration.Request(image_id(0), "holes", source, "raw")
    report = registration.Registrar(repository, SETTINGS).register(request)
    assert report.zero == 2, "only chunks that a hole covers wholly are zero"
    assert read_back(repository, 0)[: 2 * CHUNK_SIZE] == disk(1, 9)


class _Unread(MemorySource):
    """A disk of some size that may be asked for its size only."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(b"")
        self.size_bytes = size_bytes

    def extents(self) -> Iterator[Extent]:
        raise AssertionError("the disk is read")


def test_disk_of_too_many_chunks_is_refused_before_it_is_read(repository: Repository) -> None:
    chunks_max = layout.PAGED_CHUNKS_MAX if repository.has_compressed_images else layout.CHUNKS_MAX
    source = _Unread(chunks_max * CHUNK_SIZE + 512)
    request = registration.Request(image_id(0), "huge", source, "raw")
    registrar = registration.Registrar(repository, SETTINGS)
    with pytest.raises(exception.DiskTooLargeError, match=f"more than the {chunks_max} chunks"):
        registrar.register(request)


def test_more_chunks_than_a_manifest_has_take_no_memory() -> None:
    """As many as a disk of 1 PiB has would take 64 GiB."""
    builder = native.ImageBuilder(native.DigestIndex(CHUNK_SIZE))
    builder.push_zeros(5)
    for count in (1 << 34, layout.CHUNKS_MAX - 4):
        with pytest.raises(native.DataPlaneError, match="limit of manifests"):
            builder.push_zeros(count)
        assert (len(builder), builder.zero_count) == (5, 5)
    with pytest.raises(OverflowError):
        builder.push_zeros(-1)


def test_image_of_zeros_stores_no_pack(repository: Repository) -> None:
    report = register(repository, 0, disk(0, 0, 0))
    assert (report.packs, report.zero) == (0, 3)
    assert read_back(repository, 0) == disk(0, 0, 0)


def test_same_image_again_is_already_registered(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3))
    before = sorted(repository.origin.list())
    report = register(repository, 0, disk(1, 2, 3))
    assert report.status == "already registered"
    assert report.bytes_stored == 0
    assert sorted(repository.origin.list()) == before


def test_same_id_with_other_content_is_refused(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3))
    before = sorted(repository.origin.list())
    for content in (disk(1, 2, 4), disk(1, 2, 0), disk(1, 2), disk(1, 2, 3, 0)):
        with pytest.raises(exception.ImageRefusedError, match="other content"):
            register(repository, 0, content)
    assert read_back(repository, 0) == disk(1, 2, 3)
    assert list(repository.origin.list("packs/")) == [
        key for key in before if key.startswith("packs/")
    ], "nothing of the refused image was stored"


def test_other_image_stores_only_what_is_new(repository: Repository) -> None:
    chunks = list(range(1, 201))
    register(repository, 0, disk(*chunks))
    chunks[50], chunks[150] = 1000, 1001
    report = register(repository, 1, disk(*chunks))
    assert (report.new, report.duplicate, report.packs) == (2, 198, 1)
    record_size = RECORD_SIZE if repository.has_compressed_images else DIGEST_SIZE
    assert report.bytes_stored == 4096 + 2 * (CHUNK_SIZE + record_size)
    assert read_back(repository, 1) == disk(*chunks)


def test_changed_source_is_refused_and_not_published(repository: Repository) -> None:
    source = MemorySource(disk(1, 2, 3))
    source.is_changed = True
    request = registration.Request(image_id(0), "changed", source, "raw")
    with pytest.raises(exception.ImageRefusedError, match="changed"):
        registration.Registrar(repository, SETTINGS).register(request)
    assert repository.find_image(image_id(0)) is None


def test_damaged_image_is_repaired_by_registering_again(repository: Repository) -> None:
    content = disk(1, 2, 3, 4, 5)
    register(repository, 0, content)
    for key in list(repository.origin.list("packs/"))[:1]:
        repository.origin.delete(key)
    assert Verifier(repository).verify().damages != []
    report = register(repository, 0, content)
    assert report.status == "repaired"
    assert read_back(repository, 0) == content
    assert Verifier(repository).verify().damages == []


def test_missing_manifest_is_repaired_by_registering_again(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3))
    for key in list(repository.origin.list("manifests/")):
        repository.origin.delete(key)
    report = register(repository, 0, disk(1, 2, 3))
    assert (report.status, report.new) == ("repaired", 0)
    assert read_back(repository, 0) == disk(1, 2, 3)


def test_interrupted_registration_stores_the_rest_only(repository: Repository) -> None:
    content = disk(*range(1, 41))
    broken = Repository(
        faulty.FaultyOrigin(
            repository.origin,
            [
                faulty.Fault(
                    faulty.Operation.PUT,
                    faulty.Effect.ERROR,
                    call=6,
                    error=exception.ExhaustedError,
                )
            ],
        ),
        repository.format,
    )
    with pytest.raises(exception.ExhaustedError):
        register(broken, 0, content)
    assert repository.find_image(image_id(0)) is None
    stored = len(list(repository.origin.list("packs/")))
    assert stored == 5
    report = register(repository, 0, content)
    assert report.packs == 10 - stored
    assert read_back(repository, 0) == content


def test_torn_pack_is_noticed_when_it_is_used_again(repository: Repository) -> None:
    torn = Repository(
        faulty.FaultyOrigin(
            repository.origin, [faulty.Fault(faulty.Operation.PUT, faulty.Effect.TORN_WRITE)]
        ),
        repository.format,
    )
    with pytest.raises(exception.UnavailableError):
        register(torn, 0, disk(1, 2, 3, 4))
    register(repository, 0, disk(1, 2, 3, 4))
    assert read_back(repository, 0) == disk(1, 2, 3, 4)


def test_several_workers_store_the_same(repository: Repository) -> None:
    content = disk(*range(1, 60))
    settings = dataclasses.replace(SETTINGS, workers=3)
    report = register(repository, 0, content, settings)
    assert report.packs == 15
    assert read_back(repository, 0) == content


def test_second_registration_reads_no_digests_of_cached_packs(
    repository: Repository, tmp_path: pathlib.Path
) -> None:
    settings = dataclasses.replace(SETTINGS, cache_path=str(tmp_path))
    register(repository, 0, disk(*range(1, 30)), settings)
    counting = faulty.FaultyOrigin(repository.origin)
    register(Repository(counting, repository.format), 1, disk(*range(5, 32)), settings)
    assert counting.calls[faulty.Operation.READ] == 0
    assert read_back(repository, 1) == disk(*range(5, 32))


@pytest.mark.parametrize("damage", ["torn", "flipped", "garbage", "other version"])
def test_damaged_cache_costs_only_reads(
    repository: Repository, tmp_path: pathlib.Path, damage: str
) -> None:
    settings = dataclasses.replace(SETTINGS, cache_path=str(tmp_path))
    register(repository, 0, disk(*range(1, 30)), settings)
    (cache,) = tmp_path.iterdir()
    content = bytearray(cache.read_bytes())
    if damage == "torn":
        del content[-10:]
    elif damage == "flipped":
        content[200] ^= 1
    elif damage == "garbage":
        content = bytearray(b"garbage")
    else:
        content[8] += 1
    cache.write_bytes(content)
    report = register(repository, 1, disk(*range(1, 32)), settings)
    assert report.new == 2
    assert read_back(repository, 1) == disk(*range(1, 32))
    counting = faulty.FaultyOrigin(repository.origin)
    register(Repository(counting, repository.format), 2, disk(*range(1, 32)), settings)
    assert counting.calls[faulty.Operation.READ] == 0, "the cache was mended"


def test_condemned_pack_is_not_reused(repository: Repository) -> None:
    from acstor.repository.gc.garbage import Collector

    register(repository, 0, disk(1, 2, 3))
    repository.remove_image(image_id(0))
    Collector(repository, "host", 3600.0).collect()
    report = register(repository, 1, disk(1, 2, 3))
    assert report.new == 3
    packs = repository.load_manifest(report.manifest).packs()
    names = {layout.name_of(name) for name in repository.origin.list_refs("gc/condemned/")}
    assert not names & {pack.hex() for pack in packs}
