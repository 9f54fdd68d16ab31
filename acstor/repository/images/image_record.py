"""The record of a registered image: the content of the ref ``images/<uuid>``.

Version 2 is signed (:mod:`acstor.repository.images.signed_record`). What is read here is not
verified: for whoever marks what is in use, or shows it, not for whoever boots from it.
"""

import dataclasses
import json
import re
from typing import Any

from acstor import exception, untrusted_json
from acstor.repository.dedup_scope import check_scope
from acstor.repository.signing.signed_document import SignedDocument

RECORD_VERSION = 2
"""Version of signed records."""
UNSIGNED_VERSION = 1
"""Version of records without a signature: this build reads them, and writes them without a key."""
NAME_LENGTH_MAX = 255

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class ImageRecord:
    """Record of a registered image."""

    manifest: str
    """BLAKE3 of the manifest's bytes, hexadecimal."""
    content: str
    """Names the disk state wherever its chunks are: BLAKE3 of sizes and digests, hexadecimal."""
    name: str
    size_bytes: int
    chunk_size: int
    chunk_count: int
    unique_count: int
    """Different chunks, zero chunks left out."""
    zero_count: int
    source_format: str
    """Format of the registered file: ``raw``, ``iso`` or ``qcow2``."""
    registered_at: str
    """UTC, ISO 8601; for people."""
    checksum: str | None = None
    """The declared checksum that was verified, ``algorithm:hexadecimal``."""
    dedup_scope: str | None = None
    """Scope of the names of its chunks; None: they are plain digests."""

    def fields(self) -> dict[str, Any]:
        """Return the fields as they are written, those left out that say nothing."""
        fields = dataclasses.asdict(self)
        if self.dedup_scope is None:
            del fields["dedup_scope"]
        return fields

    def encode(self) -> bytes:
        """Return the record as JSON, without a signature."""
        fields = {"version": UNSIGNED_VERSION, **self.fields()}
        return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes, image_id: str) -> "ImageRecord":
        """Read a record of either version, without verifying it; unknown fields are ignored.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed.
        """
        try:
            fields = untrusted_json.load(content, "the record")
            version = fields["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise exception.CorruptError(f"the record of image {image_id} is malformed") from error
        if version not in (UNSIGNED_VERSION, RECORD_VERSION):
            raise exception.UnsupportedError(
                f"the record of image {image_id} has version {version!r:.20}, "
                f"this release reads {UNSIGNED_VERSION} and {RECORD_VERSION}"
            )
        if (version == RECORD_VERSION) != (SignedDocument.split(content) is not None):
            raise exception.CorruptError(
                f"the record of image {image_id} is malformed: version {version}, and its end is "
                "not as that version has it"
            )
        return cls.of_fields(fields, image_id)

    @classmethod
    def of_fields(cls, fields: dict[str, Any], image_id: str) -> "ImageRecord":
        """Return the record that a document's fields say.

        :raises CorruptError: when they say none.
        """
        known: dict[str, Any] = {
            field.name: fields.get(field.name) for field in dataclasses.fields(cls)
        }
        try:
            record = cls(**known)
            record._check()
        except (TypeError, ValueError) as error:
            raise exception.CorruptError(
                f"the record of image {image_id} is malformed: {error}"
            ) from error
        return record

    def _check(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            expected = int if field.type in (int, "int") else str
            is_absent = field.name in ("checksum", "dedup_scope") and value is None
            if not is_absent and (not isinstance(value, expected) or isinstance(value, bool)):
                raise ValueError(f"field {field.name}")
        if not _DIGEST.match(self.manifest) or not _DIGEST.match(self.content):
            raise ValueError("manifest or content is no digest")
        check_scope(self.dedup_scope)
        for name in ("size_bytes", "chunk_size", "chunk_count", "unique_count", "zero_count"):
            untrusted_json.whole(getattr(self, name), name)
