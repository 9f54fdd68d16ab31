"""Records of images as a host reads them: believed, or refused with the reason."""

import logging
from collections.abc import Callable, Collection, Mapping

from acstor.agent.reconcilers.seen_records import SeenRecords
from acstor.origin.base import Origin
from acstor.repository import layout
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.images.index_statement import record_digest
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.signing.signed_document import RefusalReason, UnverifiedError

LOG = logging.getLogger(__name__)


class ImageRecords:
    """Reads the records of one repository.

    :param on_refused: told the reason each time that a record is refused.
    """

    def __init__(
        self,
        origin: Origin,
        verifier: RecordVerifier,
        seen: SeenRecords,
        on_refused: Callable[[RefusalReason], None] = lambda reason: None,
    ) -> None:
        self._origin = origin
        self._verifier = verifier
        self._seen = seen
        self._on_refused = on_refused
        self._digests: dict[str, str] = {}

    @property
    def digests(self) -> Mapping[str, str]:
        """Digest of each record, believed or not, as it was read last; by id of the image."""
        return self._digests

    @property
    def key_problems(self) -> Mapping[str, str]:
        """By path, why what is in the directory of keys is not used."""
        return self._verifier.keys.problems

    def begin(self) -> bool:
        """Look at the keys; return whether other ones are trusted than at the pass before.

        :raises UnsupportedError: when a newer release wrote what this host has seen.
        :raises OSError: when that cannot be read.
        """
        self._seen.load()
        is_changed = self._verifier.keys.refresh()
        if is_changed:
            LOG.info("%d public keys are trusted to sign images", len(self._verifier.keys))
        return is_changed

    def read(self, image_id: str) -> ImageRecord | None:
        """Return an image's record, None when it is not registered.

        :raises UnverifiedError: when it is not to be believed.
        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        :raises UnavailableError: when the origin cannot be reached.
        """
        ref = self._origin.get_ref(layout.image_ref(image_id))
        self._digests.pop(image_id, None)
        if ref is None:
            return None
        self._digests[image_id] = record_digest(ref.content)
        try:
            known = self._verifier.verify(ref.content, image_id)
            self._seen.check(image_id, known)
        except UnverifiedError as error:
            self._on_refused(error.reason)
            raise
        self._seen.note(image_id, known)
        return known.record

    def remember(self, registered: Collection[str]) -> None:
        """Have the disk know what was read, before anything is attached on its word.

        :param registered: images that are in the origin now.
        :raises OSError: when it cannot be written; nothing may then be attached.
        """
        self._seen.save(registered)

    def check_former(self, image_id: str, manifest: str) -> None:
        """Refuse a manifest of an image without a record that no signed record has named.

        What this host had attached is told by a document that others may write.

        :raises UnverifiedError: when one should have.
        """
        if self._seen.has_seen(image_id, manifest):
            return
        if self._verifier.requires_signatures or self._seen.is_signed(image_id):
            self._on_refused(RefusalReason.UNSIGNED)
            raise UnverifiedError(
                f"no signed record of image {image_id} that this host has seen names manifest "
                f"{manifest[:16]}",
                reason=RefusalReason.UNSIGNED,
                hint="register the image again",
            )
