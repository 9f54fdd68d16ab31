"""Copies of repositories in which chunks were moved to other packs."""

import pytest

from acstor.origin import memory
from acstor.repository import layout
from acstor.repository.gc.compaction import Compactor
from acstor.repository.gc.garbage import Collector
from acstor.repository.repository import Repository
from tests.unit.repository.copying.cloud import copy
from tests.unit.repository.images import disk, read_back, register
from tests.unit.repository.test_compaction import KEPT, LIMITS, sparse


@pytest.fixture
def source() -> Repository:
    """Return a repository with one image, which needs a quarter of each of two packs."""
    return sparse(memory.MemoryOrigin())


def compact(repository: Repository) -> None:
    assert Compactor(repository, "a", LIMITS).compact().moved > 0


def collect(repository: Repository) -> None:
    for _ in range(3):
        Collector(repository, "w", 0.0, clock=lambda: 1.0).collect()


def keys(repository: Repository, prefix: str) -> set[str]:
    return set(repository.origin.list(prefix))


@pytest.mark.parametrize("is_restore", [False, True])
@pytest.mark.parametrize("is_collected", [False, True])
def test_copy_has_what_was_moved_and_no_pack_that_it_was_moved_from(
    source: Repository, *, is_collected: bool, is_restore: bool
) -> None:
    former = keys(source, layout.PACK_PREFIX)
    compact(source)
    if is_collected:
        collect(source)
    destination = memory.MemoryOrigin()
    report = copy(source.origin, destination, is_restore=is_restore)
    assert (report.is_complete, report.damages) == (True, {})
    copied = Repository.open(destination)
    assert keys(copied, layout.PACK_PREFIX) == keys(source, layout.PACK_PREFIX) - former
    assert keys(copied, layout.MOVED_PREFIX) == keys(source, layout.MOVED_PREFIX) != set()
    assert read_back(copied, 1) == disk(*KEPT)


def test_former_copy_is_brought_up_to_a_compaction(source: Repository) -> None:
    destination = memory.MemoryOrigin()
    copy(source.origin, destination)
    compact(source)
    collect(source)
    report = copy(source.origin, destination, prunes=True)
    assert (report.is_complete, report.damages) == (True, {})
    copied = Repository.open(destination)
    for prefix in (layout.PACK_PREFIX, layout.MOVED_PREFIX):
        assert keys(copied, prefix) == keys(source, prefix)
    assert read_back(copied, 1) == disk(*KEPT)


def test_packs_of_images_that_were_not_compacted_are_copied_beside(source: Repository) -> None:
    compact(source)
    collect(source)
    register(source, 2, disk(50, 51, 52))
    destination = memory.MemoryOrigin()
    report = copy(source.origin, destination)
    assert (report.is_complete, report.damages, report.images) == (True, {}, 2)
    copied = Repository.open(destination)
    assert read_back(copied, 1) == disk(*KEPT)
    assert read_back(copied, 2) == disk(50, 51, 52)


def test_damaged_list_of_moved_chunks_is_named(source: Repository) -> None:
    compact(source)
    collect(source)
    (key, *_) = sorted(keys(source, layout.MOVED_PREFIX))
    assert isinstance(source.origin, memory.MemoryOrigin)
    source.origin._objects[key] = b"no list"
    report = copy(source.origin, memory.MemoryOrigin())
    (manifest,) = keys(source, layout.MANIFEST_PREFIX)
    assert manifest in report.damages
    assert "moved" in report.damages[manifest].what


def test_packs_stay_whose_copies_are_gone(source: Repository) -> None:
    """A compaction that was stopped before it published a list may do so when they are gone."""
    former = keys(source, layout.PACK_PREFIX)
    compact(source)
    for key in keys(source, layout.PACK_PREFIX) - former:
        source.origin.delete(key)
    destination = memory.MemoryOrigin()
    report = copy(source.origin, destination)
    assert (report.is_complete, report.damages, report.refs_left) == (True, {}, 0)
    copied = Repository.open(destination)
    assert keys(copied, layout.PACK_PREFIX) == former
    assert read_back(copied, 1) == disk(*KEPT)
