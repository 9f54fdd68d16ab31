"""Verification of volumes and snapshots: missing and damaged log objects, manifests, chunks."""

import dataclasses
import mmap
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence

import pytest

from acstor import native
from acstor.origin import base, memory
from acstor.origin.faulty import FaultyOrigin
from acstor.repository import layout
from acstor.repository.pack_filler import random_salt
from acstor.repository.repository import Repository
from acstor.repository.verification import Damage, Report, Verifier
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import NewVolume, VolumeStore
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register
from tests.unit.repository.volumes.log_objects import log_object

VOLUME, CLONE, SNAPSHOT = (str(uuid.UUID(int=number)) for number in (50, 51, 52))


@pytest.fixture
def repository() -> Repository:
    """A volume of an image with three log objects, a clone and a snapshot of it."""
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(1, 2, 3))
    store = VolumeStore(repository)
    manifest = repository.get_image(image_id(0)).record.manifest
    store.create_from_manifest(NewVolume(VOLUME, 3 * CHUNK_SIZE), manifest)
    store.allow_host(VOLUME, "a")
    record = store.acquire(VOLUME, "a").after
    for number in range(3):
        sequence = record.next + number
        content = log_object(VOLUME, 1, sequence, b"%d" % number)
        repository.origin.put_if_absent(layout.log_key(VOLUME, 1, sequence), [content])
    store.release(VOLUME, "a", 1, record.next + 2)
    store.clone(NewVolume(CLONE, 3 * CHUNK_SIZE), VOLUME)
    store.snapshot(VOLUME, SNAPSHOT)
    repository.remove_image(image_id(0))
    return repository


class FoldingOrigin(FaultyOrigin):
    """Passes on; as soon as somebody lists objects, volumes are folded."""

    def __init__(self, inner: base.Origin, fold: Callable[[], None]) -> None:
        super().__init__(inner)
        self._fold = fold

    def list(self, prefix: str = "") -> Iterator[str]:
        self._fold()
        yield from super().list(prefix)


def verify(repository: Repository) -> Report:
    return Verifier(repository).verify()


def logs_of(repository: Repository) -> LogRange:
    (logs,) = VolumeStore(repository).get(VOLUME).record.logs
    return logs


def replace(origin: base.Origin, key: str, content: bytes) -> None:
    origin.delete(key)
    origin.put_if_absent(key, [content])


def whose(damages: Sequence[Damage]) -> set[tuple[str | None, str | None]]:
    return {(damage.volume, damage.snapshot) for damage in damages}


EVERYBODY = {(VOLUME, None), (CLONE, None), (None, SNAPSHOT)}


def test_whole_volumes_have_no_damages(repository: Repository) -> None:
    report = verify(repository)
    assert report.damages == []
    assert (report.images, report.volumes, report.snapshots) == (0, 2, 1)
    assert (report.packs, report.chunks, report.log_objects) == (1, 3, 3)


def test_missing_log_object_is_of_everybody_who_shares_it(repository: Repository) -> None:
    logs = logs_of(repository)
    key = logs.key(logs.first + 1)
    repository.origin.delete(key)
    damages = verify(repository).damages
    assert whose(damages) == EVERYBODY
    assert {damage.log_object for damage in damages} == {key}
    assert {damage.what for damage in damages} == {"the log object is missing"}


def test_damaged_log_object_is_named(repository: Repository) -> None:
    logs = logs_of(repository)
    key = logs.key(logs.last)
    content = bytearray(repository.origin.get(key, 1 << 20))
    content[-1] ^= 1
    replace(repository.origin, key, bytes(content))
    damages = verify(repository).damages
    assert whose(damages) == EVERYBODY
    assert all("content of log object" in damage.what for damage in damages)


def test_log_object_that_is_too_long_is_not_read(repository: Repository) -> None:
    logs = logs_of(repository)
    replace(repository.origin, logs.key(logs.last), bytes((16 << 20) + 1))
    damages = verify(repository).damages
    assert whose(damages) == EVERYBODY
    assert all("has 16777217 bytes" in damage.what for damage in damages)


def test_damaged_chunk_and_manifest_are_of_everybody_too(repository: Repository) -> None:
    (pack,) = repository.origin.list(layout.PACK_PREFIX)
    content = bytearray(repository.origin.get(pack, 1 << 20))
    content[4096 + CHUNK_SIZE] ^= 1
    replace(repository.origin, pack, bytes(content))
    damages = verify(repository).damages
    assert whose(damages) == EVERYBODY
    assert {damage.chunk for damage in damages} == {1}
    (manifest,) = repository.origin.list(layout.MANIFEST_PREFIX)
    repository.origin.delete(manifest)
    damages = [damage for damage in verify(repository).damages if damage.pack is None]
    assert whose(damages) == EVERYBODY


def test_damaged_record_hides_no_other_damage(repository: Repository) -> None:
    name = layout.volume_ref(CLONE)
    ref = repository.origin.get_ref(name)
    assert ref is not None
    repository.origin.swap_ref(name, ref.token, b"{}")
    logs = logs_of(repository)
    repository.origin.delete(logs.key(logs.first))
    damages = verify(repository).damages
    assert whose(damages) == EVERYBODY
    (found,) = (damage for damage in damages if damage.volume == CLONE)
    assert "is malformed" in found.what


def test_what_a_fold_replaced_meanwhile_is_no_damage(repository: Repository) -> None:
    """The log objects that the verification has read of are folded and collected under it."""

    logs = logs_of(repository)
    inner = repository.origin

    def fold() -> None:
        for volume_id in (VOLUME, CLONE):
            ref = inner.get_ref(layout.volume_ref(volume_id))
            assert ref is not None
            record = VolumeRecord.parse(ref.content, volume_id)
            content = dataclasses.replace(record, logs=()).encode()
            inner.swap_ref(layout.volume_ref(volume_id), ref.token, content)
        for sequence in range(logs.first, logs.last + 1):
            inner.delete(logs.key(sequence))

    VolumeStore(repository).delete_snapshot(SNAPSHOT)
    folding = Repository(FoldingOrigin(inner, fold), repository.format)
    assert Verifier(folding).verify().damages == []


def put_folded(repository: Repository, content: bytes) -> tuple[str, str]:
    """Store a disk as folds of volumes do; return the names of its manifest and its pack."""
    builder = native.DiskBuilder(native.StoredChunkIndex(CHUNK_SIZE, "volume"))
    scan = native.scan_buffer(content, CHUNK_SIZE)
    chunks = native.compress_chunks(scan, content, builder.absorb(scan), None)
    buffer = mmap.mmap(-1, 1 << 20)
    writer = native.PackWriter(buffer, CHUNK_SIZE, "volume", random_salt())
    assert writer.append(chunks) == len(chunks)
    pack, size, records = writer.seal()
    builder.close_pack(pack, records)
    name = layout.pack_key(pack.hex())
    repository.origin.put_if_absent(name, [buffer[:size] + records.to_bytes()])
    with tempfile.TemporaryFile() as spool, tempfile.TemporaryFile() as file:
        manifest, _ = builder.finish(
            image_id(9), len(content), bytes(16), spool.fileno(), file.fileno()
        )
        file.seek(0)
        repository.origin.put_if_absent(layout.manifest_key(manifest), [file.read()])
    return manifest, pack.hex()


def test_compressed_packs_of_folds_are_verified() -> None:
    repository = open_repository(memory.MemoryOrigin())
    content = disk(1, 2) + b"text".ljust(CHUNK_SIZE, b".")
    manifest, pack = put_folded(repository, content)
    VolumeStore(repository).create_from_manifest(NewVolume(VOLUME, len(content)), manifest)
    report = verify(repository)
    assert (report.damages, report.packs, report.chunks) == ([], 1, 3)
    key = layout.pack_key(pack)
    damaged = bytearray(repository.origin.get(key, 1 << 20))
    damaged[4096 + CHUNK_SIZE + 10] ^= 1
    replace(repository.origin, key, bytes(damaged))
    (damage,) = verify(repository).damages
    assert (damage.volume, damage.chunk, damage.pack) == (VOLUME, 1, pack)
