"""Images in manifests and packs of version 2, alone and beside those of version 1."""

import dataclasses
import functools
import json
import pathlib
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from acstor import exception, native
from acstor.origin import faulty, memory
from acstor.repository import disk_formats, disk_manifest, layout, upgrade
from acstor.repository.chunk_indexes import ChunkIndexes
from acstor.repository.disk_manifest import PagedManifest, WholeManifest
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.marking import Marker
from acstor.repository.gc.remembered_packs import MemoryRememberedPacks
from acstor.repository.images import registration
from acstor.repository.pack_reader import RECORD_SIZE, read_pack
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION, Repository
from acstor.repository.source.base import Extent
from acstor.repository.verification import Damage, Verifier
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.images import (
    CHUNK_SIZE,
    SETTINGS,
    chunk,
    disk,
    image_id,
    open_repository,
    read_back,
    register,
)
from tests.unit.repository.memory_source import MemorySource

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
SPARSE_SIZE = layout.PAGED_CHUNKS_MAX * CHUNK_SIZE
"""Bytes of the largest disk with chunks of that size: 4 TiB."""


@pytest.fixture
def repository() -> Repository:
    return open_repository(memory.MemoryOrigin(), COMPRESSED_VERSION)


def text(number: int) -> bytes:
    """Return a chunk that compresses well."""
    return (f"line {number}\n".encode() * CHUNK_SIZE)[:CHUNK_SIZE]


def manifest_of(repository: Repository, number: int) -> PagedManifest:
    found = repository.load_manifest(repository.get_image(image_id(number)).record.manifest)
    assert isinstance(found, PagedManifest)
    return found


class SparseSource(MemorySource):
    """A disk of some size with content at a few places."""

    def __init__(self, size_bytes: int, chunks: dict[int, bytes]) -> None:
        super().__init__(b"")
        self.size_bytes = size_bytes
        self.chunks = chunks

    def extents(self) -> Iterator[Extent]:
        position = 0
        for index in sorted(self.chunks):
            start = index * CHUNK_SIZE
            if position < start:
                yield Extent(position, start, is_zero=True)
            position = start + CHUNK_SIZE
            yield Extent(start, position, is_zero=False)
        if position < self.size_bytes:
            yield Extent(position, self.size_bytes, is_zero=True)

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        buffer[:] = self.chunks[offset // chunk_size]
        return native.scan_buffer(buffer, chunk_size, scope)


def register_sparse(
    repository: Repository, size_bytes: int, chunks: dict[int, bytes], number: int = 0
) -> registration.Report:
    source = SparseSource(size_bytes, chunks)
    request = registration.Request(image_id(number), "sparse", source, "raw")
    return registration.Registrar(repository, SETTINGS).register(request)


def test_chunks_are_stored_in_the_form_that_pays(repository: Repository) -> None:
    content = b"".join([text(1), chunk(1), bytes(CHUNK_SIZE), text(2), text(1), chunk(2)])
    report = register(repository, 0, content)
    assert (report.chunks, report.zero, report.unique, report.new) == (6, 1, 4, 4)
    manifest = manifest_of(repository, 0)
    codecs = {index: entry.codec for index, entry in manifest.entries()}
    assert codecs == {0: "zstd", 1: "plain", 3: "zstd", 4: "zstd", 5: "plain"}
    assert manifest.entry(0) == manifest.entry(4)
    assert report.bytes_stored == 4096 + 3 * CHUNK_SIZE + 4 * RECORD_SIZE, "two fill one page"
    assert read_back(repository, 0) == content
    assert Verifier(repository).verify().damages == []


def test_incompressible_chunks_are_marked(repository: Repository) -> None:
    register(repository, 0, disk(1))
    (pack,) = manifest_of(repository, 0).packs()
    header = repository.origin.get_range(layout.pack_key(pack.hex()), 0, 64)
    parsed = native.PackHeader.parse(header)
    key = layout.pack_key(pack.hex())
    table = repository.origin.get_range(key, parsed.table_offset, parsed.table_size)
    *_, codec, is_incompressible = parsed.parse_table(pack, table).record(0)
    assert (codec, is_incompressible) == ("plain", True)


def test_summary_says_how_much_of_a_pack_is_used(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3))
    register(repository, 1, disk(2))
    ((pack, pack_class, stored, used),) = manifest_of(repository, 1).usage()
    assert (pack_class, stored, used) == (1, 3 * CHUNK_SIZE, CHUNK_SIZE)
    assert manifest_of(repository, 0).usage() == [(pack, 1, stored, stored)]


def test_largest_disk_with_one_chunk_costs_a_few_pages(repository: Repository) -> None:
    last = layout.PAGED_CHUNKS_MAX - 1
    tracemalloc.start()
    try:
        report = register_sparse(repository, SPARSE_SIZE, {0: chunk(1), last: text(1)})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert (report.chunks, report.zero) == (last + 1, last - 1)
    manifest = manifest_of(repository, 0)
    assert repository.origin.size(layout.manifest_key(manifest.digest)) <= 8 * 4096
    assert [index for index, _ in manifest.entries()] == [0, last]
    assert manifest.has_data(1, last + 1)
    assert not manifest.has_data(1, last)
    assert Verifier(repository).verify().damages == []
    assert register_sparse(repository, SPARSE_SIZE, {0: chunk(1), last: text(1)}).status == (
        "already registered"
    )


@pytest.mark.parametrize("change", ["moved", "less", "more", "other", "smaller"])
def test_other_content_under_the_same_id_is_refused(repository: Repository, change: str) -> None:
    chunks = {5: chunk(1), 100_000: text(1)}
    register_sparse(repository, 1 << 30, chunks)
    size_bytes = 1 << 30
    changed = dict(chunks)
    if change == "moved":
        changed[100_001] = changed.pop(100_000)
    elif change == "less":
        del changed[100_000]
    elif change == "more":
        changed[7] = chunk(3)
    elif change == "other":
        changed[5] = chunk(2)
    else:
        size_bytes -= 512
    packs = sorted(repository.origin.list("packs/"))
    with pytest.raises(exception.ImageRefusedError, match="other content"):
        register_sparse(repository, size_bytes, changed)
    assert sorted(repository.origin.list("packs/")) == packs


def test_marking_reads_no_entries(repository: Repository) -> None:
    content = disk(*range(1, 2100))
    settings = dataclasses.replace(SETTINGS, pack_size=1 << 20)
    register(repository, 0, content, settings)
    manifest = manifest_of(repository, 0)
    size = repository.origin.size(layout.manifest_key(manifest.digest))
    assert size > 100_000
    counting = faulty.FaultyOrigin(repository.origin)
    marked = Marker(Repository(counting, repository.format)).mark()
    assert marked.names == {name.hex() for name in manifest.references()}
    assert len(marked.names) == 1 + len(manifest.packs()) > 8
    assert counting.calls[faulty.Operation.READ] == 1, "header and summary, at once"


def test_spool_that_has_no_room_is_an_error_of_its_kind(repository: Repository) -> None:
    index = native.StoredChunkIndex(CHUNK_SIZE)
    builder = native.DiskBuilder(index)
    builder.push_zeros(3)
    with (
        tempfile.TemporaryFile() as spool,
        open("/dev/full", "r+b", buffering=0) as full,
        pytest.raises(exception.ExhaustedError),
        native.map_errors("writing"),
    ):
        builder.finish(image_id(0), 3 * CHUNK_SIZE, bytes(16), spool.fileno(), full.fileno())


def test_image_that_no_host_would_attach_is_not_registered(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(repository, 0, disk(*range(1, 80)))
    manifest = repository.get_image(image_id(0)).record.manifest
    size = repository.origin.size(layout.manifest_key(manifest))
    monkeypatch.setattr(disk_formats, "SIZE_MAX", size)
    register(repository, 1, disk(*range(1, 80)))
    with pytest.raises(exception.DiskTooLargeError, match=f"hosts take {size} at most"):
        register(repository, 2, disk(*range(1, 200)))
    assert repository.find_image(image_id(2)) is None


@pytest.mark.parametrize("version", [INDEX_VERSION, COMPRESSED_VERSION])
def test_manifest_longer_than_any_is_not_read(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its summary, gigabytes that cost who makes it up next to nothing, would be read whole."""
    counting = faulty.FaultyOrigin(memory.MemoryOrigin())
    repository = open_repository(counting, version)
    register(repository, 0, disk(*range(1, 80)))
    digest = repository.get_image(image_id(0)).record.manifest
    size = repository.origin.size(layout.manifest_key(digest))
    monkeypatch.setattr(disk_manifest, "SIZE_MAX", size)
    assert repository.load_manifest(digest).references()
    monkeypatch.setattr(disk_manifest, "SIZE_MAX", size - 1)
    reads = counting.calls[faulty.Operation.READ]
    with pytest.raises(exception.CorruptError, match="more than any has"):
        repository.load_manifest(digest)
    assert counting.calls[faulty.Operation.READ] == reads


def test_builder_refuses_what_is_no_disk() -> None:
    builder = native.DiskBuilder(native.StoredChunkIndex(CHUNK_SIZE))
    buffer = bytearray(disk(1, 2))
    scan = native.scan_buffer(buffer, CHUNK_SIZE)
    assert builder.absorb(scan) == [0, 1]
    with tempfile.TemporaryFile() as spool, tempfile.TemporaryFile() as file:
        files = spool.fileno(), file.fileno()
        with pytest.raises(native.DataPlaneError, match="no disk"):
            builder.finish(image_id(0), 3 * CHUNK_SIZE, bytes(16), *files)
        with pytest.raises(native.DataPlaneError, match="not closed"):
            builder.finish(image_id(0), 2 * CHUNK_SIZE, bytes(16), *files)
    writer = native.PackWriter(bytearray(1 << 20), CHUNK_SIZE, "image", bytes(16))
    writer.append(native.compress_chunks(scan, buffer, [1]))
    pack, _size, table = writer.seal()
    with pytest.raises(native.DataPlaneError, match="not of the chunks that are new"):
        builder.close_pack(pack, table)
    for count in (1 << 34, layout.PAGED_CHUNKS_MAX - 1):
        with pytest.raises(native.DataPlaneError, match="limit of manifests"):
            builder.push_zeros(count)
    assert len(builder) == 2


def test_volume_shares_the_chunks_of_an_image(repository: Repository) -> None:
    register(repository, 0, disk(1, 2, 3))
    manifest = repository.get_image(image_id(0)).record.manifest
    store = VolumeStore(repository)
    volume = store.create_from_manifest(NewVolume(image_id(1), 4 * CHUNK_SIZE), manifest)
    assert store.get(volume.id).record.manifest == manifest


# Beside version 1


def upgraded(numbers: dict[int, bytes]) -> Repository:
    """Return a repository of version 6 with images from the time when it was of version 5."""
    origin = memory.MemoryOrigin()
    older = open_repository(origin, INDEX_VERSION)
    for number, content in numbers.items():
        register(older, number, content)
    return upgrade.upgrade(origin, COMPRESSED_VERSION)


def test_images_from_before_the_upgrade_stay_as_they_are() -> None:
    repository = upgraded({0: disk(1, 2, 3)})
    record = repository.get_image(image_id(0)).record
    assert isinstance(repository.load_manifest(record.manifest), WholeManifest)
    assert register(repository, 0, disk(1, 2, 3)).status == "already registered"
    assert repository.get_image(image_id(0)).record == record
    for other in (disk(1, 2, 4), disk(1, 2), disk(1, 0, 3), disk(1, 2, 3, 0)):
        with pytest.raises(exception.ImageRefusedError, match="other content"):
            register(repository, 0, other)


def test_chunks_of_version_1_are_not_shared_with_new_images() -> None:
    repository = upgraded({0: disk(1, 2, 3)})
    report = register(repository, 1, disk(1, 2, 4))
    assert report.new == 3
    assert report.manifest == manifest_of(repository, 1).digest
    assert register(repository, 2, disk(1, 2, 5)).new == 1
    for number, content in enumerate([disk(1, 2, 3), disk(1, 2, 4), disk(1, 2, 5)]):
        assert read_back(repository, number) == content
    assert Verifier(repository).verify().damages == []


def test_image_from_before_is_repaired_in_the_new_format() -> None:
    repository = upgraded({0: disk(1, 0, 3)})
    former = repository.get_image(image_id(0)).record
    repository.origin.delete(layout.manifest_key(former.manifest))
    with pytest.raises(exception.ImageRefusedError, match="other content"):
        register(repository, 0, disk(1, 3, 0))
    assert register(repository, 0, disk(1, 0, 3)).status == "repaired"
    record = repository.get_image(image_id(0)).record
    assert record.content == manifest_of(repository, 0).content_name() != former.content
    assert read_back(repository, 0) == disk(1, 0, 3)
    assert register(repository, 0, disk(1, 0, 3)).status == "already registered"


def test_who_opened_the_repository_before_the_upgrade_refuses_no_image_as_another() -> None:
    origin = memory.MemoryOrigin()
    before = open_repository(origin, INDEX_VERSION)
    register(upgrade.upgrade(origin, COMPRESSED_VERSION), 0, disk(1, 0, 3))
    with pytest.raises(exception.UnavailableError, match="upgraded while"):
        register(before, 0, disk(1, 0, 3))
    with pytest.raises(exception.ImageRefusedError, match="other content"):
        register(before, 0, disk(1, 2, 3))
    assert register(Repository.open(origin), 0, disk(1, 0, 3)).status == "already registered"


def test_collection_takes_both_formats() -> None:
    repository = upgraded({0: disk(1, 2), 1: disk(3, 4)})
    register(repository, 2, disk(5, 6))
    register(repository, 3, disk(6, 7))
    for number in (0, 2):
        repository.remove_image(image_id(number))
    for _ in range(3):
        Collector(repository, "host", 0.0, clock=lambda: 1.0).collect()
    assert read_back(repository, 1) == disk(3, 4)
    assert read_back(repository, 3) == disk(6, 7)
    left = {layout.name_of(key) for key in repository.origin.list()} - {None}
    expected = {
        name.hex()
        for image in repository.list_images()
        for name in repository.load_manifest(image.record.manifest).references()
    }
    assert left == expected


def test_cache_remembers_packs_of_both_versions(tmp_path: pathlib.Path) -> None:
    repository = upgraded({0: disk(*range(1, 30))})
    settings = dataclasses.replace(SETTINGS, cache_path=str(tmp_path))
    register(repository, 1, disk(*range(1, 20)), settings)
    counting = faulty.FaultyOrigin(repository.origin)
    report = register(Repository(counting, repository.format), 2, disk(*range(5, 22)), settings)
    assert report.new == 2
    assert counting.calls[faulty.Operation.READ] == 0


def test_upgrade_to_an_older_version_changes_nothing() -> None:
    repository = upgraded({})
    assert upgrade.upgrade(repository.origin, COMPRESSED_VERSION).format == repository.format


# Damage


def replace(repository: Repository, key: str, position: int) -> None:
    """Flip a bit of an object."""
    content = bytearray(repository.origin.get(key, 1 << 24))
    content[position] ^= 1
    repository.origin.delete(key)
    repository.origin.put_if_absent(key, [content])


def damages(repository: Repository) -> list[Damage]:
    return Verifier(repository).verify().damages


def test_damaged_stored_chunk_is_found_in_every_image(repository: Repository) -> None:
    register(repository, 0, text(1) + text(2))
    register(repository, 1, text(3) + text(2))
    entry = manifest_of(repository, 1).entry(1)
    assert entry is not None
    replace(repository, layout.pack_key(entry.pack.hex()), entry.offset)
    found = sorted((damage.image, damage.chunk, damage.offset) for damage in damages(repository))
    assert found == [(image_id(0), 1, entry.offset), (image_id(1), 1, entry.offset)]
    assert register(repository, 0, text(1) + text(2)).status == "already registered"


def test_missing_pack_is_found(repository: Repository) -> None:
    register(repository, 0, disk(1, 2))
    (pack,) = manifest_of(repository, 0).packs()
    repository.origin.delete(layout.pack_key(pack.hex()))
    found = [(damage.chunk, damage.what) for damage in damages(repository)]
    assert found == [(0, "the pack is missing"), (1, "the pack is missing")]


@pytest.mark.parametrize("page", ["header", "summary", "index", "directory", "entries"])
def test_damaged_manifest_page_is_found_and_repaired(repository: Repository, page: str) -> None:
    register(repository, 0, disk(1, 2, 3))
    key = layout.manifest_key(manifest_of(repository, 0).digest)
    pages = ["header", "summary", "index", "directory", "entries"]
    assert repository.origin.size(key) == len(pages) * 4096
    replace(repository, key, pages.index(page) * 4096 + 20)
    (damage,) = damages(repository)
    assert (damage.image, damage.chunk) == (image_id(0), None)
    if page in ("header", "summary"):
        with pytest.raises(exception.CorruptError):
            Collector(repository, "host", 0.0).collect()
    assert register(repository, 0, disk(1, 2, 3)).status == "repaired"
    assert damages(repository) == []
    assert read_back(repository, 0) == disk(1, 2, 3)


@pytest.mark.parametrize("position", [0, 8, 40, 60, 4096])
def test_damaged_pack_is_not_reused(repository: Repository, position: int) -> None:
    register(repository, 0, disk(1, 2, 3))
    (pack,) = manifest_of(repository, 0).packs()
    replace(repository, layout.pack_key(pack.hex()), position)
    if position < 64:
        with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
            read_pack(repository.origin, pack)
        assert register(repository, 1, disk(1, 2)).new == 2
    else:
        assert [damage.chunk for damage in damages(repository)] == [0]


# Deltas, which nobody stores yet


def put_golden(objects: memory.MemoryOrigin, *names: str) -> list[str]:
    expected = json.loads((GOLDEN / "manifest-v2.json").read_text())
    stored = []
    for name in names:
        content = (GOLDEN / f"manifest-v2-{name}.bin").read_bytes()
        stored.append(str(expected[name]["name"]))
        objects.put_if_absent(layout.manifest_key(stored[-1]), [content])
    return stored


def test_delta_refers_to_its_base_and_the_packs_of_both() -> None:
    origin = memory.MemoryOrigin()
    expected = json.loads((GOLDEN / "manifest-v2.json").read_text())
    delta, *_ = put_golden(origin, "delta", "sparse", "dense")
    base = expected["delta"]["base"]
    found = disk_manifest.load_manifest(origin, delta)
    levels = (level for level in expected.values() if isinstance(level, dict))
    both = [level for level in levels if level["name"] in (delta, base)]
    names = {name.hex() for name in found.references()}
    assert names >= {delta, base, *(pack[0] for level in both for pack in level["packs"])}
    assert len(names) == sum(1 + level["pack_count"] for level in both)
    assert found.zero_count == found.chunk_count - len(list(found.entries()))
    for index, what in expected["delta"]["chunks"]:
        if isinstance(what, dict):
            entry = found.entry(index)
            assert entry is not None
            assert entry.digest.hex() == what["digest"]
    found.check()
    assert len(found.unsound(ChunkIndexes(found.chunk_size))) == len(list(found.entries()))
    with pytest.raises(exception.InvalidError, match="delta"):
        found.content_name()


def test_volume_is_made_over_a_delta() -> None:
    origin = memory.MemoryOrigin()
    repository = open_repository(origin, COMPRESSED_VERSION)
    delta, *_ = put_golden(origin, "delta", "sparse", "dense")
    manifest = repository.load_manifest(delta)
    for key in manifest.references().values():
        repository.origin.put_if_absent(key, [b"a pack"])
    store = VolumeStore(repository)
    made = store.create_from_manifest(NewVolume(image_id(1), manifest.size_bytes), delta)
    assert made.record.manifest == delta


def test_collections_that_remember_a_delta_keep_what_it_lies_on() -> None:
    origin = memory.MemoryOrigin()
    repository = open_repository(origin, COMPRESSED_VERSION)
    delta, *_ = put_golden(origin, "delta", "sparse", "dense")
    manifest = repository.load_manifest(delta)
    needed = set(manifest.references().values())
    for key in needed:
        repository.origin.put_if_absent(key, [b"a pack"])
    VolumeStore(repository).create_from_manifest(NewVolume(image_id(1), manifest.size_bytes), delta)
    known = MemoryRememberedPacks()
    reads = []
    for day in range(4):
        collector = Collector(
            repository, "host", 0.0, functools.partial(float, day), remembered=known
        )
        reads.append(collector.collect().manifests_read)
    assert reads == [1, 0, 0, 0]
    assert needed <= set(repository.origin.list())


def test_delta_without_its_base_is_not_there() -> None:
    origin = memory.MemoryOrigin()
    (delta,) = put_golden(origin, "delta")
    with pytest.raises(exception.NotFoundError):
        disk_manifest.load_manifest(origin, delta)


@pytest.mark.parametrize("name", ["sparse", "dense"])
def test_reads_that_fail_are_raised_as_they_are(name: str) -> None:
    origin = memory.MemoryOrigin()
    (digest,) = put_golden(origin, name)

    def failing(offset: int, size: int) -> bytes:
        if offset > 0:
            raise exception.DeadlineError("too late")
        return origin.get_range(layout.manifest_key(digest), offset, size)

    length = origin.size(layout.manifest_key(digest))
    manifest = PagedManifest(digest, length, failing)
    actions: list[Callable[[], object]] = [
        manifest.packs,
        manifest.check,
        lambda: list(manifest.entries()),
        lambda: manifest.unsound(ChunkIndexes(manifest.chunk_size)),
    ]
    for action in actions:
        with pytest.raises(exception.DeadlineError, match="too late"):
            action()
