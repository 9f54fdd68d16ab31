"""The record of a copy, byte for byte."""

import pathlib

import pytest

from acstor import exception
from acstor.repository.copying.copy_record import COPY_VERSION, CopyKind, CopyRecord, CopyState

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden" / "repository-copy-v1.json"


def test_copy_record_version_requires_update() -> None:
    found = CopyRecord.parse(GOLDEN.read_bytes())
    assert COPY_VERSION == 1
    assert (found.kind, found.state) == (CopyKind.BACKUP, CopyState.COPYING)
    assert found.repository == "75d745ee-6122-4977-8a4e-8b187136749e"
    assert found.encode() == GOLDEN.read_bytes(), "bump COPY_VERSION"


def test_unknown_fields_are_ignored() -> None:
    content = GOLDEN.read_bytes().replace(b'{"begun_at"', b'{"more": 1, "begun_at"')
    assert CopyRecord.parse(content) == CopyRecord.parse(GOLDEN.read_bytes())


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"version": 1, "kind": "x"}'])
def test_malformed_record_is_refused(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        CopyRecord.parse(content)


def test_record_of_a_newer_release_is_refused() -> None:
    with pytest.raises(exception.UnsupportedError):
        CopyRecord.parse(GOLDEN.read_bytes().replace(b'"version": 1', b'"version": 2'))
