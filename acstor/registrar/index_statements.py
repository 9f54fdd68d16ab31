"""Signing what the index of images carries: a digest of all records, and the time.

What is there is not signed because it is there: whoever can write to the origin could have put it.
A record counts when a trusted key has signed it, or nobody and nobody ever had, and when it is not
older than the one that was seen before; else the former one counts, and hosts tell of the
difference. A registrar that begins to lead has seen none: it takes what is verified.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable

from acstor import exception
from acstor.repository import layout
from acstor.repository.images.image_index import ImageIndex
from acstor.repository.images.index_statement import (
    IndexStatement,
    record_digest,
    snapshot_digest,
)
from acstor.repository.images.record_writer import SignedRecords
from acstor.repository.images.signed_record import VerifiedRecord
from acstor.repository.repository import Repository

LOG = logging.getLogger(__name__)

RENEWED_AFTER = 300.0
"""Seconds after which a statement is signed anew although nothing has changed: a twelfth of the age
from which hosts tell of an old one."""
READ_AGAIN_AFTER = 3600.0
"""Seconds after which all records are read again, whatever the index says of changes."""


@dataclasses.dataclass(slots=True)
class _Seen:
    """A record that counts."""

    digest: str
    generations: dict[str, int] = dataclasses.field(default_factory=dict)
    """By key, the highest that was seen; none: it is not signed."""


class IndexStatements:
    """Signs statements about one repository.

    :param records: verifies records, and signs.
    :param clock: seconds since the epoch.
    :param monotonic: seconds.
    """

    def __init__(
        self,
        repository: Repository,
        records: SignedRecords,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without having seen anything."""
        self._repository = repository
        self._records = records
        self._clock = clock
        self._monotonic = monotonic
        self._followed: ImageIndex | None = None
        self._all_at = 0.0
        self._seen: dict[str, _Seen] = {}
        self._present: set[str] = set()
        self._signed_at = 0.0
        self._signed: IndexStatement | None = None
        self._text: str | None = None

    def keep(self, index: ImageIndex) -> None:
        """Have the index carry a statement about what is registered, where it needs another one.

        While an image is being changed there is none: which record it has is not certain.

        :param index: as it was read before.
        :raises UnavailableError: when the origin cannot be reached.
        """
        if index.open:
            return
        self._read(index)
        self._followed = index
        records = {image_id: self._seen[image_id].digest for image_id in self._present}
        snapshot = snapshot_digest(records)
        now = int(self._clock())
        statement = IndexStatement(index.id, index.generation, len(records), snapshot, now)
        if not self._is_due(index, statement):
            return
        text = self._records.state(self._repository, statement).decode()
        if self._repository.image_index.put_statement(index, text):
            self._text, self._signed, self._signed_at = text, statement, self._monotonic()

    def _is_due(self, index: ImageIndex, statement: IndexStatement) -> bool:
        if self._signed is None or index.statement != self._text:
            return True
        is_same = dataclasses.replace(self._signed, time=statement.time) == statement
        return not is_same or self._monotonic() - self._signed_at >= RENEWED_AFTER

    def _read(self, index: ImageIndex) -> None:
        """Read the records that may have changed since the index was read last."""
        followed, now = self._followed, self._monotonic()
        changed: Iterable[str] | None = None
        if followed is not None and followed.id == index.id and now < self._all_at:
            changed = index.changed_since(followed.generation)
        if changed is None:
            changed = set(self._repository.list_image_ids())
            self._present &= changed
            self._all_at = now + READ_AGAIN_AFTER
        for image_id in sorted(changed):
            self._read_one(image_id)

    def _read_one(self, image_id: str) -> None:
        seen = self._seen.get(image_id)
        try:
            ref = self._repository.origin.get_ref(layout.image_ref(image_id))
            if ref is None:
                self._present.discard(image_id)
                return
            known = self._records.verify(self._repository, image_id, ref.content)
        except exception.UnavailableError:
            raise
        except exception.AcstorError as error:
            LOG.warning("%s; what is stated of it stays", exception.one_line(error))
        else:
            if _is_older(known, seen):
                LOG.warning(
                    "the record of image %s is older than one that was there before: somebody has "
                    "put it back; what is stated of it stays", image_id,
                )  # fmt: skip
            else:
                seen = self._seen[image_id] = _noted(known, seen, record_digest(ref.content))
        if seen is not None:
            self._present.add(image_id)


def _is_older(known: VerifiedRecord, seen: _Seen | None) -> bool:
    """Return whether a record cannot be the successor of what was seen."""
    if seen is None or not seen.generations:
        return False
    if known.key_id is None:
        return True
    return known.generation < seen.generations.get(known.key_id, 0)


def _noted(known: VerifiedRecord, seen: _Seen | None, digest: str) -> _Seen:
    generations = dict(seen.generations) if seen is not None else {}
    if known.key_id is not None:
        generations[known.key_id] = known.generation
    return _Seen(digest, generations)
