"""Signed statement about the registered images, which the index of images carries.

A record says for one image what is to be believed of it; nothing in it says which images there are,
and that a record is the newest one. The registrar that leads says that of all of them now and then:
a digest of all records, at a generation of the index, with the time. Writers without the key keep
the statement as it is when they change the index.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from acstor import exception, native, untrusted_json
from acstor.repository.images.image_index import STATEMENT_SIZE_MAX, ImageIndex
from acstor.repository.signing import signed_document
from acstor.repository.signing.signed_document import (
    RefusalReason,
    SignedDocument,
    UnverifiedError,
)
from acstor.repository.signing.trusted_keys import TrustedKeys

STATEMENT_VERSION = 1
DOMAIN = b"acstor index 1"
"""Kind of document that is signed; the number is the statement's version."""
IMAGES_MAX = 1_000_000
_NUMBER_MAX = (1 << 53) - 1
_WHAT = "the statement about the index of images"
_DIGEST_LENGTH = 64


@dataclasses.dataclass(frozen=True, slots=True)
class IndexStatement:
    """State of the registered images at one generation of the index."""

    index_id: str
    generation: int
    images: int
    """Number of the images."""
    snapshot: str
    """:func:`snapshot_digest` of their records."""
    time: int
    """Time of the signature, seconds since 1970."""

    def encode(self, repository_id: str, key: native.SigningKey) -> bytes:
        """Return it in the signed form."""
        fields = {
            "version": STATEMENT_VERSION,
            "repository": repository_id,
            "index": self.index_id,
            "generation": self.generation,
            "images": self.images,
            "snapshot": self.snapshot,
            "time": self.time,
        }
        return signed_document.sign(fields, DOMAIN, key)


@dataclasses.dataclass(frozen=True, slots=True)
class VerifiedStatement:
    """A statement that is believed, and the key that has signed it."""

    statement: IndexStatement
    key_id: str


def verify(content: bytes, repository_id: str, keys: TrustedKeys) -> VerifiedStatement:
    """Return what a statement says.

    :raises UnverifiedError: when no trusted key has signed it, or for another repository.
    :raises UnsupportedError: when a newer release wrote it.
    :raises CorruptError: when it is malformed.
    """
    document = SignedDocument.split(content) if len(content) <= STATEMENT_SIZE_MAX else None
    if document is None:
        raise exception.CorruptError(f"{_WHAT} is malformed")
    fields = document.verify(_WHAT, DOMAIN, keys)
    if fields.get("version") != STATEMENT_VERSION:
        raise exception.UnsupportedError(
            f"{_WHAT} has version {fields.get('version')!r:.20}, this release reads "
            f"{STATEMENT_VERSION}"
        )
    if fields.get("repository") != repository_id:
        raise UnverifiedError(
            f"{_WHAT} is signed for repository {fields.get('repository')!s:.40}, and this one is "
            f"{repository_id}",
            reason=RefusalReason.OTHER_SUBJECT,
        )
    try:
        return VerifiedStatement(_parse(fields), document.key_id)
    except ValueError as error:
        raise exception.CorruptError(f"{_WHAT} is malformed: {error}") from error


def check_subject(statement: IndexStatement, index: ImageIndex) -> None:
    """Refuse an index that carries the statement about another one, or about a later state.

    :raises UnverifiedError: when it does.
    """
    if statement.index_id != index.id:
        raise UnverifiedError(
            f"{_WHAT} is signed for another index: somebody has copied it",
            reason=RefusalReason.OTHER_SUBJECT,
        )
    if statement.generation > index.generation:
        raise rolled_back(
            f"the index is at generation {index.generation}, and the statement in it says "
            f"{statement.generation}"
        )


def rolled_back(why: str) -> UnverifiedError:
    """Return the error for an index that somebody has put back."""
    return UnverifiedError(
        f"somebody has put an old index of images back: {why}",
        reason=RefusalReason.ROLLBACK,
        hint="find out who can write to the origin; after it was restored from a backup nothing "
        "needs to be done",
    )


def record_digest(content: bytes) -> str:
    """Return what stands for a record: SHA-256 of the content of the image's ref."""
    return hashlib.sha256(content).hexdigest()


def snapshot_digest(records: Mapping[str, str]) -> str:
    """Return what stands for all records: SHA-256 of a line for each image, by id.

    :param records: :func:`record_digest` by id of the image.
    """
    digest = hashlib.sha256()
    for image_id, record in sorted(records.items()):
        digest.update(f"{image_id} {record}\n".encode())
    return digest.hexdigest()


def _parse(fields: Mapping[str, Any]) -> IndexStatement:
    snapshot = fields.get("snapshot")
    if not isinstance(snapshot, str) or len(snapshot) != _DIGEST_LENGTH:
        raise ValueError("snapshot")
    return IndexStatement(
        str(fields.get("index"))[:64],
        untrusted_json.whole(fields.get("generation"), "generation", 0, _NUMBER_MAX),
        untrusted_json.whole(fields.get("images"), "images", 0, IMAGES_MAX),
        snapshot,
        untrusted_json.whole(fields.get("time"), "time", 0, _NUMBER_MAX),
    )
