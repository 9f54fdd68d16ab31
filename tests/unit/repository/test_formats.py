"""The golden files of pack and manifest; crates/types/tests/golden.rs reads the same."""

import json
import pathlib

import pytest

from acstor import exception, native
from acstor.origin import memory
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.repository import FORMAT_VERSIONS, Format, Repository
from tests.unit.repository.images import chunk, disk, open_repository, register

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
DISK_ID = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"
CHUNK_SIZE = 4096
SALT = bytes(range(16))
CHUNKS = [bytes([number]) * CHUNK_SIZE for number in (1, 2, 3)]


def make_pack() -> bytes:
    digests = b"".join(map(native.digest, CHUNKS))
    return native.pack_header(CHUNK_SIZE, len(CHUNKS), SALT) + b"".join(CHUNKS) + digests


def make_manifest() -> native.Manifest:
    """Return the manifest of the chunks 1, zero, 2, 1, 3 of the pack above, 512 bytes short."""
    index = native.DigestIndex(CHUNK_SIZE)
    digests = b"".join(map(native.digest, CHUNKS))
    index.add_pack(native.pack_id(digests, SALT), SALT, digests)
    builder = native.ImageBuilder(index)
    for number in (1, 0, 2, 1, 3):
        buffer = bytearray([number]) * CHUNK_SIZE
        assert builder.absorb(native.scan_buffer(buffer, CHUNK_SIZE), buffer) == 0
    return builder.finish(DISK_ID, 5 * CHUNK_SIZE - 512, 0x0123456789ABCDEF)


def test_pack_version_1_requires_update() -> None:
    """Changed bytes need a new version and a new golden file, and readers of the old one."""
    golden = (GOLDEN / "pack-v1.bin").read_bytes()
    assert make_pack() == golden
    expected = json.loads((GOLDEN / "pack-v1.json").read_text())
    chunk_size, count, salt = native.parse_pack_header(golden[:64])
    digests = golden[4096 + chunk_size * count :]
    assert (chunk_size, count, salt.hex()) == (
        expected["chunk_size"], expected["chunk_count"], expected["salt"],
    )  # fmt: skip
    assert native.pack_id(digests, salt).hex() == expected["id"]
    assert native.pack_id(digests, bytes(16)).hex() == expected["id_without_salt"]


def test_manifest_version_1_requires_update() -> None:
    """Changed bytes need a new version and a new golden file, and readers of the old one."""
    golden = (GOLDEN / "manifest-v1.bin").read_bytes()
    assert make_manifest().to_bytes() == golden
    expected = json.loads((GOLDEN / "manifest-v1.json").read_text())
    manifest = native.Manifest.parse(golden)
    assert manifest.digest == expected["digest"]
    assert manifest.disk_id == expected["disk_id"] == DISK_ID
    assert manifest.size_bytes == expected["size_bytes"]
    assert [pack.hex() for pack in manifest.packs()] == expected["packs"]
    entries = [manifest.entry(index) for index in range(manifest.chunk_count)]
    assert [entry and [entry[0].hex(), entry[1].hex(), entry[2]] for entry in entries] == expected[
        "entries"
    ]


@pytest.mark.parametrize("position", [0, 8, 12, 60, 64, 96, 200])
def test_damaged_manifest_is_an_error_of_its_kind(position: int) -> None:
    content = bytearray((GOLDEN / "manifest-v1.bin").read_bytes())
    content[position] ^= 0x80
    with (
        pytest.raises((exception.CorruptError, exception.UnsupportedError)),
        native.map_errors("reading"),
    ):
        native.Manifest.parse(content)


def test_record_reads_back() -> None:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(1, 2))
    (image,) = repository.list_images()
    content = image.record.encode()
    assert ImageRecord.parse(content, image.id) == image.record
    assert json.loads(content)["version"] == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"version": 2}, exception.CorruptError),  # without the end that signed ones have
        ({"version": 3}, exception.UnsupportedError),
        ({"version": None}, exception.UnsupportedError),
        ({"manifest": "zz"}, exception.CorruptError),
        ({"size_bytes": -1}, exception.CorruptError),
        ({"size_bytes": "1"}, exception.CorruptError),
        ({"name": None}, exception.CorruptError),
    ],
)
def test_bad_record_is_an_error_of_its_kind(
    change: dict[str, object], expected: type[exception.AcstorError]
) -> None:
    repository = open_repository(memory.MemoryOrigin())
    register(repository, 0, disk(1))
    (image,) = repository.list_images()
    fields = {**json.loads(image.record.encode()), **change}
    with pytest.raises(expected):
        ImageRecord.parse(json.dumps(fields).encode(), image.id)
    for content in (b"", b"[]", b"{", b"\xff"):
        with pytest.raises(exception.CorruptError):
            ImageRecord.parse(content, image.id)


def test_newer_repository_is_refused() -> None:
    origin = memory.MemoryOrigin()
    version = FORMAT_VERSIONS[-1] + 1
    newer = Format("6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0", 65536, version=version)
    origin.put_if_absent("format", [newer.encode()])
    with pytest.raises(exception.UnsupportedError, match=f"version {version}"):
        Repository.open(origin)


def test_origin_without_repository_is_named_and_not_initialised() -> None:
    origin = memory.MemoryOrigin()
    with pytest.raises(exception.NotFoundError, match="no repository"):
        Repository.open(origin)
    assert list(origin.list()) == []


def test_init_twice_keeps_the_first() -> None:
    origin = memory.MemoryOrigin()
    first = Repository.init(origin, 4096)
    assert Repository.init(origin, 4096).format == first.format
    with pytest.raises(exception.InvalidError, match="exists already"):
        Repository.init(origin, 8192)
    for size in (0, 2048, 5000, 8 << 20):
        with pytest.raises(exception.InvalidError):
            Repository.init(memory.MemoryOrigin(), size)


def test_scan_of_a_buffer_agrees_with_single_digests() -> None:
    content = disk(1, 0, 2)
    scan = native.scan_buffer(content, 4096)
    assert (len(scan), scan.zero_count) == (3, 1)
    assert scan.digests() == native.digest(chunk(1)) + bytes(32) + native.digest(chunk(2))


def test_index_finds_what_was_added_until_it_is_forgotten() -> None:
    index = native.DigestIndex(4096)
    packs = []
    for number in range(300):
        digests = b"".join(native.digest(b"%d %d" % (number, at)) for at in range(50))
        salt = bytes([number % 256]) * 16
        packs.append(native.pack_id(digests, salt))
        index.add_pack(packs[-1], salt, digests)
    assert len(index) == 15_000
    assert index.memory_bytes < 60 * 15_000
    for number in (0, 150, 299):
        found = index.lookup(native.digest(b"%d %d" % (number, 7)))
        assert found == (packs[number], 4096 + 7 * 4096)
    assert index.lookup(native.digest(b"unknown")) is None
    assert index.forget_pack(packs[150])
    assert not index.forget_pack(packs[150])
    assert index.lookup(native.digest(b"150 7")) is None
    with pytest.raises(exception.CorruptError), native.map_errors("adding"):
        index.add_pack(packs[0], bytes(16), bytes(32))
