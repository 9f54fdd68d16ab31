"""Judgement of the index of images by what the registrar has signed of it.

The index only tells a host which records to read, and each record is believed for itself. So an
index that is not believed is no reason to refuse anything: the host tells of it, and reads all
records once.
"""

import enum
import logging
import time
from collections.abc import Callable, Mapping

from acstor import exception
from acstor.agent.reconcilers.seen_index import SeenIndex
from acstor.repository.images import index_statement
from acstor.repository.images.image_index import ImageIndex
from acstor.repository.images.index_statement import IndexStatement, snapshot_digest
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.signing.signed_document import RefusalReason, UnverifiedError

LOG = logging.getLogger(__name__)

STALE_AFTER = 3600.0
"""Seconds after which a statement is old: twelve times that after which it is signed anew. A clock
that is wrong by more than that is told of likewise."""


class IndexRefusal(enum.StrEnum):
    """Reason for which an index is not believed, beside those of signed documents."""

    MALFORMED = "malformed"
    SNAPSHOT = "snapshot"
    """The records are not those that the registrar has seen."""


REASONS = tuple(
    reason.value
    for reason in (*RefusalReason, *IndexRefusal)
    if reason is not RefusalReason.UNSIGNED
)
"""Everything that may be told: an index without a statement becomes old, and is not refused."""


class IndexTrust:
    """Believes statements about the index of one repository.

    :param on_refused: told the reason each time that an index is not believed.
    :param on_age: told the age of the newest statement at each pass.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        verifier: RecordVerifier,
        seen: SeenIndex,
        on_refused: Callable[[str], None] = lambda reason: None,
        on_age: Callable[[float], None] = lambda seconds: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._on_age = on_age
        self._verifier = verifier
        self._seen = seen
        self._on_refused = on_refused
        self._clock = clock
        self._newest = clock()
        """Time of the newest statement; at first that at which this host began to look."""
        self._problem: str | None = None
        self._is_stale = False

    def judge(self, index: ImageIndex) -> IndexStatement | None:
        """Return what is stated of an index, None where nothing is that can be believed."""
        if index.statement is None:
            self._note_problem(None)  # it becomes old, which is told of
            return None
        try:
            statement = self._verified(index.statement, index)
        except UnverifiedError as error:
            self._refuse(error.reason.value, exception.one_line(error))
            return None
        except (exception.CorruptError, exception.UnsupportedError) as error:
            self._refuse(IndexRefusal.MALFORMED.value, exception.one_line(error))
            return None
        self._newest = float(statement.time)
        self._note_problem(None)
        return statement

    def report_age(self) -> None:
        """Tell the age of the newest statement that was believed, seconds; log when it is old.

        It is negative where the registrar's clock is ahead of this host's.
        """
        age = self._clock() - self._newest
        self._on_age(age)
        is_stale = abs(age) > STALE_AFTER
        if is_stale and not self._is_stale:
            LOG.warning(
                "the newest statement about the index of images is %.0f s old: no registrar with "
                "a key leads, somebody keeps the index as it was, or a clock is wrong", age,
            )  # fmt: skip
        self._is_stale = is_stale

    def refuse_snapshot(self, statement: IndexStatement) -> None:
        """Tell that the records here, all of them just read, are not those of the statement."""
        self._refuse(
            IndexRefusal.SNAPSHOT.value,
            f"the records of images are not the {statement.images} that the registrar has stated "
            "at this generation: somebody has put an old one back, or taken one away",
        )

    def _verified(self, text: str, index: ImageIndex) -> IndexStatement:
        verifier = self._verifier
        verified = index_statement.verify(text.encode(), verifier.repository_id, verifier.keys)
        statement = verified.statement
        index_statement.check_subject(statement, index)
        seen = self._seen.find(verified.key_id)
        if seen is not None and seen.is_newer_than(statement):
            raise index_statement.rolled_back(
                f"it is of generation {statement.generation}, and this host has seen "
                f"{seen.generation}"
            )
        self._seen.note(verified)
        return statement

    def _refuse(self, reason: str, text: str) -> None:
        self._on_refused(reason)
        self._note_problem(text)

    def _note_problem(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            LOG.warning("the index of images is not believed: %s", problem)
        self._problem = problem


def is_as_stated(statement: IndexStatement, records: Mapping[str, str]) -> bool:
    """Return whether records are those of a statement.

    :param records: digest of each by id of the image.
    """
    return snapshot_digest(records) == statement.snapshot
