"""Deltas: byte for byte those of the crate, read back by it, and against a model."""

import json
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acstor import exception, native
from acstor.repository.disk_manifest import PagedManifest
from acstor.repository.versions import delta_manifest
from acstor.repository.versions.delta_manifest import (
    Delta,
    DeltaDisk,
    DeltaWriter,
    PackUse,
    PlacedRecord,
    Said,
)
from acstor.repository.versions.delta_pages import SPAN_CHUNKS

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden"
SAID = json.loads((GOLDEN / "manifest-v2.json").read_bytes())
CODECS = {"plain": 0, "lz4": 1, "zstd": 2}


def golden(kind: str) -> bytes:
    return (GOLDEN / f"manifest-v2-{kind}.bin").read_bytes()


def base() -> PagedManifest:
    content = golden("dense")
    name = SAID["dense"]["name"]
    return PagedManifest(name, len(content), lambda at, size: content[at : at + size])


def record(digest: bytes, offset: int, size: int, codec: int = 0, crc: int = 7) -> bytes:
    place = offset.to_bytes(4, "little") + size.to_bytes(3, "little") + bytes([codec])
    return digest + place + crc.to_bytes(4, "little")


def test_golden_delta_is_written_byte_for_byte_as_by_the_crate() -> None:
    content = golden("delta")
    read = Delta(SAID["delta"]["name"], content)
    said = dict(read.said())
    assert read.base == SAID["delta"]["base"] == SAID["dense"]["name"]
    assert read.pages == SAID["delta"]["pages"] == len(content) // 4096
    disk = DeltaDisk(SAID["delta"]["disk_id"], read.size_bytes, 4096, read.base, 1)
    name, written = delta_manifest.write(disk, said, content[48:64])
    assert (name, written) == (SAID["delta"]["name"], content)


def test_golden_delta_is_read_as_the_crate_describes_it() -> None:
    said = dict(Delta(SAID["delta"]["name"], golden("delta")).said())
    for index, what in SAID["delta"]["chunks"]:
        if what == "as base":
            assert index not in said
        elif what == "zero":
            assert said.get(index) is None
        else:
            check_entry(said[index], what)


def check_entry(found: Said, what: dict[str, Any]) -> None:
    assert found is not None
    assert found.digest.hex() == what["digest"]
    assert (found.offset, found.stored_size) == (what["offset"], what["stored_len"])


SIZE = (SPAN_CHUNKS + 700) * 4096
PACKS = [PackUse(bytes([number]) * 32, 40 * 1000 * number, 1) for number in (1, 2, 3)]
DISK = DeltaDisk(str(uuid.UUID(int=5)), SIZE, 4096, SAID["dense"]["name"], 1)


@st.composite
def changes(draw: st.DrawFn) -> dict[int, Said]:
    """Return what a delta says: scattered chunks, runs, zeros, a whole span of zeros."""
    said: dict[int, Said] = {}
    if draw(st.booleans()):
        said.update(dict.fromkeys(range(SPAN_CHUNKS, SPAN_CHUNKS + 700)))
    starts = draw(st.lists(st.integers(0, SPAN_CHUNKS + 690), max_size=12))
    for start in starts:
        is_zero = draw(st.booleans())
        pack = draw(st.sampled_from(PACKS))
        slot = draw(st.integers(0, 39 * (pack.stored_bytes // 40_000) - 1))
        for number in range(draw(st.integers(1, 9))):
            place = (slot + number) % (pack.stored_bytes // 1000)
            entry = record(bytes([start % 251, number]) * 16, 4096 + 1000 * place, 1000, 2)
            said[start + number] = None if is_zero else PlacedRecord(pack, entry)
    return said


@settings(deadline=None)
@given(changes())
def test_deltas_say_what_was_written_of_every_chunk(said: dict[int, Said]) -> None:
    name, content = delta_manifest.write(DISK, said, bytes(16))
    delta = Delta(name, content)
    assert dict(delta.said()) == said
    assert delta.pages * 4096 == len(content)
    lower = base()
    found = delta_manifest.check(name, content, lower, said)
    found.check()
    assert found.size_bytes == SIZE
    for index in {*said, *(index + 1 for index in said), 0, 84, 199}:
        if index >= found.chunk_count:
            continue
        entry, expected = found.entry(index), said.get(index)
        if index not in said:
            below = lower.entry(index) if index < lower.chunk_count else None
            assert entry == below
        elif expected is None:
            assert entry is None
        else:
            assert entry is not None
            assert (entry.digest, entry.pack) == (expected.digest, expected.pack.id)
            assert (entry.offset, entry.stored_size) == (expected.offset, expected.stored_size)


def test_an_empty_delta_is_a_header() -> None:
    name, content = delta_manifest.write(DISK, {}, bytes(16))
    assert len(content) == 4096
    assert native.digest(content).hex() == name
    assert list(Delta(name, content).said()) == []
    assert delta_manifest.check(name, content, base(), {}).entry(0) == base().entry(0)


@pytest.mark.parametrize("page", range(6))
def test_damage_of_any_page_is_found(page: int) -> None:
    content = bytearray(golden("delta"))
    content[page * 4096 + 5] ^= 1
    with pytest.raises(exception.CorruptError, match="damaged in the origin"):
        Delta(SAID["delta"]["name"], bytes(content))
    with pytest.raises(exception.CorruptError):
        Delta(SAID["delta"]["name"], b"short")


def test_what_was_written_otherwise_is_not_stored() -> None:
    said: dict[int, Said] = {5: PlacedRecord(PACKS[0], record(bytes(32), 4096, 1000, 2))}
    name, content = delta_manifest.write(DISK, said, bytes(16))
    with pytest.raises(exception.InternalError, match="otherwise at chunk 0"):
        delta_manifest.check(name, content, base(), {**said, 0: None})


def test_salts_make_other_names() -> None:
    names = {delta_manifest.write(DISK, {}, bytes([salt]) * 16)[0] for salt in range(3)}
    assert len(names) == 3


def test_unsound_deltas_are_not_written() -> None:
    writer = DeltaWriter(DISK)
    chunk = PlacedRecord(PACKS[0], record(bytes(32), 4096, 1000, 2))
    writer.push(5, chunk)
    calls: list[Callable[[], object]] = [
        lambda: writer.push(5, chunk),
        lambda: writer.push_zeros(3, 4),
        lambda: writer.push_zeros(6, SPAN_CHUNKS * 2),
        lambda: writer.push(9, PlacedRecord(PACKS[0], record(bytes(32), 4000, 1000, 2))),
        lambda: writer.push(9, PlacedRecord(PACKS[0], b"short")),
    ]
    for call in calls:
        with pytest.raises(exception.InternalError):
            call()
    small = PackUse(bytes(32), 10, 1)
    with pytest.raises(exception.InternalError, match="fewer bytes"):
        delta_manifest.write(DISK, {1: PlacedRecord(small, chunk.record)}, bytes(16))
    with pytest.raises(exception.UnsupportedError, match="4 deep"):
        DeltaWriter(DeltaDisk(DISK.disk_id, SIZE, 4096, DISK.base, 3))
    with pytest.raises(exception.DiskTooLargeError):
        DeltaWriter(DeltaDisk(DISK.disk_id, 1 << 47, 4096, DISK.base, 1))


def test_many_chunks_have_several_pages_of_each_section() -> None:
    pack = PackUse(bytes([9]) * 32, 3_000_000, 1)
    said: dict[int, Said] = {
        2 * index: PlacedRecord(pack, record(index.to_bytes(32), 4096 + 2000 * index, 1000, 2))
        for index in range(1200)
    }
    others = [PackUse(number.to_bytes(32), 1000, 2) for number in range(1, 100)]
    for number, other in enumerate(others):
        said[5001 + number] = PlacedRecord(other, record(bytes([3]) * 32, 4096, 1000, 1))
    name, content = delta_manifest.write(DISK, said, bytes(16))
    assert dict(Delta(name, content).said()) == said
    found = delta_manifest.check(name, content, base(), said)
    found.check()
    assert {use[0] for use in found.usage()} >= {pack.id, *(other.id for other in others)}
