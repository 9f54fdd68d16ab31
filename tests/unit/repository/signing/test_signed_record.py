"""Signed records: byte for byte, and everything that may be done to one on its way."""

import dataclasses
import json
import pathlib
import re

import pytest

from acstor import exception, untrusted_json
from acstor.repository.images import signed_record
from acstor.repository.images.image_record import RECORD_VERSION, UNSIGNED_VERSION, ImageRecord
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.signing import signed_document
from acstor.repository.signing.signed_document import (
    DOCUMENT_SIZE_MAX,
    RefusalReason,
    SignedDocument,
    UnverifiedError,
)
from tests.unit.repository.signing.keys import private, public, trusted

GOLDEN = pathlib.Path(__file__).parents[3] / "golden"
REPOSITORY = "75d745ee-6122-4977-8a4e-8b187136749e"
IMAGE = "6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0"
OTHER = "00000000-0000-4000-8000-000000000001"
GENERATION = 1795261707500
RECORD = ImageRecord.parse(
    json.loads((GOLDEN / "repository-v1.json").read_text())["image"].encode(), IMAGE
)
SCOPED = dataclasses.replace(RECORD, dedup_scope="0f9d8c7b6a594837a6b5c4d3e2f10918")


def signed(record: ImageRecord = RECORD, number: int = 0, **changes: object) -> bytes:
    subject = {"repository_id": REPOSITORY, "image_id": IMAGE, "generation": GENERATION, **changes}
    return signed_record.encode(record, key=private(number), **subject)  # type: ignore[arg-type]


def verifier(*numbers: int, require_signatures: bool = True) -> RecordVerifier:
    keys = trusted(*(numbers or (0,)))
    return RecordVerifier(REPOSITORY, keys, require_signatures=require_signatures)


def refused(content: bytes, judge: RecordVerifier | None = None) -> UnverifiedError:
    with pytest.raises(UnverifiedError) as caught:
        (judge or verifier()).verify(content, IMAGE)
    assert IMAGE in caught.value.message
    return caught.value


def test_record_version_2_requires_update() -> None:
    """Changed bytes need a new version and a new golden file, and readers of the old one."""
    golden = (GOLDEN / "image-record-v2.json").read_bytes()
    assert (RECORD_VERSION, UNSIGNED_VERSION) == (2, 1)
    found = verifier().verify(golden, IMAGE)
    assert (found.record, found.key_id, found.generation) == (RECORD, public(0).id, GENERATION)
    assert signed() == golden, "bump RECORD_VERSION"


@pytest.mark.parametrize("record", [RECORD, SCOPED])
def test_signed_record_reads_back(record: ImageRecord) -> None:
    content = signed(record)
    assert verifier(1, 0).verify(content, IMAGE).record == record
    assert ImageRecord.parse(content, IMAGE) == record, "who marks what is in use needs no key"


@pytest.mark.parametrize("name", [*json.loads(signed(SCOPED)), "another"])
def test_tampering_with_a_field_is_refused(name: str) -> None:
    """As somebody would do it who can write to the origin: the document stays well formed."""
    fields = json.loads(signed(SCOPED))
    key_id, signature = fields.pop("key"), fields.pop("signature")
    before = fields.get(name)
    if name == "key":
        key_id = public(1).id
    elif name == "signature":
        signature = signature[:-1] + ("0" if signature[-1] != "0" else "1")
    else:
        fields[name] = before + 1 if isinstance(before, int) else f"{before}0"[1:]
    text = json.dumps(fields, indent=1, sort_keys=True).removesuffix("\n}")
    content = f'{text},\n "key": "{key_id}",\n "signature": "{signature}"\n}}\n'.encode()
    assert SignedDocument.split(content) is not None
    assert refused(content, verifier(0, 1)).reason is RefusalReason.BAD_SIGNATURE


def test_flipped_bit_anywhere_is_refused() -> None:
    content = signed()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0x04
        with pytest.raises((exception.CorruptError, exception.UnsupportedError)):
            verifier().verify(bytes(changed), IMAGE)


@pytest.mark.parametrize("length", [0, 1, 100, -1, -2, -100, -300])
def test_cut_record_is_refused(length: int) -> None:
    with pytest.raises(exception.CorruptError):
        verifier(require_signatures=False).verify(signed()[:length], IMAGE)


def test_added_bytes_are_refused() -> None:
    content = signed()
    for changed in (content + b"\n", b" " + content, content + content, b"\xff" + content):
        with pytest.raises(exception.CorruptError):
            verifier(require_signatures=False).verify(changed, IMAGE)


def test_long_record_is_refused_before_it_is_looked_at() -> None:
    content = b" " * DOCUMENT_SIZE_MAX + signed()
    assert SignedDocument.split(content) is None
    with pytest.raises(exception.InvalidError, match="too long"):
        signed(dataclasses.replace(RECORD, name="x" * DOCUMENT_SIZE_MAX))


def test_unknown_key_is_refused_by_its_name() -> None:
    error = refused(signed(number=3))
    assert error.reason is RefusalReason.UNKNOWN_KEY
    assert public(3).id[:16] in error.message


def test_signature_is_verified_before_anything_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(untrusted_json, "load", fail)
    content = signed().replace(b"debian-12", b"debian-13")
    assert refused(content).reason is RefusalReason.BAD_SIGNATURE


def test_record_copied_to_another_image_is_refused() -> None:
    error = refused(signed(image_id=OTHER))
    assert error.reason is RefusalReason.OTHER_SUBJECT
    assert OTHER in error.message


def test_record_of_another_repository_is_refused() -> None:
    assert refused(signed(repository_id=OTHER)).reason is RefusalReason.OTHER_SUBJECT


def test_signature_of_another_kind_of_document_is_refused() -> None:
    fields = {"version": 2, "repository": REPOSITORY, "image": IMAGE, "generation": 7}
    content = signed_document.sign({**fields, **RECORD.fields()}, b"acstor other 1", private(0))
    assert refused(content).reason is RefusalReason.BAD_SIGNATURE


def test_record_without_a_signature_is_read_until_one_is_required() -> None:
    content = RECORD.encode()
    found = verifier(require_signatures=False).verify(content, IMAGE)
    assert (found.record, found.key_id, found.generation) == (RECORD, None, 0)
    assert refused(content).reason is RefusalReason.UNSIGNED


def test_signed_record_needs_its_key_where_none_is_required() -> None:
    """Else a thief's signature would count for more than none."""
    error = refused(signed(number=3), verifier(require_signatures=False))
    assert error.reason is RefusalReason.UNKNOWN_KEY


def test_version_2_is_not_believed_without_its_signature() -> None:
    """A signature that was cut off does not make a record of version 1."""
    fields = json.loads(signed())
    del fields["signature"]
    for content in (json.dumps(fields).encode(), json.dumps({**fields, "key": "0"}).encode()):
        with pytest.raises(exception.CorruptError, match="malformed"):
            verifier(require_signatures=False).verify(content, IMAGE)
        with pytest.raises(exception.CorruptError, match="malformed"):
            ImageRecord.parse(content, IMAGE)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"version": 3}, exception.UnsupportedError),
        ({"version": 1}, exception.UnsupportedError),
        ({"generation": 0}, exception.CorruptError),
        ({"generation": "7"}, exception.CorruptError),
        ({"generation": 1 << 53}, exception.CorruptError),
        ({"manifest": "zz"}, exception.CorruptError),
        ({"image": None}, UnverifiedError),
    ],
)
def test_fault_of_who_has_the_key_is_an_error_of_its_kind(
    change: dict[str, object], expected: type[exception.AcstorError]
) -> None:
    fields = {"version": 2, "repository": REPOSITORY, "image": IMAGE, "generation": 7}
    content = signed_document.sign(
        {**fields, **RECORD.fields(), **change}, signed_record.DOMAIN, private(0)
    )
    with pytest.raises(expected):
        verifier().verify(content, IMAGE)


def test_release_before_says_that_the_record_is_newer() -> None:
    """Parsing as the release before does: the whole as JSON, then the version."""
    assert json.loads(signed())["version"] == 2


def test_statement_names_what_it_is_for() -> None:
    fields = json.loads(signed())
    assert (fields["repository"], fields["image"]) == (REPOSITORY, IMAGE)
    assert re.search(rb',\n "key": "[0-9a-f]{64}",\n "signature": "[0-9a-f]{128}"\n}\n\Z', signed())
