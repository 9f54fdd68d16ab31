"""Images that are registered, followed by the index of their changes."""

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping

from acstor import exception
from acstor.agent.reconcilers.index_trust import IndexTrust, is_as_stated
from acstor.backoff import jittered
from acstor.origin.base import Ref, RefStore
from acstor.repository import layout
from acstor.repository.images.image_index import INDEX_REF, ImageIndex
from acstor.repository.images.index_statement import IndexStatement

LOG = logging.getLogger(__name__)

LISTING_INTERVAL = 600.0
"""Seconds, with jitter, after which all images are listed although the index names each change."""
UNINDEXED_RECHECK = 60.0
"""Seconds after which an image's refs are read again where there is no index: an image that was
published anew is noticed so late."""


class RegisteredImages:
    """Ids of the images that are registered, and which of them have to be read.

    With an index a look costs one conditional read however many images there are. One image more is
    read at each look, each in its turn: what somebody wrote without the index shows in the end.

    :param has_index: whether the repository has one; without, all images are listed at each look.
    :param trust: judges the index; None: signatures are not required.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        refs: RefStore,
        *,
        has_index: bool,
        trust: IndexTrust | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trust = trust
        self._statement: IndexStatement | None = None
        self._reread_for: IndexStatement | None = None
        self._reads_all = False
        self._refs = refs
        self._has_index = has_index
        self._clock = clock
        self._ref: Ref | None = None
        self._followed: ImageIndex | None = None
        self._reread_at: float | None = None
        self._list_at = 0.0
        self._ids: set[str] = set()
        self._stale: set[str] = set()
        self._read_at: dict[str, float] = {}
        self._turns: Iterator[str] = iter(())
        self._problem: str | None = None

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the images that are registered, as far as they were read since the last look."""
        return frozenset(self._ids)

    def refresh(self) -> frozenset[str]:
        """Return the ids of the images that are registered, or may be: those that have changed.

        :raises UnavailableError: when the origin cannot be reached.
        """
        # Before the listing: what changes between the two is read again at the next look.
        index = self._index()
        changed = self._changed(index)
        now = self._clock()
        if index is None or changed is None or now >= self._list_at:
            self._list()
            self._list_at = now + jittered(LISTING_INTERVAL)
        self._ids |= changed or set()
        if index is not None:
            self._stale |= self._ids if changed is None else changed
            self._stale |= self._next_turn()
        self._followed = index
        return self.ids

    def is_stale(self, image_id: str) -> bool:
        """Return whether an image has to be read again."""
        read_at = self._read_at.get(image_id)
        if read_at is None or image_id in self._stale:
            return True
        return self._followed is None and self._clock() - read_at >= UNINDEXED_RECHECK

    def note_read(self, image_id: str, *, is_registered: bool) -> None:
        """Note that an image's refs were read after the last look."""
        self._stale.discard(image_id)
        if is_registered:
            self._read_at[image_id] = self._clock()
        else:
            self.forget(image_id)
            self._ids.discard(image_id)

    def forget(self, image_id: str) -> None:
        """Have an image read again at the next look."""
        self._read_at.pop(image_id, None)

    def judge_again(self) -> None:
        """Have the index judged anew at the next look: other keys are trusted."""
        self._ref = self._reread_at = None

    def compare(self, digests: Mapping[str, str]) -> None:
        """Compare what was read with what the registrar has stated; tell of a difference.

        Only where the statement is about the index as it is, and no image is being changed. What
        differs is read anew once; it is told of when it still differs then.

        :param digests: of the records that were read, by id of the image.
        """
        if self._trust is None or not self._has_index:
            return
        self._trust.report_age()
        statement, index = self._statement, self._followed
        if statement is None or index is None or self._ref is None:
            return
        is_about_this = index.generation == statement.generation and not index.open
        if not is_about_this or self._stale or not self._ids <= digests.keys():
            return
        if is_as_stated(statement, {one: digests[one] for one in self._ids}):
            return
        now = self._refs.refresh_ref(INDEX_REF, self._ref)
        if now is None or now.token != self._ref.token:
            return  # a record may have changed since the index was read
        if self._reread_for != statement:
            self._reread_for = statement
            self._reads_all = True
        else:
            self._trust.refuse_snapshot(statement)

    def _judge(self, index: ImageIndex | None) -> None:
        if self._trust is None:
            return
        self._statement = None if index is None else self._trust.judge(index)
        if index is not None and index.statement is not None and self._statement is None:
            self._reads_all = True  # what it says of changes may be wrong

    def _index(self) -> ImageIndex | None:
        if not self._has_index:
            return None
        now = self._clock()
        if self._reread_at is None or now >= self._reread_at:
            ref = self._refs.get_ref(INDEX_REF)
            self._reread_at = now + jittered(LISTING_INTERVAL)
        else:
            ref = self._refs.refresh_ref(INDEX_REF, self._ref)
        if ref is not None and self._ref is not None and ref.token == self._ref.token:
            return self._followed
        try:
            index = None if ref is None else ImageIndex.parse(ref.content)
        except (exception.CorruptError, exception.UnsupportedError) as error:
            self._ref = self._reread_at = None  # read, and told of, until somebody mends it
            self._note_problem(exception.one_line(error))
            return None
        self._note_problem(None)
        self._judge(index)
        self._ref = ref  # from here on it is known; what fails before is done again
        return index

    def _note_problem(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            LOG.warning("%s; all images are listed at each look", problem)
        self._problem = problem

    def _changed(self, index: ImageIndex | None) -> set[str] | None:
        """Return the images that may have changed since the last look; None: all may have."""
        followed = self._followed
        reads_all, self._reads_all = self._reads_all, False
        if index is None or followed is None or followed.id != index.id or reads_all:
            return None
        changed = index.changed_since(followed.generation)
        if changed is None:
            LOG.warning(
                "the index of images is at generation %d, and was followed to %d: all are read",
                index.generation, followed.generation,
            )  # fmt: skip
            return None
        return set(changed)

    def _list(self) -> None:
        names = self._refs.list_refs(layout.IMAGE_PREFIX)
        self._ids = {name.removeprefix(layout.IMAGE_PREFIX) for name in names}
        self._read_at = {one: at for one, at in self._read_at.items() if one in self._ids}
        self._stale &= self._ids

    def _next_turn(self) -> set[str]:
        turn = set(itertools.islice(self._turns, 1))
        if not turn:
            # In another order on each host: they read different images at one time.
            order = sorted(self._ids)
            random.shuffle(order)
            self._turns = iter(order)
            turn = set(itertools.islice(self._turns, 1))
        return turn & self._ids
