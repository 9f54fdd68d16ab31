"""Differences of two versions: the parts of the disk that they have otherwise."""

import contextlib

from acstor import exception
from acstor.api import paging
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import versions
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import versions as schemas
from acstor.repository.reading.disk_reader import DiskReader
from acstor.repository.reading.opened_disk import open_disk
from acstor.repository.repository import Repository
from acstor.repository.versions.record import VersionRecord
from acstor.versions import differences
from acstor.versions.differences import ZeroDisk
from acstor.versions.restore_plan import DiskContent

LOGS_MAX = 64
"""Most log objects of a version that is compared: they are copied for each answer."""


class VersionDiff(BackedResource):
    """Differences: ``/v1/versions/<id>/diff``."""

    @operation(
        "versions:diff",
        "Show which parts of a disk two versions have differently",
        {200: schemas.DIFF},
        query=schemas.DIFF_QUERY,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer a page of them; each page has the sum of all."""
        one = versions.restorable(self._backends, call, call.path["version_id"]).record
        other = versions.restorable(self._backends, call, call.query["against"]).record
        repository = self._backends.open_versions().repository
        extents = _extents(repository, one, other)
        behind = call.query.get("marker", -1)
        limit = min(call.query.get("limit", self._backends.limit_max), self._backends.limit_max)
        page = [extent for extent in extents if extent[0] > behind][:limit]
        links = paging.links_after(call, str(page[-1][0])) if len(page) == limit else []
        changed = sum(length for _, length in extents)
        diff = {"changed_bytes": changed, "extents": [list(extent) for extent in page]}
        return Answer({"diff": diff, "links": links})


def _extents(
    repository: Repository, one: VersionRecord, other: VersionRecord
) -> list[tuple[int, int]]:
    """Return the parts that two versions have otherwise.

    :raises UnsupportedError: when there is too much to compare.
    """
    contents = (_content(repository, one), _content(repository, other))
    if not one.logs and not other.logs:
        return differences.differing_extents(*contents)
    with contextlib.ExitStack() as stack:
        disks = (_opened(stack, repository, one), _opened(stack, repository, other))
        return differences.differing_extents(*contents, disks)


def _content(repository: Repository, record: VersionRecord) -> DiskContent:
    """Return the content of a version, but for what its log objects have."""
    if record.manifest is None:
        return ZeroDisk(record.size_bytes, repository.chunk_size)
    return repository.load_manifest(record.manifest)


def _opened(
    stack: contextlib.ExitStack, repository: Repository, record: VersionRecord
) -> DiskReader:
    """Return the disk of a version, its log objects copied.

    :raises UnsupportedError: when there are too many.
    """
    count = sum(one.last - one.first + 1 for one in record.logs)
    if count > LOGS_MAX:
        raise exception.UnsupportedError(
            f"a version of a volume with {count} pushes since its last fold is not compared",
            hint="take the next version after a fold",
        )
    disk = open_disk(repository, record.content, record.size_bytes)
    return stack.enter_context(contextlib.closing(disk))
