"""Packs remembered between collections: both ways of keeping them, files that are bad, marking."""

import contextlib
import os
import pathlib
import sqlite3
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.origin.faulty import FaultyOrigin, Operation
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.gc.garbage import Collector, Report
from acstor.repository.gc.remembered_packs import (
    CACHE_VERSION,
    FileRememberedPacks,
    MemoryRememberedPacks,
    RememberedPacks,
    remembered,
)
from acstor.repository.repository import Repository
from tests.unit.repository.images import disk, image_id, open_repository, read_back, register

A, B, C = ("aa" * 32, "bb" * 32, "cc" * 32)

Opening = Callable[[], contextlib.AbstractContextManager[RememberedPacks]]


@pytest.fixture(params=["memory", "file"])
def opening(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Opening:
    """Return how to go on with what was remembered before."""
    if request.param == "memory":
        kept = MemoryRememberedPacks()
        return lambda: contextlib.nullcontext(kept)
    return lambda: FileRememberedPacks(str(tmp_path / "cache/marks"))


def test_what_was_added_is_found_until_it_is_not_retained(opening: Opening) -> None:
    with opening() as known:
        assert known.find(A) is None
        known.add(A, [B, C])
        known.add(B, [])
        known.add(C, [A])
    with opening() as known:
        assert [list(known.find(name) or ()) for name in (A, B, C)] == [[B, C], [], [A]]
        assert known.find(B) is not None
        known.retain({A, B})
        assert known.find(C) is None
    with opening() as known:
        assert known.find(C) is None
        assert list(known.find(A) or ()) == [B, C]


def test_second_collection_reads_only_new_manifests(opening: Opening) -> None:
    origin = FaultyOrigin(MemoryOrigin())
    repository = open_repository(origin)
    for number in range(4):
        register(repository, number, disk(number, number + 1))
    assert collect(repository, opening).manifests_read == 4
    register(repository, 4, disk(7, 8))
    reads = origin.calls[Operation.READ]
    report = collect(repository, opening)
    assert report.manifests_read == 1
    assert origin.calls[Operation.READ] - reads < 4
    assert collect(repository, opening).manifests_read == 0
    for number in range(4):
        assert read_back(repository, number) == disk(number, number + 1)


def collect(repository: Repository, opening: Opening, now: float = 1.0) -> Report:
    with opening() as known:
        return Collector(repository, "host", 0.0, lambda: now, remembered=known).collect()


def test_garbage_is_collected_all_the_same(opening: Opening) -> None:
    repository = open_repository(MemoryOrigin())
    register(repository, 0, disk(1, 2, 3))
    register(repository, 1, disk(3, 4, 5))
    collect(repository, opening)
    repository.remove_image(image_id(0))
    assert collect(repository, opening, 2.0).condemned == 1  # the manifest: its pack is shared
    assert collect(repository, opening, 3.0).deleted == 1
    assert read_back(repository, 1) == disk(3, 4, 5)
    repository.remove_image(image_id(1))
    collect(repository, opening, 4.0)
    collect(repository, opening, 5.0)
    assert list(repository.origin.list()) == [layout.FORMAT_KEY]


def test_remembered_manifest_that_is_gone_still_stops_a_collection(opening: Opening) -> None:
    repository = open_repository(MemoryOrigin())
    register(repository, 0, disk(1, 2))
    collect(repository, opening)
    record = repository.get_image(image_id(0)).record
    repository.origin.delete(layout.manifest_key(record.manifest))
    with pytest.raises(exception.CorruptError, match="missing, nothing was collected"):
        collect(repository, opening)


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 4096])
def test_file_that_is_no_database_is_begun_anew(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "marks"
    path.write_bytes(content)
    with FileRememberedPacks(str(path)) as known:
        known.add(A, [B])
    with FileRememberedPacks(str(path)) as known:
        assert known.find(A) == [B]


def test_file_of_another_version_is_begun_anew(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "marks"
    with FileRememberedPacks(str(path)) as known:
        known.add(A, [B])
    change(path, f"PRAGMA user_version = {CACHE_VERSION + 1}")
    with FileRememberedPacks(str(path)) as known:
        assert known.find(A) is None
        known.add(A, [C])
        assert known.find(A) == [C]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE manifest SET packs = x'" + C + "'",
        "UPDATE manifest SET packs = x'00'",
        "UPDATE manifest SET packs = x''",
        "UPDATE manifest SET digest = x'" + C + "'",
        "UPDATE manifest SET checksum = x'00'",
    ],
)
def test_damaged_record_is_not_believed(tmp_path: pathlib.Path, damage: str) -> None:
    path = tmp_path / "marks"
    with FileRememberedPacks(str(path)) as known:
        known.add(A, [B])
    change(path, damage)
    with FileRememberedPacks(str(path)) as known:
        assert known.find(A) is None
        assert known.find(C) is None


def change(path: pathlib.Path, statement: str) -> None:
    database = sqlite3.connect(path)
    database.execute(statement)
    database.commit()
    database.close()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_file_that_others_may_write_is_begun_anew(tmp_path: pathlib.Path, mode: int) -> None:
    path = tmp_path / "marks"
    with FileRememberedPacks(str(path)) as known:
        known.add(A, [B])
    path.chmod(mode)
    with FileRememberedPacks(str(path)) as known:
        assert known.find(A) is None
    assert path.stat().st_mode & 0o777 == 0o600


def test_directory_that_others_may_write_is_done_without(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o777)
    with FileRememberedPacks(str(tmp_path / "marks")) as known:
        known.add(A, [B])
        assert known.find(A) is None


def test_link_is_not_followed(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"somebody's")
    os.symlink(target, tmp_path / "marks")
    with FileRememberedPacks(str(tmp_path / "marks")) as known:
        known.add(A, [B])
        assert known.find(A) == [B]
    assert target.read_bytes() == b"somebody's"


def test_file_locked_by_another_collection_is_done_without(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acstor.repository.gc.remembered_packs._BUSY_TIMEOUT_S", 0.0)
    path = str(tmp_path / "marks")
    with FileRememberedPacks(path) as first:
        first.add(A, [B])
        with FileRememberedPacks(path) as second:
            second.add(C, [B])
            assert second.find(C) is None
    with FileRememberedPacks(path) as known:
        assert known.find(A) == [B]


def test_repositories_have_a_file_each(tmp_path: pathlib.Path) -> None:
    first, second = (open_repository(MemoryOrigin()) for _ in range(2))
    with remembered(str(tmp_path), first) as known:
        known.add(A, [B])
    with remembered(str(tmp_path), second) as known:
        assert known.find(A) is None
    with remembered(None, first) as known:
        assert known.find(A) is None
