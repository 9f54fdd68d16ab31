"""The JSON objects of a repository, byte for byte: a change of one bumps its version."""

import json
import pathlib

from acstor.origin import base
from acstor.repository.condemnation import TOMBSTONE_VERSION, State, Tombstone
from acstor.repository.image_record import RECORD_VERSION, ImageRecord
from acstor.repository.repository import Format

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden" / "repository-v1.json"
NAME = "12" * 32


def golden(kind: str) -> bytes:
    """Return what version 1 wrote."""
    text: str = json.loads(GOLDEN.read_text())[kind]
    return text.encode()


def test_format_object_version_requires_update() -> None:
    found = Format.parse(golden("format"))
    assert found.chunk_size == 65536
    assert found.id == "75d745ee-6122-4977-8a4e-8b187136749e"
    assert found.encode() == golden("format"), "bump the version of the format object"


def test_image_record_version_requires_update() -> None:
    found = ImageRecord.parse(golden("image"), "an image")
    assert RECORD_VERSION == 1
    assert (found.name, found.size_bytes, found.source_format) == ("debian-12", 2 << 30, "qcow2")
    assert found.checksum == "sha256:" + "ef" * 32
    assert found.encode() == golden("image"), "bump RECORD_VERSION"


def test_tombstone_version_requires_update() -> None:
    found = Tombstone.parse(NAME, base.Ref("token", golden("tombstone")))
    assert TOMBSTONE_VERSION == 1
    assert (found.key, found.state) == (f"packs/12/{NAME}", State.CONDEMNED)
    assert found.seen == {"controller-1": 1795261707.5}
    assert found.encode() == golden("tombstone"), "bump TOMBSTONE_VERSION"
