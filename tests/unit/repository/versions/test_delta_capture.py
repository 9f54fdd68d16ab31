"""Deltas of versions: what is compared, found and stored, and chains that stay flat."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acstor import exception
from acstor.origin import memory
from acstor.repository import layout
from acstor.repository.disk_manifest import DEPTH_MAX, PagedManifest
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import INDEX_VERSION, VERSIONS_VERSION, Repository
from acstor.repository.source.base import Extent
from acstor.repository.upgrade import upgrade
from acstor.repository.versions import delta_chunks, delta_levels
from acstor.repository.versions.changed_disk import on_chunk_grid
from acstor.repository.versions.delta_capture import DeltaCapture, DeltaRequest, Settings
from acstor.repository.versions.delta_levels import Level, levels_to_take_in
from acstor.repository.versions.known_chunks import KnownChunks
from acstor.repository.versions.record import DeltaCounts
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.repository.versions.whole_capture import BytesDisk, WholeCapture, WholeRequest
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register
from tests.unit.repository.versions.captures import (
    SETTINGS,
    NumberedDisk,
    numbers_of,
    store_of,
    take,
)
from tests.unit.repository.versions.records import SERVER, captured, version_id

BASE = (1, 2, 3, 4, 5, 6, 0, 0)
ID = version_id(1)


@pytest.fixture
def store() -> VersionStore:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(*BASE))
    return store_of(repository)


@pytest.fixture
def base(store: VersionStore) -> str:
    return manifest_of(store.repository)


def manifest_of(repository: Repository) -> str:
    return repository.get_image(image_id(0)).record.manifest


def delta_of(store: VersionStore, number: int = 1) -> DeltaCounts:
    counts = store.get(version_id(number)).record.delta
    assert counts is not None
    return counts


def packs(store: VersionStore) -> int:
    return len(list(store.repository.origin.list(layout.PACK_PREFIX)))


def test_only_what_is_new_is_stored(store: VersionStore, base: str) -> None:
    changed = NumberedDisk((1, 2, 20, 4, 21, 6, 0, 22))
    manifest = take(store, 1, changed, base)
    assert numbers_of(store.repository.origin, manifest) == list(changed.numbers)
    counts = delta_of(store)
    assert (counts.changed_chunks, counts.stored_chunks, counts.reappeared_chunks) == (3, 3, 0)
    assert (counts.stored_bytes, counts.shared_bytes) == (3 * CHUNK_SIZE, 0)
    record = store.get(ID).record
    assert (record.state, record.pending) == (VersionState.COMMITTED, None)
    assert len(record.packs) == 1


def test_a_changed_set_spares_reading_the_rest(store: VersionStore, base: str) -> None:
    changed = NumberedDisk((1, 2, 20, 4, 5, 6, 0, 0), changed=[2, 4])
    manifest = take(store, 1, changed, base)
    assert changed.scanned == 2
    assert numbers_of(store.repository.origin, manifest) == list(changed.numbers)
    assert delta_of(store).changed_chunks == 1


@pytest.mark.parametrize("has_holes", [False, True])
def test_zeros_are_said_where_the_parent_has_content(
    store: VersionStore, base: str, has_holes: bool
) -> None:
    changed = NumberedDisk((0, 2, 0, 0, 5, 6, 0, 0), has_holes=has_holes)
    manifest = take(store, 1, changed, base)
    assert numbers_of(store.repository.origin, manifest) == list(changed.numbers)
    assert (delta_of(store).changed_chunks, delta_of(store).stored_chunks) == (3, 0)


def test_moved_chunks_are_found_in_the_base(store: VersionStore, base: str) -> None:
    changed = NumberedDisk((2, 1, 3, 4, 5, 6, 6, 6))
    before = packs(store)
    manifest = take(store, 1, changed, base)
    assert numbers_of(store.repository.origin, manifest) == list(changed.numbers)
    counts = delta_of(store)
    assert (counts.changed_chunks, counts.stored_chunks, counts.reappeared_chunks) == (4, 0, 3)
    assert (counts.stored_bytes, counts.shared_bytes) == (0, 3 * CHUNK_SIZE)
    assert packs(store) == before


def test_what_reappears_after_two_versions_is_not_stored_twice(
    store: VersionStore, base: str
) -> None:
    """CloudVS stores a chunk again that version i has, i + 1 has not, and i + 2 has."""
    first = take(store, 1, NumberedDisk((20, 21, 3, 4, 5, 6, 0, 0)), base)
    second = take(store, 2, NumberedDisk((20, 22, 3, 4, 5, 6, 0, 0)), first)
    take(store, 3, NumberedDisk((20, 21, 3, 4, 5, 6, 0, 0)), second)
    counts = delta_of(store, 3)
    assert (counts.changed_chunks, counts.stored_chunks, counts.reappeared_chunks) == (1, 0, 1)


def test_a_chunk_that_comes_twice_is_stored_once(store: VersionStore, base: str) -> None:
    take(store, 1, NumberedDisk((20, 20, 3, 20, 5, 6, 0, 0)), base)
    assert (delta_of(store).changed_chunks, delta_of(store).stored_chunks) == (3, 1)


def test_disks_of_one_moment_share_what_they_have_in_common(store: VersionStore, base: str) -> None:
    """CloudVS, Figure 5: nine changed chunks of three VMs, of which seven are stored."""
    known = KnownChunks(store.repository.origin, CHUNK_SIZE)
    disks = {1: (20, 2, 9, 4, 5, 21), 2: (1, 22, 9, 4, 5, 6), 3: (1, 2, 9, 23, 24, 25)}
    for number, numbers in disks.items():
        manifest = take(store, number, NumberedDisk((*numbers, 0, 0)), base, known)
        assert numbers_of(store.repository.origin, manifest) == [*numbers, 0, 0]
    counts = [delta_of(store, number) for number in disks]
    assert sum(one.changed_chunks for one in counts) == 9
    assert sum(one.stored_chunks for one in counts) == 7
    assert sum(one.reappeared_chunks for one in counts) == 0


def test_packs_of_other_disks_of_the_base_are_looked_through(
    store: VersionStore, base: str
) -> None:
    take(store, 1, NumberedDisk((20, 21, 3, 4, 5, 6, 0, 0)), base)
    store.begin(version_id(2), captured(size_bytes=len(BASE) * CHUNK_SIZE))
    siblings = tuple(bytes.fromhex(pack) for pack in store.get(ID).record.packs)
    changed = NumberedDisk((1, 20, 22, 4, 5, 6, 0, 0))
    request = DeltaRequest(version_id(2), "h1", changed, SERVER, base, siblings=siblings)
    stored = DeltaCapture(store, SETTINGS).store(request)
    assert stored.delta is not None
    counts = stored.delta
    assert (counts.changed_chunks, counts.stored_chunks, counts.reappeared_chunks) == (2, 1, 0)
    assert stored.manifest is not None
    assert numbers_of(store.repository.origin, stored.manifest) == list(changed.numbers)


def test_a_disk_may_grow_and_not_shrink(store: VersionStore, base: str) -> None:
    grown = NumberedDisk((*BASE, 30, 0, 31))
    manifest = take(store, 1, grown, base)
    assert numbers_of(store.repository.origin, manifest) == list(grown.numbers)
    with pytest.raises(exception.InvalidError, match="fewer than"):
        take(store, 2, NumberedDisk(BASE), manifest)


def test_an_unchanged_disk_is_a_header(store: VersionStore, base: str) -> None:
    manifest = take(store, 1, NumberedDisk(BASE), base)
    assert store.repository.origin.size(layout.manifest_key(manifest)) == 4096
    assert numbers_of(store.repository.origin, manifest) == list(BASE)


# Chains


@pytest.mark.parametrize("divisor", [delta_levels.SHARE_DIVISOR, 0])
def test_chains_are_merged_past_depth_3(
    store: VersionStore, base: str, divisor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ACStor, §3.7.1; also where no level is taken in for its size."""
    monkeypatch.setattr(delta_levels, "SHARE_DIVISOR", divisor)
    choice = random.Random(3)
    numbers, parent, depths = list(BASE), base, []
    for number in range(1, 16):
        numbers[choice.randrange(len(numbers))] = choice.randint(0, 50)
        parent = take(store, number, NumberedDisk(numbers), parent)
        found = store.repository.load_manifest(parent)
        assert isinstance(found, PagedManifest)
        assert found.names[-1] == base
        found.check()
        depths.append(len(found.names))
        assert numbers_of(store.repository.origin, parent) == numbers
    assert set(depths) <= {2, 3}
    assert max(depths) == (2 if divisor else DEPTH_MAX)


def levels(*pages: int) -> list[Level]:
    return [Level(str(number), count) for number, count in enumerate(pages)]


@pytest.mark.parametrize(
    ("pages", "chain", "taken"),
    [
        (10, (1000,), 0),
        (10, (80, 1000), 0),
        (10, (20, 1000), 1),
        (10, (20, 1000, 100_000), 1),
        (100, (100, 1000, 100_000), 2),
        (10_000, (100, 1000, 50_000), 2),
        (10_000, (5,), 0),
    ],
)
def test_small_deltas_lie_on_top_and_the_base_stays(
    pages: int, chain: tuple[int, ...], taken: int
) -> None:
    """As ``crates/manifest`` has it, but for the last level."""
    assert levels_to_take_in(pages, levels(*chain)) == taken


def test_every_version_of_a_chain_is_read_for_ever(store: VersionStore, base: str) -> None:
    contents, parent = {}, base
    for number in range(1, 8):
        numbers = [number + 10, *BASE[1:7], number + 20]
        parent = take(store, number, NumberedDisk(numbers), parent)
        contents[number] = (parent, numbers)
    for number in (2, 3, 5):
        store.delete(version_id(number))
        del contents[number]
    for _ in range(3):
        Collector(store.repository, "host", 0.0, clock=lambda: 1.0).collect()
    for manifest, numbers in contents.values():
        assert numbers_of(store.repository.origin, manifest) == numbers


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 11), st.integers(0, 30)), max_size=6),
        min_size=1,
        max_size=6,
    )
)
def test_random_edits_give_the_disks_that_were_taken(
    edits: list[list[tuple[int, int]]],
) -> None:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(*BASE, 0, 0, 0, 7))
    store, numbers = store_of(repository), [*BASE, 0, 0, 0, 7]
    parent = manifest_of(repository)
    for number, changes in enumerate(edits, 1):
        for index, content in changes:
            numbers[index] = content
        changed = NumberedDisk(tuple(numbers), sorted({index for index, _ in changes}), True)
        parent = take(store, number, changed, parent)
        assert numbers_of(repository.origin, parent) == numbers


# Refused, lost, bounded


def test_manifests_of_version_1_have_no_deltas() -> None:
    repository = open_repository(memory.MemoryOrigin(), INDEX_VERSION)
    register(repository, 0, disk(*BASE))
    upgraded = upgrade(repository.origin)
    assert upgraded.format.version >= VERSIONS_VERSION
    with pytest.raises(exception.UnsupportedError, match="of version 1"):
        take(store_of(upgraded), 1, NumberedDisk(BASE), manifest_of(upgraded))


def test_chunks_that_a_collection_took_are_stored_again(store: VersionStore, base: str) -> None:
    first = take(store, 1, NumberedDisk((20, 2, 3, 4, 5, 6, 0, 0)), base)
    pack = bytes.fromhex(store.get(ID).record.packs[0])
    known = KnownChunks(store.repository.origin, CHUNK_SIZE)
    known.add_packs(store.repository.load_manifest(first).packs())
    store.delete(ID)
    store.repository.origin.delete(layout.pack_key(pack.hex()))
    manifest = take(store, 2, NumberedDisk((1, 20, 3, 4, 5, 6, 0, 0)), base, known)
    assert numbers_of(store.repository.origin, manifest) == [1, 20, 3, 4, 5, 6, 0, 0]


def test_a_capture_that_was_given_up_stores_nothing_more(store: VersionStore, base: str) -> None:
    store.begin(ID, captured())
    store.abandon(ID)
    request = DeltaRequest(ID, "h1", NumberedDisk((9, *BASE[1:])), SERVER, base)
    before = packs(store)
    with pytest.raises(exception.NotFoundError):
        DeltaCapture(store, SETTINGS).store(request)
    assert packs(store) == before


def test_too_many_changes_are_no_delta(
    store: VersionStore, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_chunks, "CHANGED_CHUNKS_MAX", 2)
    with pytest.raises(exception.ExhaustedError, match="more than 2 chunks"):
        take(store, 1, NumberedDisk((20, 21, 22, 4, 5, 6, 0, 0)), base)


def test_known_chunks_are_bounded(store: VersionStore, base: str) -> None:
    known = KnownChunks(store.repository.origin, CHUNK_SIZE, 4)
    known.add_packs(store.repository.load_manifest(base).packs())
    assert known.packs_left_out == 1
    assert known.memory_bytes < 1 << 20
    bounded = Settings(pack_size=4 * CHUNK_SIZE, workers=0, known_chunks_max=0)
    take(store, 1, NumberedDisk((2, 1, 3, 4, 5, 6, 0, 0)), base, settings=bounded)
    assert delta_of(store).stored_chunks == 2


def test_condemned_packs_are_not_relied_on(store: VersionStore, base: str) -> None:
    first = take(store, 1, NumberedDisk((20, 2, 3, 4, 5, 6, 0, 0)), base)
    needed = store.repository.load_manifest(first).packs()
    store.delete(ID)
    Collector(store.repository, "host", 1e9, clock=lambda: 1.0).collect()
    known = KnownChunks(store.repository.origin, CHUNK_SIZE)
    known.add_packs(needed)
    assert known.packs_left_out == 1


# Whole disks, and what is beside a disk


def test_a_disk_without_a_parent_is_stored_whole(store: VersionStore) -> None:
    numbers = (7, 7, 0, 8, 9)
    store.begin(ID, captured())
    request = WholeRequest(ID, "h1", NumberedDisk(numbers, has_holes=True), SERVER)
    stored = WholeCapture(store, 4 * CHUNK_SIZE, workers=0).store(request)
    store.commit(ID, "h1", stored)
    assert stored.manifest is not None
    assert numbers_of(store.repository.origin, stored.manifest) == list(numbers)
    assert stored.delta is not None
    assert (stored.delta.changed_chunks, stored.delta.stored_chunks) == (4, 3)
    child = take(store, 2, NumberedDisk((7, 7, 1, 8, 9)), stored.manifest)
    assert numbers_of(store.repository.origin, child) == [7, 7, 1, 8, 9]


def test_a_gap_is_no_whole_disk(store: VersionStore) -> None:
    store.begin(ID, captured())
    for changed in ([1], [0], [0, 2]):
        request = WholeRequest(ID, "h1", NumberedDisk((1, 2, 3), changed), SERVER)
        with pytest.raises(exception.InternalError, match="nothing is known"):
            WholeCapture(store, 4 * CHUNK_SIZE, workers=0).store(request)


def test_uefi_variables_are_kept_with_a_version(store: VersionStore, base: str) -> None:
    store.begin(ID, captured(size_bytes=len(BASE) * CHUNK_SIZE))
    variables = b"boot order" * 1000
    request = WholeRequest(ID, "h1", BytesDisk(variables), SERVER)
    part = WholeCapture(store, 4 * CHUNK_SIZE, workers=0).store(request)
    store.note_part(ID, "h1", nvram=part.manifest)
    stored = DeltaCapture(store, SETTINGS).store(
        DeltaRequest(ID, "h1", NumberedDisk((9, *BASE[1:])), SERVER, base)
    )
    store.commit(ID, "h1", stored)
    for _ in range(3):
        Collector(store.repository, "host", 0.0, clock=lambda: 1.0).collect()
    record = store.get(ID).record
    assert (record.nvram, record.vtpm) == (part.manifest, None)
    assert record.nvram is not None
    found = store.repository.load_manifest(record.nvram)
    assert found.size_bytes == -(-len(variables) // 512) * 512
    assert all(store.repository.origin.exists(key) for key in found.references().values())


def test_what_is_beside_a_disk_is_small() -> None:
    for size in (0, (64 << 20) + 1):
        with pytest.raises(exception.InvalidError, match="beside a disk"):
            BytesDisk(bytes(size))


# The grid


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=8),
    st.integers(1, 4),
)
def test_grid_reads_every_chunk_that_may_have_changed(
    steps: list[tuple[int, int, bool]], chunk_size: int
) -> None:
    extents, position = [], 0
    for gap, length, is_zero in steps:
        extents.append(Extent(position + gap, position + gap + length, is_zero))
        position += gap + length
    found = list(on_chunk_grid(extents, chunk_size, position))
    kinds = dict.fromkeys(range(position + chunk_size), "")
    for extent in found:
        assert extent.start % chunk_size == extent.end % chunk_size == 0
        for byte in range(extent.start, min(extent.end, position)):
            assert not kinds[byte]
            kinds[byte] = "zero" if extent.is_zero else "data"
    for extent in extents:
        for byte in range(extent.start, extent.end):
            assert kinds[byte] == "data" or (extent.is_zero and kinds[byte] == "zero")
    for extent in found:
        assert extent.is_zero or any(
            one.start < extent.end and extent.start < one.end for one in extents
        )


def test_unordered_changes_are_refused() -> None:
    for extents in (
        [Extent(5, 6, False), Extent(0, 1, False)],
        [Extent(0, 5, False), Extent(4, 6, False)],
        [Extent(0, 11, False)],
    ):
        with pytest.raises(exception.InternalError, match="out of order"):
            list(on_chunk_grid(extents, 4, 10))
