"""Writing the records of images: signed where there is a key."""

import abc
import time
from collections.abc import Callable

from acstor import exception, native
from acstor.repository.images import signed_record
from acstor.repository.images.generations import Generations
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.images.index_statement import IndexStatement
from acstor.repository.images.signed_record import RecordVerifier, VerifiedRecord
from acstor.repository.repository import Repository
from acstor.repository.signing.key_files import public_key_of
from acstor.repository.signing.signed_document import SignedDocument
from acstor.repository.signing.trusted_keys import TrustedKeys


class RecordWriter(abc.ABC):
    """Makes the content of images' refs."""

    @abc.abstractmethod
    def encode(
        self, repository: Repository, image_id: str, record: ImageRecord, present: bytes | None
    ) -> bytes:
        """Return the content of an image's ref that says a record.

        :param present: what the ref holds now; None: there is none.
        :raises AcstorError: when it cannot, or must not, be written.
        """

    @abc.abstractmethod
    def is_current(self, repository: Repository, image_id: str, present: bytes) -> bool:
        """Return whether a ref need not be written anew while its image is the same."""


class UnsignedRecords(RecordWriter):
    """Writes records without a signature."""

    def encode(
        self, repository: Repository, image_id: str, record: ImageRecord, present: bytes | None
    ) -> bytes:
        """Return the content of a ref, of version 1.

        :raises InvalidError: when what is there is signed: hosts would not take it any more.
        """
        if present is not None and SignedDocument.split(present) is not None:
            raise exception.InvalidError(
                f"the record of image {image_id} is signed, and this machine has no key",
                hint="set [repository] signing_key, or register on a controller that has it",
            )
        return record.encode()

    def is_current(self, repository: Repository, image_id: str, present: bytes) -> bool:
        """Return True: without a key nothing could be made of it."""
        return True


class SignedRecords(RecordWriter):
    """Signs records with one key.

    :param keys: that are believed besides, of records that are there already.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        key: native.SigningKey,
        keys: TrustedKeys,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keep what to sign with."""
        self._key = key
        self._keys = keys.including(public_key_of(key))
        self._clock = clock

    @property
    def key_id(self) -> str:
        """Id of the key that signs."""
        return public_key_of(self._key).id

    def encode(
        self, repository: Repository, image_id: str, record: ImageRecord, present: bytes | None
    ) -> bytes:
        """Return the content of a ref, of version 2, above all generations before."""
        known = None if present is None else self.believed(repository, image_id, present)
        above = 0 if known is None else known.generation
        generation = self.generations(repository).reserve(1, above)
        return self.encode_as(repository, image_id, record, generation)

    def is_current(self, repository: Repository, image_id: str, present: bytes) -> bool:
        """Return whether this key has signed what the ref holds."""
        known = self.believed(repository, image_id, present)
        return known is not None and known.key_id == self.key_id

    def generations(self, repository: Repository) -> Generations:
        """Return what counts the generations of a repository."""
        return Generations(
            repository.origin, repository.format.id, self._key, self._keys, self._clock
        )

    def encode_as(
        self, repository: Repository, image_id: str, record: ImageRecord, generation: int
    ) -> bytes:
        """Return the content of a ref with a generation that was reserved for it."""
        return signed_record.encode(
            record,
            repository_id=repository.format.id,
            image_id=image_id,
            generation=generation,
            key=self._key,
        )

    def state(self, repository: Repository, statement: IndexStatement) -> bytes:
        """Return a statement about the index of a repository, signed."""
        return statement.encode(repository.format.id, self._key)

    def verify(self, repository: Repository, image_id: str, present: bytes) -> VerifiedRecord:
        """Return what a ref says, signed or not; errors as :meth:`RecordVerifier.verify`."""
        self._keys.refresh()
        verifier = RecordVerifier(repository.format.id, self._keys, require_signatures=False)
        return verifier.verify(present, image_id)

    def believed(
        self, repository: Repository, image_id: str, present: bytes
    ) -> VerifiedRecord | None:
        """Return what a ref says, None where that is not to be believed."""
        try:
            return self.verify(repository, image_id, present)
        except (exception.CorruptError, exception.UnsupportedError):
            return None
