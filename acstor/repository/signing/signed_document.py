"""The signed form of a JSON document: the name of the key and the signature are its last fields.

The signature is of the document's exact bytes before its own field, and it is verified before
anything is parsed: it stands at a fixed distance from the end. As a whole the document is JSON, so
that a program of a release that knows no signatures reads the version, and says that it is newer.
"""

import dataclasses
import enum
import json
import re
from collections.abc import Mapping
from typing import Any

from acstor import exception, native, untrusted_json
from acstor.repository.signing.key_files import public_key_of
from acstor.repository.signing.trusted_keys import TrustedKeys

DOCUMENT_SIZE_MAX = 64 << 10
"""Largest signed document, bytes; what is longer is refused before it is looked at."""
_KEY_FIELD = b',\n "key": "%s"'
_SIGNATURE_FIELD = b',\n "signature": "%s"\n}\n'
_END = re.compile(
    rb'\A(?P<signed>.*,\n "key": "(?P<key>[0-9a-f]{64})")'
    rb',\n "signature": "(?P<signature>[0-9a-f]{128})"\n}\n\Z',
    re.DOTALL,
)


class RefusalReason(enum.StrEnum):
    """Reason for which a document is not believed."""

    UNSIGNED = "unsigned"
    """It has no signature, and should have one."""
    UNKNOWN_KEY = "unknown_key"
    """It is signed with a key that is not trusted here, or not any more."""
    BAD_SIGNATURE = "bad_signature"
    """Somebody has changed it who does not have the key."""
    OTHER_SUBJECT = "other_subject"
    """It is signed for another image or repository."""
    ROLLBACK = "rollback"
    """A newer one has been seen."""


class UnverifiedError(exception.CorruptError):
    """A document that is not believed."""

    default_hint = "see 'Signed images' in the administration guide"

    def __init__(self, message: str, *, reason: RefusalReason, hint: str | None = None) -> None:
        """Keep the reason, too."""
        super().__init__(message, hint=hint)
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class SignedDocument:
    """A document with a signature of which nothing is verified."""

    signed: bytes
    key_id: str
    signature: bytes

    @classmethod
    def split(cls, content: bytes) -> "SignedDocument | None":
        """Return the parts of a document in the signed form, None of any other."""
        match = _END.match(content) if len(content) <= DOCUMENT_SIZE_MAX else None
        if match is None:
            return None
        return cls(
            match["signed"], match["key"].decode(), bytes.fromhex(match["signature"].decode())
        )

    def verify(self, what: str, domain: bytes, keys: TrustedKeys) -> dict[str, Any]:
        """Return the fields of a document that a trusted key has signed.

        :param what: names the document in errors.
        :param domain: kind of the document; of another kind no signature counts.
        :raises UnverifiedError: when none has.
        :raises CorruptError: when what was signed is no document.
        """
        key = keys.find(self.key_id)
        if key is None:
            raise UnverifiedError(
                f"{what} is signed with key {self.key_id[:16]}, which is not trusted here",
                reason=RefusalReason.UNKNOWN_KEY,
                hint="put its public key into [repository] public_keys; if the key was taken out "
                "on purpose, sign with another one: 'acstor repository sign'",
            )
        if not key.is_signer_of(_message(domain, self.signed), self.signature):
            raise UnverifiedError(
                f"the signature of {what} is wrong: somebody without the key has written it",
                reason=RefusalReason.BAD_SIGNATURE,
                hint="find out who can write to the origin; remove the image and register it again",
            )
        try:
            fields = untrusted_json.load(self.signed + b"}", what)
        except ValueError as error:
            raise exception.CorruptError(f"{what} is malformed: {error}") from error
        if not isinstance(fields, dict):
            raise exception.CorruptError(f"{what} is malformed")
        return fields


def sign(fields: Mapping[str, object], domain: bytes, key: native.SigningKey) -> bytes:
    """Return a document in the signed form.

    :param fields: of the document, at least one; ``key`` and ``signature`` are added.
    :param domain: kind of the document.
    :raises InvalidError: when it is too long to be read again.
    """
    text = json.dumps(fields, indent=1, sort_keys=True).encode()
    signed = text.removesuffix(b"\n}") + _KEY_FIELD % public_key_of(key).id.encode()
    signature = key.sign(_message(domain, signed)).hex().encode()
    document = signed + _SIGNATURE_FIELD % signature
    if len(document) > DOCUMENT_SIZE_MAX:
        raise exception.InvalidError(
            f"a document of {len(document)} bytes is too long to be signed"
        )
    return document


def _message(domain: bytes, signed: bytes) -> bytes:
    return domain + b"\n" + signed
