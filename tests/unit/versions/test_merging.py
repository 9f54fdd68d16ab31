"""Merges: one delta over the base, alpha, duplicates of other hosts, collections beside them."""

import random
from collections.abc import Mapping

import pytest

from acstor import exception
from acstor.origin import memory
from acstor.repository import layout, pack_reader
from acstor.repository.disk_manifest import PagedManifest
from acstor.repository.gc.compaction import Compactor
from acstor.repository.gc.compaction_plan import Limits
from acstor.repository.gc.garbage import Collector
from acstor.repository.pack_reader import DIGEST_SIZE
from acstor.repository.versions import delta_levels
from acstor.repository.versions.captures import Stored
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.versions.merging import Merger, MergeReport, Settings
from acstor.versions.sampled_index import SampledIndex
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register
from tests.unit.repository.versions.captures import NumberedDisk, numbers_of, store_of, take
from tests.unit.repository.versions.records import captured, version_id

BASE = (1, 2, 3, 4, 5, 6, 7, 8)
FIGURE_3 = {1: (1, 2, 31, 4, 35, 36, 7, 8), 2: (1, 2, 31, 4, 45, 36, 47, 8)}
"""Version 1 changes the 3rd, 5th and 6th chunk, version 2 the 5th again and the 7th."""


@pytest.fixture
def store() -> VersionStore:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(*BASE))
    return store_of(repository)


@pytest.fixture
def base(store: VersionStore) -> str:
    return store.repository.get_image(image_id(0)).record.manifest


def figure_3(store: VersionStore, base: str) -> None:
    parent, former = base, None
    for number, numbers in FIGURE_3.items():
        version = version_id(number)
        parent = take(store, number, NumberedDisk(numbers), parent, former=former)
        former = version


def merge(store: VersionStore, number: int, alpha: float = 0.0, group: int = 2) -> MergeReport:
    settings = Settings(alpha=alpha, group_chunks=group, pack_size=4 * CHUNK_SIZE)
    report = Merger(store, settings).merge(version_id(number))
    assert report is not None
    return report


def check(store: VersionStore, contents: Mapping[int, tuple[int, ...]]) -> None:
    """Compare the content of versions, now and after collections."""
    for _ in range(2):
        for number, numbers in contents.items():
            manifest = store.get(version_id(number)).record.manifest
            assert manifest is not None
            found = store.repository.load_manifest(manifest)
            found.check()
            assert numbers_of(store.repository.origin, manifest) == list(numbers)
        for _ in range(3):
            Collector(store.repository, "host", 0.0, clock=lambda: 1.0).collect()


def test_figures_3_and_4_in_a_repository(store: VersionStore, base: str) -> None:
    figure_3(store, base)
    report = merge(store, 2, 0.5)
    assert (report.groups, report.chunks_anew) == (2, 1)
    assert (report.reads_before, report.reads_after) == (3, 2)
    record = store.get(version_id(2)).record
    assert (record.state, record.alpha, record.pending) == (VersionState.MERGED, 0.5, None)
    assert record.manifest is not None
    found = store.repository.load_manifest(record.manifest)
    own = {bytes.fromhex(pack) for pack in record.packs}
    homes = {index + 1: found.entry(index).pack in own for index in (2, 4, 5, 6)}  # type: ignore[union-attr]
    assert homes == {3: True, 5: True, 6: False, 7: True}
    check(store, FIGURE_3)


def test_alpha_0_stores_nothing_and_flattens_the_chain(
    store: VersionStore, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_levels, "SHARE_DIVISOR", 0)
    figure_3(store, base)
    before = set(store.repository.origin.list(layout.PACK_PREFIX))
    report = merge(store, 2)
    assert (report.depth_before, report.depth_after) == (3, 2)
    assert (report.chunks_anew, report.bytes_anew, report.reads_after) == (0, 0, 3)
    assert set(store.repository.origin.list(layout.PACK_PREFIX)) == before
    check(store, FIGURE_3)


def test_alpha_1_leaves_no_jump(store: VersionStore, base: str) -> None:
    figure_3(store, base)
    report = merge(store, 2, 1.0)
    assert (report.chunks_anew, report.reads_after) == (2, 0)
    assert report.bytes_anew >= 2 * CHUNK_SIZE
    store.delete(version_id(1))
    check(store, {2: FIGURE_3[2]})


def test_a_second_merge_changes_nothing(store: VersionStore, base: str) -> None:
    figure_3(store, base)
    merge(store, 2, 1.0)
    manifest = store.get(version_id(2)).record.manifest
    report = merge(store, 2, 1.0)
    assert (report.chunks_anew, report.depth_before) == (0, 2)
    assert store.get(version_id(2)).record.manifest == manifest


def test_versions_may_follow_a_merged_one(store: VersionStore, base: str) -> None:
    figure_3(store, base)
    merge(store, 2, 0.5)
    manifest = store.get(version_id(2)).record.manifest
    assert manifest is not None
    contents = {**FIGURE_3, 3: (9, 2, 31, 0, 45, 36, 47, 8)}
    take(store, 3, NumberedDisk(contents[3]), manifest)
    check(store, contents)
    merge(store, 3, 1.0)
    check(store, contents)


def test_children_of_a_merged_version_keep_what_they_name(store: VersionStore, base: str) -> None:
    figure_3(store, base)
    merge(store, 1, 1.0)
    store.delete(version_id(1))
    check(store, {2: FIGURE_3[2]})


def test_random_chains_keep_their_content(store: VersionStore, base: str) -> None:
    choice = random.Random(11)
    numbers, parent, contents = list(BASE), base, {}
    for number in range(1, 9):
        for _ in range(choice.randint(0, 3)):
            numbers[choice.randrange(len(numbers))] = choice.randint(0, 50)
        parent = take(store, number, NumberedDisk(tuple(numbers)), parent)
        contents[number] = tuple(numbers)
        if choice.random() < 0.5:
            merge(store, number, choice.choice([0, 0.3, 1]), choice.randint(1, 4))
            manifest = store.get(version_id(number)).record.manifest
            assert manifest is not None
            found = store.repository.load_manifest(manifest)
            assert isinstance(found, PagedManifest)
            assert len(found.names) == 2
            parent = choice.choice([parent, manifest])
    check(store, contents)


# Duplicates of other hosts


def index_of(store: VersionStore) -> SampledIndex:
    """Return an index of all packs, in which every chunk is a sample."""
    origin = store.repository.origin

    def load(pack: bytes) -> list[bytes] | None:
        try:
            records = pack_reader.read_pack(origin, pack).table
        except exception.NotFoundError:
            return None
        return [records[at : at + DIGEST_SIZE] for at in range(0, len(records), 44)]

    index = SampledIndex(load, sample_bits=0)
    for key in origin.list(layout.PACK_PREFIX):
        name = layout.name_of(key)
        assert name is not None
        index.add_pack(bytes.fromhex(name), load(bytes.fromhex(name)) or [])
    return index


def test_duplicates_of_other_hosts_are_stored_once(store: VersionStore, base: str) -> None:
    contents = {1: (41, 42, 43, 4, 5, 6, 7, 8), 2: (41, 42, 43, 4, 50, 6, 7, 8)}
    for number, numbers in contents.items():
        bounded = NumberedDisk(numbers)
        take(store, number, bounded, base)
    packs = {store.get(version_id(number)).record.packs for number in contents}
    assert len(packs) == 2
    index = index_of(store)
    settings = Settings(pack_size=4 * CHUNK_SIZE)
    found = [Merger(store, settings, index).merge(version_id(number)) for number in contents]
    assert sorted(report.duplicates for report in found if report) == [0, 3]
    check(store, contents)
    manifests = [
        store.repository.load_manifest(str(store.get(version_id(number)).record.manifest))
        for number in contents
    ]
    for place in range(3):
        entries = {manifest.entry(place) for manifest in manifests}
        assert len(entries) == 1


# Others at work


def test_a_version_that_was_changed_meanwhile_is_left_alone(store: VersionStore, base: str) -> None:
    figure_3(store, base)
    steps: list[int] = []

    def check_step() -> None:
        steps.append(1)
        if len(steps) == 2:
            store.delete(version_id(2))

    settings = Settings(alpha=1.0, group_chunks=2, pack_size=4 * CHUNK_SIZE)
    with pytest.raises(exception.NotFoundError):
        Merger(store, settings, check=check_step).merge(version_id(2))
    check(store, {1: FIGURE_3[1]})


def test_of_two_merges_the_later_one_goes_on(store: VersionStore, base: str) -> None:
    figure_3(store, base)
    other = Merger(store, Settings(alpha=1.0, group_chunks=1, pack_size=CHUNK_SIZE))
    begun: list[int] = []

    def check_room(size: int) -> None:
        begun.append(size)
        if len(begun) == 2:
            assert other.merge(version_id(2)) is not None

    first = Merger(
        store, Settings(alpha=1.0, group_chunks=1, pack_size=CHUNK_SIZE), check_room=check_room
    )
    with pytest.raises(exception.ConflictError):
        first.merge(version_id(2))
    check(store, FIGURE_3)


def test_chunks_of_compacted_packs_are_found(store: VersionStore, base: str) -> None:
    contents = {1: (41, 42, 43, 44, 5, 6, 7, 8), 2: (41, 52, 53, 54, 5, 6, 7, 8)}
    parent = take(store, 1, NumberedDisk(contents[1]), base)
    take(store, 2, NumberedDisk(contents[2]), parent)
    store.delete(version_id(1))
    limits = Limits(dead_share=0.0, live_share_max=0.9)
    for _ in range(3):
        Collector(store.repository, "host", 0.0, clock=lambda: 1.0).collect()
    Compactor(store.repository, "host", limits).compact()
    for _ in range(3):
        Collector(store.repository, "host", 0.0, clock=lambda: 1.0).collect()
    report = merge(store, 2, 1.0)
    assert report.chunks_anew == 1
    check(store, {2: contents[2]})


def test_captures_and_empty_disks_are_not_merged(store: VersionStore) -> None:
    store.begin(version_id(1), captured())
    with pytest.raises(exception.ConflictError, match="captured"):
        Merger(store, Settings()).merge(version_id(1))
    store.commit(version_id(1), "h1", Stored(None))
    assert Merger(store, Settings()).merge(version_id(1)) is None


def test_whole_manifests_are_not_merged(store: VersionStore, base: str) -> None:
    store.begin(version_id(1), captured())
    store.commit(version_id(1), "h1", Stored(base))
    assert Merger(store, Settings()).merge(version_id(1)) is None


def test_full_origins_keep_the_manifest_before(store: VersionStore, base: str) -> None:
    figure_3(store, base)

    def check_room(size: int) -> None:
        raise exception.ExhaustedError("the origin is full")

    merger = Merger(store, Settings(alpha=1.0, group_chunks=2), check_room=check_room)
    before = store.get(version_id(2)).record
    with pytest.raises(exception.ExhaustedError):
        merger.merge(version_id(2))
    assert store.get(version_id(2)).record == before
