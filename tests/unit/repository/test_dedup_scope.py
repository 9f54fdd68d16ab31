"""Scopes: chunks of the same content have one name in one scope, and another in each other."""

import dataclasses
import json
import pathlib
import uuid
from typing import Any

import pytest

from acstor import exception, native
from acstor.origin import memory
from acstor.repository import layout
from acstor.repository.dedup_scope import DedupScope, canonical_project, check_scope
from acstor.repository.gc.garbage import Collector
from acstor.repository.images import registration
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.repository import COMPRESSED_VERSION, INDEX_VERSION, Format, Repository
from acstor.repository.upgrade import upgrade
from acstor.repository.verification import Verifier
from tests.unit.repository.images import (
    CHUNK_SIZE,
    SETTINGS,
    disk,
    image_id,
    open_repository,
    read_back,
)
from tests.unit.repository.memory_source import MemorySource

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
ONE, OTHER = "0f9d8c7b6a594837a6b5c4d3e2f10918", "e2b5a1c07f3d4c9a8b6e5d4c3b2a1908"


@pytest.fixture(params=[INDEX_VERSION, COMPRESSED_VERSION], ids=["plain", "compressed"])
def repository(request: pytest.FixtureRequest) -> Repository:
    return open_repository(memory.MemoryOrigin(), request.param)


def register(
    repository: Repository, number: int, content: bytes, scope: str | None
) -> registration.Report:
    source = MemorySource(content)
    request = registration.Request(image_id(number), "an image", source, "raw", None, scope)
    return registration.Registrar(repository, SETTINGS).register(request)


def digests(repository: Repository, number: int) -> set[bytes]:
    record = repository.get_image(image_id(number)).record
    manifest = repository.load_manifest(record.manifest)
    entries = (manifest.entry(index) for index in range(manifest.chunk_count))
    return {entry[0] for entry in entries if entry is not None}


def test_scoped_digest_version_1_requires_update() -> None:
    golden = json.loads((GOLDEN / "scoped-digest-v1.json").read_text())
    assert golden["version"] == 1
    vectors = [vector for vector in golden["vectors"] if vector["size"]]
    for vector in vectors:
        content = bytes([vector["byte"]]) * vector["size"]
        scoped = native.scan_buffer(content, vector["size"], vector["scope"])
        plain = native.scan_buffer(content, vector["size"])
        assert scoped.digests().hex() == vector["digest"]
        assert plain.digests().hex() == vector["plain"]
        for names in (scoped, plain):
            assert native.unsound_chunks(content, vector["size"], names.digests()) == []
    assert len(vectors) == 6


def test_file_is_scanned_in_a_scope_as_a_buffer_is(tmp_path: pathlib.Path) -> None:
    content = disk(1, 0, 2)
    (tmp_path / "disk").write_bytes(content)
    buffer = bytearray(len(content))
    with (tmp_path / "disk").open("rb") as file:
        found = native.scan_file(file.fileno(), 0, len(content), buffer, CHUNK_SIZE, ONE)
    wanted = native.scan_buffer(content, CHUNK_SIZE, ONE).digests()
    assert found.digests() == wanted
    assert found.digests() != native.scan_buffer(content, CHUNK_SIZE, OTHER).digests()
    assert wanted[32:64] == bytes(32), "zeros have no name"


def test_chunks_that_are_not_what_their_names_say_are_found() -> None:
    content = disk(1, 2, 0, 3, 4)
    names = bytearray(native.scan_buffer(content, CHUNK_SIZE, ONE).digests())
    names[32:64] = native.scan_buffer(disk(2), CHUNK_SIZE).digests()
    assert native.unsound_chunks(content, CHUNK_SIZE, names) == []
    names[96] ^= 1
    damaged = bytearray(content)
    damaged[2 * CHUNK_SIZE] = damaged[4 * CHUNK_SIZE + 7] = damaged[CHUNK_SIZE] = 250
    assert native.unsound_chunks(content, CHUNK_SIZE, names) == [3]
    assert native.unsound_chunks(damaged, CHUNK_SIZE, names) == [1, 2, 3, 4]
    with pytest.raises(native.DataPlaneError, match="one digest for each chunk"):
        native.unsound_chunks(content, CHUNK_SIZE, names[32:])


def test_two_projects_share_no_chunk_and_one_project_does(repository: Repository) -> None:
    content = disk(1, 2, 0, 3)
    reports = [
        register(repository, number, content, scope)
        for number, scope in enumerate((ONE, OTHER, None, ONE, OTHER, None))
    ]
    assert [report.new for report in reports] == [3, 3, 3, 0, 0, 0]
    assert [report.unique for report in reports] == [3] * 6
    names = [digests(repository, number) for number in range(6)]
    assert names[:3] == names[3:]
    assert len(names[0] | names[1] | names[2]) == 9
    assert all(read_back(repository, number) == content for number in range(6))
    assert repository.get_image(image_id(0)).record.dedup_scope == ONE


def test_what_two_projects_have_costs_its_room_twice(repository: Repository) -> None:
    public = disk(1, 2, 3, 4, 5, 6)
    whole = register(repository, 0, public, None).bytes_stored
    for number, project in enumerate((ONE, OTHER), 1):
        assert register(repository, number, public, project).bytes_stored == whole
    # Of a public image and changed a little: no less than the whole of it, once.
    assert register(repository, 3, disk(1, 2, 3, 4, 5, 7), "a third").bytes_stored == whole
    changed = register(repository, 4, disk(1, 2, 3, 4, 5, 8), "a third")
    assert (changed.new, changed.packs) == (1, 1)


def test_damaged_chunks_of_scopes_are_found_and_sound_ones_are_not(repository: Repository) -> None:
    for number, scope in enumerate((ONE, OTHER, None)):
        register(repository, number, disk(1, 2, 3), scope)
    assert Verifier(repository).verify().damages == []
    record = repository.get_image(image_id(1)).record
    entry = repository.load_manifest(record.manifest).entry(1)
    assert entry is not None
    key = layout.pack_key(entry[1].hex())
    content = bytearray(repository.origin.get(key, 1 << 20))
    content[entry[2]] ^= 1
    repository.origin.delete(key)
    repository.origin.put_if_absent(key, [content])
    (damage,) = Verifier(repository).verify().damages
    assert (damage.image, damage.chunk) == (image_id(1), 1)


def test_collection_of_one_projects_chunks_leaves_those_of_others(repository: Repository) -> None:
    for number, scope in enumerate((ONE, OTHER, None)):
        register(repository, number, disk(1, 2, 3), scope)
    repository.remove_image(image_id(0))
    now = [1000.0]
    for _ in range(4):
        Collector(repository, "a", 60.0, lambda: now[0]).collect()
        now[0] += 1000
    packs = list(repository.origin.list(layout.PACK_PREFIX))
    assert len(packs) == 2
    assert Verifier(repository).verify().damages == []
    assert [read_back(repository, number) for number in (1, 2)] == [disk(1, 2, 3)] * 2


@pytest.mark.parametrize(("before", "after"), [(None, ONE), (ONE, None), (ONE, OTHER)])
def test_registered_image_keeps_its_names(
    repository: Repository, before: str | None, after: str | None
) -> None:
    register(repository, 0, disk(1, 2, 3), before)
    names = digests(repository, 0)
    assert register(repository, 0, disk(1, 2, 3), after).status == "already registered"
    with pytest.raises(exception.ImageRefusedError, match="other content"):
        register(repository, 0, disk(1, 2, 4), after)
    for key in list(repository.origin.list(layout.PACK_PREFIX)):
        repository.origin.delete(key)
    assert register(repository, 0, disk(1, 2, 3), after).status == "repaired"
    assert digests(repository, 0) == names
    assert repository.get_image(image_id(0)).record.dedup_scope == before


def test_scope_needs_a_repository_that_older_releases_refuse() -> None:
    older = memory.MemoryOrigin()
    older.put_if_absent("format", [Format(str(uuid.uuid4()), CHUNK_SIZE, version=3).encode()])
    repository = Repository.open(older)
    register(repository, 0, disk(1), None)
    with pytest.raises(exception.UnsupportedError, match="needs 4") as refused:
        register(repository, 1, disk(1), ONE)
    assert "acstor repository upgrade" in refused.value.hint
    assert register(upgrade(older), 1, disk(1), ONE).new == 1


@pytest.mark.parametrize("scope", ["", "a\n", "x" * 256])
def test_image_is_not_registered_in_what_is_no_scope(repository: Repository, scope: str) -> None:
    with pytest.raises(exception.InvalidError, match="scope"):
        register(repository, 0, disk(1), scope)
    assert repository.find_image(image_id(0)) is None


def test_record_of_an_image_has_its_scope_and_no_other() -> None:
    text = json.loads((GOLDEN / "repository-v1.json").read_text())["image"]
    plain = ImageRecord.parse(text.encode(), "an image")
    assert plain.dedup_scope is None
    scoped = dataclasses.replace(plain, dedup_scope=ONE)
    assert ImageRecord.parse(scoped.encode(), "an image") == scoped
    assert json.loads(scoped.encode()) == {**json.loads(text), "dedup_scope": ONE}
    for bad in ("", "a\n", "x" * 256, 7, False, [ONE]):
        fields = {**json.loads(text), "dedup_scope": bad}
        with pytest.raises(exception.CorruptError, match=r"scope"):
            ImageRecord.parse(json.dumps(fields).encode(), "an image")


@pytest.mark.parametrize(
    ("project", "canonical"),
    [
        (ONE, ONE),
        (ONE.upper(), ONE),
        (str(uuid.UUID(ONE)), ONE),
        ("default", "default"),
        ("Größe", "Größe"),
    ],
)
def test_project_has_one_scope_however_it_is_written(project: str, canonical: str) -> None:
    assert canonical_project(project) == canonical
    assert DedupScope.PROJECT.of_project(project, "x") == canonical
    assert DedupScope.CLOUD.of_project(project, "x") is None


def test_what_belongs_to_no_project_is_shared_with_nobody() -> None:
    scopes = [DedupScope.PROJECT.of_project("", stand_in) for stand_in in ("a", "b")]
    assert scopes == ["none:a", "none:b"]


@pytest.mark.parametrize("scope", ["", "a\x00", "x" * 256, 7, True])
def test_what_is_no_scope_is_refused(scope: Any) -> None:
    check_scope(None)
    check_scope("x" * 255)
    with pytest.raises(ValueError, match="scope"):
        check_scope(scope)
