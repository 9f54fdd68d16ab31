"""Packs of version 2 by the bindings; crates/pack/tests/golden.rs reads the same golden file."""

import json
import mmap
import pathlib
import random
import struct
import zlib

import pytest

from acstor import exception, native
from acstor.repository.pack_filler import random_salt

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
CHUNK_SIZE = 4096
DATA_OFFSET = 4096


def golden() -> tuple[bytes, dict[str, object]]:
    expected: dict[str, object] = json.loads((GOLDEN / "pack-v2.json").read_text())
    return (GOLDEN / "pack-v2.bin").read_bytes(), expected


def lines(first: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, first + 1000))[:CHUNK_SIZE]


def read_table(pack: bytes, pack_id: bytes) -> native.ChunkRecords:
    header = native.PackHeader.parse(pack[:DATA_OFFSET])
    assert header.size_bytes == len(pack)
    end = header.table_offset + header.table_size
    return header.parse_table(pack_id, pack[header.table_offset : end])


def store(
    buffer: mmap.mmap, contents: list[bytes], level: int | None = None, pack_class: str = "image"
) -> tuple[bytes, bytes, native.ChunkRecords]:
    """Return the id, the bytes and the table of a pack of these chunks, which all fit."""
    content = b"".join(contents)
    scan = native.scan_buffer(content, CHUNK_SIZE)
    chunks = native.compress_chunks(scan, content, range(len(contents)), level)
    writer = native.PackWriter(buffer, CHUNK_SIZE, pack_class, random_salt())
    assert writer.append(chunks) == len(chunks) == writer.chunk_count
    pack_id, size, records = writer.seal()
    return pack_id, buffer[:size] + records.to_bytes(), records


@pytest.fixture
def buffer() -> mmap.mmap:
    return mmap.mmap(-1, 1 << 20)


def contents() -> list[bytes]:
    """Chunks that compress well, a little, and not at all."""
    seeded = random.Random(7)
    return [lines(0), seeded.randbytes(2048) + bytes(2048), seeded.randbytes(4096), lines(9)]


def test_pack_version_2_requires_update() -> None:
    """Changed bytes need a new version and a new golden file, and readers of the old one."""
    pack, expected = golden()
    pack_id = bytes.fromhex(str(expected["id"]))
    header = native.PackHeader.parse(pack[:DATA_OFFSET])
    assert (header.pack_class, header.chunk_size, header.chunk_count, header.table_offset) == (
        expected["class"], expected["chunk_size"], expected["chunk_count"], expected["table_offset"]
    )  # fmt: skip
    assert header.salt.hex() == expected["salt"]
    records = read_table(pack, pack_id)
    chunks = expected["chunks"]
    assert isinstance(chunks, list)
    assert len(records) == len(chunks)
    for position, chunk in enumerate(chunks):
        digest, offset, stored, codec, is_incompressible = records.record(position)
        assert digest.hex() == chunk["digest"]
        assert (offset, stored) == (chunk["offset"], chunk["stored_len"])
        assert codec == ("plain", "lz4", "zstd")[chunk["codec"]]
        assert is_incompressible == chunk["is_incompressible"]
        assert zlib.crc32(pack[offset : offset + stored]) == chunk["crc"]
    out = bytearray(2 * CHUNK_SIZE)
    assert records.decompress([0, 1], 0, pack, CHUNK_SIZE, out) == []
    assert bytes(out) == lines(0) + lines(5000)


def test_reader_of_version_1_refuses_version_2() -> None:
    pack, _ = golden()
    with pytest.raises(exception.UnsupportedError), native.map_errors("reading"):
        native.parse_pack_header(pack[:64])
    first = (GOLDEN / "pack-v1.bin").read_bytes()
    with pytest.raises(exception.UnsupportedError), native.map_errors("reading"):
        native.PackHeader.parse(first)


@pytest.mark.parametrize("level", [None, -5, 1, 9])
def test_written_pack_reads_back(buffer: mmap.mmap, level: int | None) -> None:
    plain = contents()
    pack_id, pack, written = store(buffer, plain, level, "volume")
    assert native.PackHeader.parse(pack).pack_class == "volume"
    records = read_table(pack, pack_id)
    assert records.to_bytes() == written.to_bytes()
    assert records.digests() == b"".join(map(native.digest, plain))
    codecs = [records.record(position)[3:] for position in range(4)]
    dense = ("lz4" if level is None else "zstd", False)
    assert codecs == [dense, dense, ("plain", True), dense]
    out = bytearray(4 * CHUNK_SIZE)
    assert records.decompress(range(4), 0, pack, CHUNK_SIZE, out) == []
    assert bytes(out) == b"".join(plain)


def test_every_damaged_chunk_is_told_with_its_reason(buffer: mmap.mmap) -> None:
    pack_id, pack, _ = store(buffer, contents())
    records = read_table(pack, pack_id)
    damaged = bytearray(pack)
    for position in (1, 2):
        damaged[records.record(position)[1] + 3] ^= 1
    reason = "the stored bytes do not match their CRC-32"
    assert records.decompress(range(4), 0, damaged, CHUNK_SIZE) == [(1, reason), (2, reason)]
    out = bytearray(b"x") * (4 * CHUNK_SIZE)
    assert [at for at, _ in records.decompress(range(4), 0, damaged, CHUNK_SIZE, out)] == [1, 2]
    plain = contents()
    assert bytes(out) == plain[0] + bytes(2 * CHUNK_SIZE) + plain[3]


def test_every_damaged_byte_of_the_table_is_refused(buffer: mmap.mmap) -> None:
    pack_id, pack, _ = store(buffer, contents())
    table_offset = native.PackHeader.parse(pack).table_offset
    for position in (*range(64), *range(table_offset, len(pack))):
        damaged = bytearray(pack)
        damaged[position] ^= 0x10
        with (
            pytest.raises((exception.CorruptError, exception.UnsupportedError)),
            native.map_errors("reading"),
        ):
            read_table(bytes(damaged), pack_id)
    with pytest.raises(exception.CorruptError), native.map_errors("reading"):
        read_table(pack, bytes(32))


def test_full_pack_says_where_the_next_begins() -> None:
    """Chunks are compressed once, whichever pack they go to."""
    seeded = random.Random(1)
    plain = [seeded.randbytes(CHUNK_SIZE) for _ in range(20)]
    content = b"".join(plain)
    chunks = native.compress_chunks(native.scan_buffer(content, CHUNK_SIZE), content, range(20))
    assert chunks.stored_bytes == 20 * CHUNK_SIZE
    sizes, first = [], 0
    while first < len(chunks):
        with mmap.mmap(-1, 8 * CHUNK_SIZE) as buffer:
            writer = native.PackWriter(buffer, CHUNK_SIZE, "image", random_salt())
            room = writer.room
            begin, first = first, writer.append(chunks, first)
            assert first - begin == writer.chunk_count >= min(room, 20 - begin)
            assert writer.room == 0 or first == 20
            pack_id, size, records = writer.seal()
            assert size + len(records.to_bytes()) <= len(buffer)
            assert records.digests() == b"".join(map(native.digest, plain[begin:first]))
            assert read_table(buffer[:size] + records.to_bytes(), pack_id).digests()
            sizes.append(len(records))
    assert sizes == [6, 6, 6, 2]


def test_rewriting_compresses_what_was_quick_and_copies_the_rest(buffer: mmap.mmap) -> None:
    plain = contents()
    pack_id, pack, records = store(buffer, plain)
    rewritten = native.rewrite_chunks(records, [3, 2, 0], 0, pack, CHUNK_SIZE, level=9)
    writer = native.PackWriter(buffer, CHUNK_SIZE, "image", random_salt())
    assert writer.append(rewritten) == 3
    other_id, size, others = writer.seal()
    other = buffer[:size] + others.to_bytes()
    assert other_id != pack_id
    assert [others.record(at)[3:] for at in range(3)] == [
        ("zstd", False), ("plain", True), ("zstd", False)
    ]  # fmt: skip
    out = bytearray(3 * CHUNK_SIZE)
    assert read_table(other, other_id).decompress(range(3), 0, other, CHUNK_SIZE, out) == []
    assert bytes(out) == plain[3] + plain[2] + plain[0]
    damaged = bytearray(pack)
    damaged[records.record(2)[1]] ^= 1
    with pytest.raises(exception.CorruptError, match="chunk 2"), native.map_errors("rewriting"):
        native.rewrite_chunks(records, [0, 2], 0, damaged, CHUNK_SIZE)


def test_reads_are_planned_over_small_gaps(buffer: mmap.mmap) -> None:
    pack_id, pack, records = store(buffer, [random.Random(n).randbytes(4096) for n in range(12)])
    assert records.plan_reads(1 << 20) == [(4096, 12 * 4096, list(range(12)))]
    assert records.plan_reads(3 * 4096, [7, 0, 1, 2, 4]) == [
        (4096, 3 * 4096, [0, 1, 2]), (5 * 4096, 4096, [4]), (8 * 4096, 4096, [7])
    ]  # fmt: skip
    assert records.plan_reads(1 << 20, [0, 1, 2, 4, 9]) == [
        (4096, 5 * 4096, [0, 1, 2, 4]), (10 * 4096, 4096, [9])
    ]  # fmt: skip
    for offset, size, positions in records.plan_reads(1 << 20, [2, 9]):
        part = pack[offset : offset + size]
        assert records.decompress(positions, offset, part, CHUNK_SIZE) == []
        with pytest.raises(exception.InvalidError), native.map_errors("reading"):
            records.decompress(positions, offset, part[:-1], CHUNK_SIZE)
    with pytest.raises(exception.InvalidError), native.map_errors("planning"):
        records.plan_reads(1 << 20, [12])
    assert read_table(pack, pack_id).plan_reads(1 << 20) == records.plan_reads(1 << 20)


def test_records_are_checked_one_by_one() -> None:
    record = struct.pack("<32sIII", bytes(32), 4096, 100 | 1 << 24, 7)
    assert native.ChunkRecords.parse(record).record(0) == (bytes(32), 4096, 100, "lz4", False)
    for bad in (struct.pack("<32sIII", bytes(32), 4096, 100 | 3 << 24, 7), bytes(44)):
        with pytest.raises(exception.CorruptError), native.map_errors("reading"):
            native.ChunkRecords.parse(record + bad)
    with pytest.raises(exception.InvalidError), native.map_errors("reading"):
        native.ChunkRecords.parse(record[:-1])
    with pytest.raises(IndexError):
        native.ChunkRecords.parse(record).record(1)


def test_what_no_pack_can_be_made_of_is_invalid(buffer: mmap.mmap) -> None:
    content = lines(0) + bytes(CHUNK_SIZE)
    scan = native.scan_buffer(content, CHUNK_SIZE)
    chunks = native.compress_chunks(scan, content, [0])
    writer = native.PackWriter(buffer, CHUNK_SIZE, "image", random_salt())
    larger = native.PackWriter(buffer, 2 * CHUNK_SIZE, "image", random_salt())
    plain = random.Random(1).randbytes(CHUNK_SIZE)
    hard = native.compress_chunks(native.scan_buffer(plain, CHUNK_SIZE), plain, [0])
    for action in (
        lambda: native.compress_chunks(scan, content, [1]),  # a zero chunk
        lambda: native.compress_chunks(scan, content, [2]),
        lambda: native.compress_chunks(scan, content[:-1], [0]),
        lambda: native.compress_chunks(scan, content, [0], level=20),
        lambda: native.PackWriter(bytearray(4096), CHUNK_SIZE, "image", random_salt()),
        lambda: native.PackWriter(buffer, CHUNK_SIZE, "picture", random_salt()),
        lambda: native.PackWriter(buffer, CHUNK_SIZE, "image", bytes(15)),
        lambda: native.PackWriter(bytes(1 << 20), CHUNK_SIZE, "image", random_salt()),
        writer.seal,
        lambda: writer.append(chunks, 2),
        lambda: larger.append(hard),
    ):
        with pytest.raises(exception.InvalidError), native.map_errors("writing"):
            action()
    assert writer.append(chunks) == 1
    writer.seal()
    with pytest.raises(exception.InvalidError, match="closed"), native.map_errors("writing"):
        writer.append(chunks)
