"""Statements about the index: their bytes, and whoever may have made them."""

import dataclasses
import json
import pathlib

import pytest

from acstor import exception
from acstor.repository.images import index_statement
from acstor.repository.images.image_index import ImageIndex
from acstor.repository.images.index_statement import IndexStatement
from acstor.repository.signing import signed_document
from acstor.repository.signing.signed_document import RefusalReason, UnverifiedError
from tests.unit.repository.signing.keys import private, public, trusted

GOLDEN = pathlib.Path(__file__).parents[3] / "golden" / "index-statement-v1.json"
REPOSITORY = "75d745ee-6122-4977-8a4e-8b187136749e"
INDEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
RECORDS = {
    "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0": index_statement.record_digest(b"one"),
    "75d745ee-6122-4977-8a4e-8b187136749e": index_statement.record_digest(b"two"),
}
STATEMENT = IndexStatement(
    INDEX, 7, len(RECORDS), index_statement.snapshot_digest(RECORDS), 1795261707
)


def encoded(**changes: object) -> bytes:
    document = signed_document.SignedDocument.split(GOLDEN.read_bytes())
    assert document is not None
    fields = json.loads(document.signed + b"}") | changes
    fields.pop("key")
    return signed_document.sign(fields, index_statement.DOMAIN, private(0))


def test_golden_file() -> None:
    """Changed bytes need a new version and a new golden file, and readers of the old one."""
    assert index_statement.STATEMENT_VERSION == 1
    assert STATEMENT.encode(REPOSITORY, private(0)) == GOLDEN.read_bytes()
    verified = index_statement.verify(GOLDEN.read_bytes(), REPOSITORY, trusted(0))
    assert verified == index_statement.VerifiedStatement(STATEMENT, public(0).id)


def test_digest_is_of_which_images_have_which_records() -> None:
    one, two = RECORDS
    assert index_statement.snapshot_digest(dict(reversed(RECORDS.items()))) == STATEMENT.snapshot
    others = [
        {one: RECORDS[one]},
        {one: RECORDS[two], two: RECORDS[one]},
        RECORDS | {"00000000-0000-4000-8000-000000000009": RECORDS[one]},
    ]
    assert STATEMENT.snapshot not in map(index_statement.snapshot_digest, others)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (STATEMENT.encode(REPOSITORY, private(1)), RefusalReason.UNKNOWN_KEY),
        (GOLDEN.read_bytes().replace(b": 7,", b": 8,"), RefusalReason.BAD_SIGNATURE),
        (
            signed_document.sign({"version": 1}, b"acstor image 2", private(0)),
            RefusalReason.BAD_SIGNATURE,
        ),
        (encoded(repository="another"), RefusalReason.OTHER_SUBJECT),
    ],
)
def test_statement_of_others_is_not_believed(content: bytes, reason: RefusalReason) -> None:
    with pytest.raises(UnverifiedError) as caught:
        index_statement.verify(content, REPOSITORY, trusted(0))
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        encoded(generation=-1),
        encoded(time="now"),
        encoded(snapshot="00"),
        encoded(images=1 << 40),
        b" " * 5000 + GOLDEN.read_bytes(),
    ],
)
def test_malformed_statement_is_corrupt(content: bytes) -> None:
    with pytest.raises(exception.CorruptError) as caught:
        index_statement.verify(content, REPOSITORY, trusted(0))
    assert not isinstance(caught.value, UnverifiedError)


def test_newer_version_is_said() -> None:
    with pytest.raises(exception.UnsupportedError, match="version 2"):
        index_statement.verify(encoded(version=2), REPOSITORY, trusted(0))


def test_statement_counts_for_its_index_and_not_for_an_earlier_state() -> None:
    index = ImageIndex(INDEX, generation=7)
    index_statement.check_subject(STATEMENT, index)
    index_statement.check_subject(STATEMENT, dataclasses.replace(index, generation=9))
    for other, reason in (
        (dataclasses.replace(index, id="another"), RefusalReason.OTHER_SUBJECT),
        (dataclasses.replace(index, generation=6), RefusalReason.ROLLBACK),
    ):
        with pytest.raises(UnverifiedError) as caught:
            index_statement.check_subject(STATEMENT, other)
        assert caught.value.reason is reason
