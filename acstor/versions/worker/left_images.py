"""Images that tasks left in Glance: a worker died for good, or Glance was away at the undoing.

A flow removes what it has made on every path, and names in the log what it could not. This is the
rest. Whoever owns an image may change what it says of itself, and a snapshot of a server has the
properties of the server's image. So an image is deleted only where all of this holds:

* it was made by a task that the database knows, of a kind that makes images, of the same project;
* it is the image that was made, not one that has its properties from that;
* the task has ended, longer ago than the grace period, and is not the one whose result it is;
* no version has it to boot from, and no task is at work with its version;
* no server is of it.

What cannot be found out keeps the image until the next sweep.
"""

import datetime
import itertools
import logging
from collections.abc import Callable

from acstor import exception
from acstor.repository.versions import version_refs
from acstor.repository.versions.store import VersionStore
from acstor.versions.database.opening import Stores
from acstor.versions.database.tasks import KEEP_DAYS, Task, TaskKind
from acstor.versions.flows import export_version, make_image
from acstor.versions.services.image_store import MadeImage
from acstor.versions.services.services import Services

LOG = logging.getLogger(__name__)

KINDS = frozenset({TaskKind.EXPORT, TaskKind.IMAGE, TaskKind.RESTORE})
"""Kinds of tasks that make images."""
LOOKED_MAX = 10_000
"""Images that one sweep looks at, the youngest first."""
DELETED_MAX = 50
"""Images that one sweep deletes: stores may take minutes for a large one."""
LOOK_BACK = datetime.timedelta(days=KEEP_DAYS + 30)
"""Age of the oldest image that is looked at: the task of an older one is not known any more."""
_TASK_USES = (export_version.USE, export_version.RESTORE_USE)


class LeftImages:
    """Images in Glance that nobody needs.

    :param grace: for which an image of a task that has ended is left alone.
    :param count: called for each that is deleted.
    """

    def __init__(
        self,
        stores: Stores,
        versions: VersionStore,
        services: Services,
        grace: datetime.timedelta,
        *,
        count: Callable[[], object] = lambda: None,
        now: Callable[[], datetime.datetime] = version_refs.utc_now,
    ) -> None:
        """Keep where to look."""
        self._tasks = stores.tasks
        self._versions = versions
        self._images = services.image_store
        self._compute = services.compute
        self._grace = grace
        self._count = count
        self._now = now

    def remove(self) -> int:
        """Delete them; return how many. A service that is away ends the sweep with a warning."""
        deleted = 0
        try:
            # First all, then each: a page may begin behind an image that is deleted.
            for image, task in self._of_ended_tasks():
                deleted += self._delete(image, task)
                if deleted == DELETED_MAX:
                    LOG.warning("%d images were deleted; the next sweep goes on", deleted)
                    break
        except exception.AcstorError as error:
            LOG.warning("images in Glance are not swept: %s", exception.one_line(error))
        return deleted

    def _of_ended_tasks(self) -> list[tuple[MadeImage, Task]]:
        """Return the images that are no result, of tasks that ended long enough ago."""
        found = []
        made = self._images.made(self._now() - LOOK_BACK)
        for image in itertools.islice(made, LOOKED_MAX):
            task = self._task_of(image)
            if task is not None and self._is_over(task) and not _is_result(image, task):
                found.append((image, task))
        return found

    def _task_of(self, image: MadeImage) -> Task | None:
        """Return the task that has made an image; None: that is not certain."""
        if image.task is None or not image.is_original:
            return None
        try:
            task = self._tasks.get(image.task, image.project)
        except exception.NotFoundError:
            return None
        return task if task.kind in KINDS else None

    def _is_over(self, task: Task) -> bool:
        ended = task.finished_at if task.is_finished else None
        return ended is not None and ended + self._grace <= self._now()

    def _delete(self, image: MadeImage, task: Task) -> bool:
        """Delete an image that nobody needs; return whether it was.

        :raises AcstorError: when a service is away.
        """
        try:
            if self._is_needed(image, task):
                return False
            self._images.delete(image.id)
        except exception.AcstorError as error:
            if error.is_transient:
                raise
            LOG.warning(
                "image %s, which task %s left behind, stays: %s",
                image.id,
                task.id,
                exception.one_line(error),
            )
            return False
        LOG.warning("image %s is deleted: task %s has left it behind", image.id, task.id)
        self._count()
        return True

    def _is_needed(self, image: MadeImage, task: Task) -> bool:
        origin = self._versions.repository.origin
        for version_id in _versions_of(task):
            version = version_refs.find_version(origin, version_id)
            for use in () if version is None else version.record.uses:
                # A task may have found the image while the version still had it.
                if use == f"{make_image.USE}{image.id}" or use.startswith(_TASK_USES):
                    return True
        return self._compute.is_image_used(image.id)


def _versions_of(task: Task) -> list[str]:
    """Return the ids of the versions that a task is about."""
    one = task.parameters.get("version_id")
    several = task.parameters.get("versions") or ()
    return [str(each) for each in ((one, *several) if one is not None else several)]


def _is_result(image: MadeImage, task: Task) -> bool:
    return task.result is not None and task.result.get("image_id") == image.id
