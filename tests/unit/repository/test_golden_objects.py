"""The JSON objects of a repository, byte for byte: a change of one bumps its version."""

import json
import pathlib
import struct

import pytest

from acstor import exception, native
from acstor.origin import base
from acstor.repository import moved_packs
from acstor.repository.gc.compaction_record import COMPACTION_VERSION, CompactionRecord
from acstor.repository.gc.condemnation import TOMBSTONE_VERSION, State, Tombstone, name_of_logs
from acstor.repository.images.image_record import UNSIGNED_VERSION, ImageRecord
from acstor.repository.repository import FORMAT_VERSION, FORMAT_VERSIONS_MADE, Format
from acstor.repository.volumes.log_range import LogRange

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"
NAME = "12" * 32


def golden(kind: str, version: int = 1) -> bytes:
    """Return what a version of the repository has."""
    text: str = json.loads((GOLDEN / f"repository-v{version}.json").read_text())[kind]
    return text.encode()


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7, 8])
def test_format_object_version_requires_update(version: int) -> None:
    found = Format.parse(golden("format", version))
    assert (FORMAT_VERSION, FORMAT_VERSIONS_MADE) == (8, (5, 6, 7, 8))
    assert (found.version, found.chunk_size) == (version, 65536)
    assert found.id == "75d745ee-6122-4977-8a4e-8b187136749e"
    assert found.encode() == golden("format", version), "bump FORMAT_VERSION"


def test_image_record_version_requires_update() -> None:
    found = ImageRecord.parse(golden("image"), "an image")
    assert UNSIGNED_VERSION == 1
    assert (found.name, found.size_bytes, found.source_format) == ("debian-12", 2 << 30, "qcow2")
    assert found.checksum == "sha256:" + "ef" * 32
    assert found.encode() == golden("image"), "bump UNSIGNED_VERSION"


def test_tombstone_of_log_objects_is_of_the_same_version() -> None:
    logs = LogRange("6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0", 7, 0x10000, 0x100FF)
    name = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0.00000007.0000000000010000.00000000000100ff"
    found = Tombstone.parse(name, base.Ref("token", golden("log_tombstone", 2)))
    assert name_of_logs(logs) == name
    assert (found.logs, found.state) == (logs, State.DELETING)
    assert found.encode() == golden("log_tombstone", 2), "bump TOMBSTONE_VERSION"


def test_tombstone_version_requires_update() -> None:
    found = Tombstone.parse(NAME, base.Ref("token", golden("tombstone")))
    assert TOMBSTONE_VERSION == 1
    assert (found.key, found.state) == (f"packs/12/{NAME}", State.CONDEMNED)
    assert found.seen == {"controller-1": 1795261707.5}
    assert found.encode() == golden("tombstone"), "bump TOMBSTONE_VERSION"


def test_record_of_a_compaction_version_requires_update() -> None:
    content = (GOLDEN / "compaction-v1.json").read_bytes()
    found = CompactionRecord.parse(content, "controller-1")
    assert COMPACTION_VERSION == 1
    assert (found.sources, found.packs) == ((NAME,), ("34" * 32, "56" * 32))
    assert found.encode() == content, "bump COMPACTION_VERSION"


@pytest.mark.parametrize(
    "change", [{"packs": "x"}, {"sources": [1]}, {"sources": ["12"]}, {"packs": None}, {"nonce": 0}]
)
def test_malformed_record_of_a_compaction_is_refused(change: dict[str, object]) -> None:
    fields = json.loads((GOLDEN / "compaction-v1.json").read_bytes())
    if "nonce" in change:
        del fields["nonce"]
    content = json.dumps({**fields, **change} if "nonce" not in change else fields).encode()
    with pytest.raises(exception.CorruptError, match="controller-1 is malformed"):
        CompactionRecord.parse(content, "controller-1")
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        CompactionRecord.parse(json.dumps({**fields, "version": 2}).encode(), "controller-1")


def test_list_of_moved_chunks_version_requires_update() -> None:
    content = (GOLDEN / "moved-pack-v1.bin").read_bytes()
    said = json.loads((GOLDEN / "moved-pack-v1.json").read_bytes())
    moved = native.MovedPack.parse(bytes.fromhex(said["pack"]), content)
    assert native.MovedPack.size_of(content[:64]) == len(content) == 64 + 2 * 32 + 3 * 24
    assert (moved.pack_class, len(moved)) == (said["class"], 3)
    assert [target.hex() for target in moved.targets()] == said["targets"]
    for chunk in said["chunks"]:
        found = moved.find(chunk["from"], chunk["from_size"])
        assert found is not None
        pack, *place = found
        assert pack.hex() == chunk["target"]
        assert place == [chunk["offset"], chunk["stored_size"], chunk["codec"]]
    assert moved.to_bytes() == content, "bump MOVED_PACK_VERSION"
    largest = content[:52] + struct.pack("<II", 1024, 1 << 20) + content[60:64]
    assert native.MovedPack.size_of(largest) == moved_packs.MOVED_SIZE_MAX
