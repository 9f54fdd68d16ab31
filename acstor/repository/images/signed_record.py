"""Signed records of images: writing one, and believing one.

The signature is of everything that names an image's content, of the image and the repository, and
of a *generation*, which grows with each record that is signed: who has seen one refuses an older
one of the same key. Nothing in a record is written by hosts.
"""

import dataclasses

from acstor import exception, native, untrusted_json
from acstor.repository.images.image_record import RECORD_VERSION, ImageRecord
from acstor.repository.signing import signed_document
from acstor.repository.signing.signed_document import (
    RefusalReason,
    SignedDocument,
    UnverifiedError,
)
from acstor.repository.signing.trusted_keys import TrustedKeys

DOMAIN = b"acstor image 2"
"""Kind of document that is signed; the number is the record's version."""
GENERATION_MAX = (1 << 53) - 1
"""Largest generation: that which every JSON reader has exactly."""


@dataclasses.dataclass(frozen=True, slots=True)
class VerifiedRecord:
    """A record that is believed."""

    record: ImageRecord
    key_id: str | None = None
    """Key that has signed it; None: nobody, and none was required."""
    generation: int = 0
    """Grows with each record that is signed; 0: it is not signed."""


def encode(
    record: ImageRecord,
    *,
    repository_id: str,
    image_id: str,
    generation: int,
    key: native.SigningKey,
) -> bytes:
    """Return the content of an image's ref, signed."""
    fields = {
        "version": RECORD_VERSION,
        "repository": repository_id,
        "image": image_id,
        "generation": generation,
        **record.fields(),
    }
    return signed_document.sign(fields, DOMAIN, key)


class RecordVerifier:
    """Believes records of one repository.

    :param keys: any of them may have signed a record.
    :param require_signatures: whether a record without a signature is refused. One that has a
        signature needs a good one in any case.
    """

    def __init__(self, repository_id: str, keys: TrustedKeys, *, require_signatures: bool) -> None:
        """Keep by what to judge."""
        self.repository_id = repository_id
        self.keys = keys
        self.requires_signatures = require_signatures

    def verify(self, content: bytes, image_id: str) -> VerifiedRecord:
        """Return what an image's ref says, if it is to be believed.

        Whether a newer record was seen before is for the caller to know.

        :raises UnverifiedError: when it is not.
        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed.
        """
        what = f"the record of image {image_id}"
        document = SignedDocument.split(content)
        if document is None:
            if self.requires_signatures:
                raise unsigned(image_id)
            return VerifiedRecord(ImageRecord.parse(content, image_id))
        fields = document.verify(what, DOMAIN, self.keys)
        try:
            generation = untrusted_json.whole(
                fields.get("generation"), "generation", 1, GENERATION_MAX
            )
        except ValueError as error:
            raise exception.CorruptError(f"{what} is malformed: {error}") from error
        if fields.get("version") != RECORD_VERSION:
            raise exception.UnsupportedError(
                f"{what} has version {fields.get('version')!r:.20} and a signature"
            )
        self._check_subject(what, image_id, fields.get("image"), fields.get("repository"))
        return VerifiedRecord(ImageRecord.of_fields(fields, image_id), document.key_id, generation)

    def _check_subject(
        self, what: str, image_id: str, image: object, repository_id: object
    ) -> None:
        """Refuse a good signature that stands elsewhere than it was made for."""
        if image != image_id:
            raise UnverifiedError(
                f"{what} is signed for image {image!s:.40}: somebody has copied it",
                reason=RefusalReason.OTHER_SUBJECT,
            )
        if repository_id != self.repository_id:
            raise UnverifiedError(
                f"{what} is signed for repository {repository_id!s:.40}, and this one is "
                f"{self.repository_id}",
                reason=RefusalReason.OTHER_SUBJECT,
            )


def unsigned(image_id: str) -> UnverifiedError:
    """Return the error for a record that has no signature and has to have one."""
    return UnverifiedError(
        f"the record of image {image_id} is not signed",
        reason=RefusalReason.UNSIGNED,
        hint="sign it on a controller: 'acstor repository sign --adopt-unsigned'",
    )
