"""Signing the records of all images with one key: when signing begins, and when a key is replaced.

Nothing is signed that was not believed: a record that an unknown key has signed, or that was
changed, is refused, and the image has to be registered anew. Killed at any moment it goes on where
it was.
"""

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator

from acstor import exception
from acstor.repository import layout
from acstor.repository.images.record_writer import SignedRecords
from acstor.repository.images.signed_record import VerifiedRecord, unsigned
from acstor.repository.progress import Progress
from acstor.repository.repository import Repository

BATCH_SIZE = 256
"""Images whose generations are reserved at once."""
_ROUNDS_MAX = 3
"""Attempts at a record that others change meanwhile."""


@dataclasses.dataclass(slots=True)
class SigningReport:
    """Report of a run."""

    key: str
    images: int = 0
    signed: int = 0
    """Records that were signed now, those that were adopted included."""
    adopted: int = 0
    """Of these, those that had no signature before."""
    unchanged: int = 0
    """Records that the key had signed already."""
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    """By id of the image, why its record was not signed."""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Signable:
    """A record to sign, and the ref that it was in."""

    image_id: str
    known: VerifiedRecord
    token: str


class Resigning:
    """Signs the records of one repository.

    :param adopt_unsigned: sign records without a signature as they are; else they are refused.
    :param are_all_signed_anew: also those that the key has signed already.
    """

    def __init__(
        self,
        repository: Repository,
        records: SignedRecords,
        *,
        adopt_unsigned: bool = False,
        are_all_signed_anew: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Keep what to sign with."""
        self._repository = repository
        self._origin = repository.origin
        self._records = records
        self._adopt_unsigned = adopt_unsigned
        self._are_all_signed_anew = are_all_signed_anew
        self._progress = progress or Progress()

    def run(self) -> SigningReport:
        """Sign every record that the key has not signed yet.

        :raises UnavailableError: when the origin fails; what was signed is signed.
        """
        started = time.monotonic()
        report = SigningReport(self._records.key_id)
        images = sorted(self._repository.list_image_ids())
        self._progress.begin("signing records", len(images))
        for batch in _batches(images):
            self._sign(batch, report)
            self._progress.advance(len(batch))
        report.seconds = round(time.monotonic() - started, 3)
        return report

    def _sign(self, images: list[str], report: SigningReport) -> None:
        left = images
        for _ in range(_ROUNDS_MAX):
            left = self._sign_once(left, report)
            if not left:
                return
        for image_id in left:
            report.images += 1
            report.refused[image_id] = "somebody else changes it all the time; try again"

    def _sign_once(self, images: list[str], report: SigningReport) -> list[str]:
        """Sign what can be signed; return the images that somebody else has changed meanwhile."""
        found = [each for image_id in images if (each := self._read(image_id, report)) is not None]
        if not found:
            return []
        above = max(each.known.generation for each in found)
        first = self._records.generations(self._repository).reserve(len(found), above)
        changed = []
        for generation, each in enumerate(found, first):
            content = self._records.encode_as(
                self._repository, each.image_id, each.known.record, generation
            )
            name = layout.image_ref(each.image_id)
            try:
                with self._repository.image_index.changing(each.image_id):
                    self._origin.swap_ref(name, each.token, content)
            except exception.ConflictError:
                changed.append(each.image_id)
                continue
            report.images += 1
            report.signed += 1
            report.adopted += each.known.key_id is None
        return changed

    def _read(self, image_id: str, report: SigningReport) -> _Signable | None:
        """Return a record that is to be signed; note in the report why another one is not."""
        try:
            ref = self._origin.get_ref(layout.image_ref(image_id))
            if ref is None:
                return None  # removed since the listing
            known = self._records.verify(self._repository, image_id, ref.content)
            if known.key_id is None and not self._adopt_unsigned:
                raise unsigned(image_id)
        except (exception.CorruptError, exception.UnsupportedError) as error:
            report.images += 1
            report.refused[image_id] = exception.one_line(error, with_hint=True)
            return None
        if known.key_id == self._records.key_id and not self._are_all_signed_anew:
            report.images += 1
            report.unchanged += 1
            return None
        return _Signable(image_id, known, ref.token)


def _batches(images: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(images)
    while batch := list(itertools.islice(remaining, BATCH_SIZE)):
        yield batch
