"""Estimates of the bytes that restores move, over a repository in memory."""

import dataclasses
import pathlib
from typing import Any

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository.repository import Repository
from acstor.repository.versions.record import Trigger, VersionRecord
from acstor.repository.volumes.log_range import LogRange
from acstor.versions import moved_bytes
from acstor.versions.database.opening import Stores, stores_of
from acstor.versions.database.version_index import IndexedVersion
from acstor.versions.differences import CHUNKS_MAX
from acstor.versions.moved_bytes import Estimate
from acstor.versions.services.compute import Server, server_of
from tests.compliance.databases import DATABASES, new_clock
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, register
from tests.unit.repository.versions.records import HOUR, NOON, SERVER, committed, version_id

BASE, OTHER = image_id(50), image_id(51)
PROJECT = "a project"


@pytest.fixture
def repository() -> Repository:
    return Repository.init(MemoryOrigin(), CHUNK_SIZE)


@pytest.fixture
def stores(tmp_path: pathlib.Path) -> Stores:
    return stores_of(DATABASES["memory"](tmp_path, new_clock()))


def version(repository: Repository, number: int, *chunks: int, **fields: Any) -> VersionRecord:
    """Return the record of a version that has these chunks."""
    content = disk(*chunks)
    manifest = register(repository, number, content).manifest
    return committed(size_bytes=len(content), manifest=manifest, base_image=BASE, **fields)


def stored(repository: Repository, *chunks: int) -> int:
    """Return the bytes that chunks take, each once."""
    number = 1000 + sum(chunk << 8 * place for place, chunk in enumerate(chunks))
    manifest = register(repository, number, disk(*chunks)).manifest
    return sum(entry.stored_size for _, entry in repository.load_manifest(manifest).entries())


def estimated(
    repository: Repository, wanted: VersionRecord, newest: VersionRecord | None = None
) -> Estimate:
    named = None if newest is None else (version_id(7), newest)
    return moved_bytes.estimate(repository, wanted, BASE, named)


def test_what_base_and_newest_version_have_is_not_moved(repository: Repository) -> None:
    register(repository, 50, disk(1, 2, 3, 4))
    wanted = version(repository, 1, 1, 12, 13, 0, 15)
    newest = version(repository, 2, 1, 12, 23, 24, 0)
    found = estimated(repository, wanted, newest)
    assert found.in_place.bytes == stored(repository, 13, 15)
    assert found.in_place.at_most == stored(repository, 12, 13, 15)
    assert found.rebuild == (4 * CHUNK_SIZE, 8 * CHUNK_SIZE)
    assert found.compared_with == version_id(7)


def test_without_a_newest_version_the_base_is_compared(repository: Repository) -> None:
    register(repository, 50, disk(1, 2, 3))
    found = estimated(repository, version(repository, 1, 1, 12, 3))
    assert found.in_place == (stored(repository, 12),) * 2
    assert found.compared_with is None


def test_without_anything_to_compare_all_is_moved(repository: Repository) -> None:
    found = estimated(repository, version(repository, 1, 1, 2, 0))
    assert found.in_place == (stored(repository, 1, 2),) * 2
    assert found.rebuild.bytes == 2 * CHUNK_SIZE


def test_same_content_at_several_places_is_moved_once(repository: Repository) -> None:
    found = estimated(repository, version(repository, 1, 1, 1, 1))
    assert found.in_place.bytes == stored(repository, 1)
    assert found.rebuild.bytes == 3 * CHUNK_SIZE


def test_only_so_many_contents_are_remembered(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acstor.versions.moved_bytes.SEEN_MAX", 1)
    found = estimated(repository, version(repository, 1, 1, 2, 1, 2))
    assert found.in_place.bytes == stored(repository, 1, 2) + stored(repository, 2)


def test_content_at_another_place_is_not_counted_as_local(repository: Repository) -> None:
    register(repository, 50, disk(1, 2))
    found = estimated(repository, version(repository, 1, 2, 1))
    assert found.in_place.bytes == stored(repository, 1, 2)


def test_image_that_is_there_is_not_made_again(repository: Repository) -> None:
    wanted = version(repository, 1, 1, 2, uses=(f"image/{OTHER}",))
    assert estimated(repository, wanted).rebuild == (0, 2 * CHUNK_SIZE)
    used = version(repository, 1, 1, 2, uses=(f"restore/{OTHER}",))
    assert estimated(repository, used).rebuild.bytes == 2 * CHUNK_SIZE


def test_disk_of_zeros_moves_nothing(repository: Repository) -> None:
    empty = committed(size_bytes=4 * CHUNK_SIZE)
    assert estimated(repository, empty) == Estimate(
        moved_bytes.Moved(0, 0), moved_bytes.Moved(0, 0)
    )


def test_version_with_log_objects_is_not_compared(repository: Repository) -> None:
    logs = (LogRange(SERVER, 1, 1, 2),)
    with pytest.raises(exception.UnsupportedError, match="volume"):
        estimated(repository, committed(logs=logs))


def test_disk_of_too_many_chunks_is_not_compared(repository: Repository) -> None:
    large = committed(size_bytes=(CHUNKS_MAX + 1) * CHUNK_SIZE)
    with pytest.raises(exception.UnsupportedError, match="chunks"):
        estimated(repository, large)


SHOWN: Server = dataclasses.replace(
    server_of({"id": SERVER, "status": "ACTIVE"}), image=BASE, root_device="vda"
)


def put(stores: Stores, number: int, **fields: Any) -> str:
    known = {"base_image": BASE, "created_at": NOON + number * HOUR}
    record = committed(**{**known, **fields})
    stores.versions.put(IndexedVersion.of(version_id(number), record))
    return version_id(number)


def test_newest_version_of_the_disk_is_taken(stores: Stores) -> None:
    put(stores, 1)
    newest = put(stores, 2)
    put(stores, 3, project="another")
    found = moved_bytes.newest_version(stores.versions, PROJECT, SHOWN, "vda")
    assert found is not None
    assert found.id == newest
    assert moved_bytes.newest_version(stores.versions, PROJECT, SHOWN, "vdb") is None


@pytest.mark.parametrize(
    "fields", [{"trigger": Trigger.RESTORE}, {"trigger": Trigger.REBUILD}, {"base_image": OTHER}]
)
def test_version_before_the_disk_was_exchanged_tells_nothing(
    stores: Stores, fields: dict[str, Any]
) -> None:
    put(stores, 1)
    put(stores, 2, **fields)
    assert moved_bytes.newest_version(stores.versions, PROJECT, SHOWN, "vda") is None
