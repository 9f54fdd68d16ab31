"""Upkeep of the index of images: what writers that were killed have left is ended."""

import logging
import time
from collections.abc import Callable

from acstor import exception
from acstor.registrar.index_statements import IndexStatements
from acstor.repository.images.image_index import ImageIndex, ImageIndexWriter

LOG = logging.getLogger(__name__)

LEFT_AFTER = 600.0
"""Seconds after which a change that stays under way is taken for left by its writer. One that was
only slow notes it all the same when it ends."""


class IndexUpkeep:
    """The leading registrar's part in the index of images.

    :param clock: monotonic seconds.
    :param statements: signs what the index carries; None: there is no key.
    """

    def __init__(
        self,
        index: ImageIndexWriter,
        clock: Callable[[], float] = time.monotonic,
        statements: IndexStatements | None = None,
    ) -> None:
        self._index = index
        self._statements = statements
        self._clock = clock
        self._seen: dict[str, float] = {}

    def keep(self) -> int:
        """Have an index that can be read, and close what was left open; return how much that was.

        Then have what signs state what is registered, where the registrar has a key.

        :raises UnavailableError: when the origin cannot be reached.
        :raises UnsupportedError: when a newer release wrote the index.
        """
        state = self._index.ensure()
        opened = {} if state is None else dict(state.open)
        now = self._clock()
        self._seen = {nonce: self._seen.get(nonce, now) for nonce in opened}
        left = {
            nonce: image_id
            for nonce, image_id in opened.items()
            if now - self._seen[nonce] >= LEFT_AFTER
        }
        self._index.close_left(left)
        if state is not None and self._statements is not None:
            self._state(self._statements, state)
        return len(left)

    def _state(self, statements: IndexStatements, state: ImageIndex) -> None:
        """Have it stated; where that cannot be, as in a full origin, the rest goes on."""
        try:
            statements.keep(state)
        except exception.UnavailableError:
            raise
        except exception.AcstorError as error:
            LOG.warning("nothing new is stated of the images: %s", exception.one_line(error))
