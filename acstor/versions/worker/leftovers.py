"""Leftovers of tasks that have ended: what undoing could not undo when it was tried.

A host was silent, or the origin away. What a task names in a record has the task's id in it, so it
is known when nobody needs it any more: uses of versions, captures that are not committed, and locks
of servers. The use that an image is of a version ends when the image was deleted in Glance.
"""

import logging
from collections.abc import Iterator

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.states import VersionState
from acstor.repository.versions.store import VersionStore
from acstor.versions import rebuilding
from acstor.versions.database import index_refresh
from acstor.versions.database.opening import Stores
from acstor.versions.database.tasks import PAGE_MAX, Position
from acstor.versions.database.version_index import (
    IndexedVersion,
    SortKey,
    VersionQuery,
    position_of,
)
from acstor.versions.services.services import Services

LOG = logging.getLogger(__name__)

TASK_USES = frozenset({"export", "restore"})
"""Kinds of uses that have the id of a task as their name."""
IMAGE_USE = "image"
"""Kind of the use that has the id of an image as its name."""


class Leftovers:
    """Leftovers in the records of versions, and in other services.

    :param versions: in the origin.
    """

    def __init__(self, stores: Stores, versions: VersionStore, services: Services) -> None:
        """Keep where to look."""
        self._stores = stores
        self._versions = versions
        self._images = services.image_store
        self._compute = services.compute

    def remove(self) -> int:
        """Remove them; return of how many versions and servers there were some.

        Tasks that the database does not know are left alone: it may have been lost.

        :raises UnavailableError: when origin or database cannot be reached; the next one goes on.
        """
        count = 0
        for row in self._rows():
            if row.is_used:
                count += self._end_uses(row.id)
            elif row.state is VersionState.CAPTURED and self._is_ended(row.group):
                count += self._abandon(row)
        return count + self._unlock()

    def _unlock(self) -> int:
        """Take off the locks of tasks that have ended; Nova may be away, or not used at all."""
        count = 0
        try:
            for server in self._compute.locked_servers():
                task_id = rebuilding.task_of_lock(server.lock_reason)
                if self._is_ended(task_id):
                    LOG.warning("server %s is unlocked: task %s has ended", server.id, task_id)
                    self._compute.unlock(server.id)
                    count += 1
        except exception.AcstorError as error:
            LOG.warning("locks of servers are not swept: %s", exception.one_line(error))
        return count

    def _rows(self) -> Iterator[IndexedVersion]:
        after: Position | None = None
        while True:
            page = self._stores.versions.page(VersionQuery(after=after, shows_condemned=True))
            yield from page
            if len(page) < PAGE_MAX:
                return
            after = position_of(page[-1], SortKey.CREATED_AT)

    def _end_uses(self, version_id: str) -> bool:
        version = version_refs.find_version(self._versions.repository.origin, version_id)
        uses = () if version is None else version.record.uses
        ended = [use for use in uses if self._is_over(use)]
        for use in ended:
            LOG.info("version %s is let go: %s has ended", version_id, use)
            self._versions.end_use(version_id, use)
        return self._refreshed(version_id) if ended else False

    def _is_over(self, use: str) -> bool:
        kind, _, name = use.partition("/")
        if kind in TASK_USES:
            return self._is_ended(name)
        return kind == IMAGE_USE and self._is_deleted(name)

    def _is_deleted(self, image_id: str) -> bool:
        """Return whether an image is gone; while Glance cannot say, it is there."""
        try:
            return self._images.find(image_id) is None
        except exception.AcstorError as error:
            LOG.warning("whether image %s is there is not known: %s", image_id, error)
            return False

    def _abandon(self, row: IndexedVersion) -> bool:
        try:
            self._versions.abandon(row.id)
        except (exception.NotFoundError, exception.FencedError):
            return False  # the host was quicker
        LOG.warning("version %s is abandoned: its capture on %s failed", row.id, row.host)
        return self._refreshed(row.id)

    def _refreshed(self, version_id: str) -> bool:
        origin = self._versions.repository.origin
        index_refresh.refresh(self._stores.versions, origin, version_id)
        return True

    def _is_ended(self, task_id: str | None) -> bool:
        if task_id is None:
            return False
        try:
            return self._stores.tasks.get(task_id).is_finished
        except exception.NotFoundError:
            return False
