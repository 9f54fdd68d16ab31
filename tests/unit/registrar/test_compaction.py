"""Compactions of the registrar: after collections, paced, ended when it leads no more."""

import threading

import pytest

from acstor.conf import loading
from acstor.origin import memory
from acstor.registrar import metrics
from acstor.registrar.collection import GarbageCollection
from acstor.registrar.compaction import PacedCompaction, compaction_of
from acstor.registrar.metrics import RegistrarMetrics
from acstor.repository import moved_packs
from acstor.repository.gc.compaction_plan import Limits
from acstor.repository.repository import COMPRESSED_VERSION, FORMAT_VERSION, Repository
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register

LIMITS = Limits(pack_size=4 * CHUNK_SIZE)


def sparse(version: int = FORMAT_VERSION) -> Repository:
    """Return a repository with a pack of which a quarter is needed."""
    repository = open_repository(memory.MemoryOrigin(), version)
    register(repository, 0, disk(1, 2, 3, 4))
    register(repository, 1, disk(1))
    repository.remove_image(image_id(0))
    return repository


def collect(repository: Repository, compaction: PacedCompaction | None) -> str:
    """Run one collection, and what follows it, to the end; return the metrics."""
    counted, ended = RegistrarMetrics(), threading.Event()
    now = 0.0
    collection = GarbageCollection(
        "here", 60.0, 10.0, counted, None, compaction, ended.set, clock=lambda: now
    )
    now = 100.0
    collection.run_if_due(repository)
    assert ended.wait(30)
    assert collection.problem is None
    return counted.text()


def moved(repository: Repository) -> int:
    return len(list(moved_packs.list_moved(repository.origin)))


def test_packs_are_compacted_after_a_collection() -> None:
    repository = sparse()
    text = collect(repository, PacedCompaction(LIMITS, 0, 0))
    assert moved(repository) == 1
    assert f'{metrics.COMPACTIONS}_total{{outcome="complete"}} 1.0' in text
    assert f"{metrics.COMPACTED_BYTES}_total 0.0" not in text
    assert f"{metrics.COMPACTION_WRITTEN_BYTES}_total 0.0" not in text


@pytest.mark.parametrize("version", [COMPRESSED_VERSION, FORMAT_VERSION])
def test_packs_stay_where_nobody_wants_them_compacted(version: int) -> None:
    repository = sparse(version)
    wanted = version < FORMAT_VERSION
    text = collect(repository, PacedCompaction(LIMITS, 0, 0) if wanted else None)
    assert moved(repository) == 0
    assert f"{metrics.COMPACTIONS}_total{{" not in text


def test_compaction_of_a_registrar_that_leads_no_more_ends() -> None:
    repository = sparse()
    compaction = PacedCompaction(LIMITS, 0, 0)
    compaction.stop()
    text = collect(repository, compaction)
    assert moved(repository) == 0
    assert f'{metrics.COMPACTIONS}_total{{outcome="failed"}} 1.0' in text


def test_configuration_decides() -> None:
    conf = loading.load("test", [])
    assert compaction_of(conf) is not None
    conf.set_override("compact", False, "gc")
    assert compaction_of(conf) is None
