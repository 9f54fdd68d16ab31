"""Differences of two versions: the parts of the disk that they have otherwise."""

from acstor import exception
from acstor.api import paging
from acstor.api.errors import ApiError, not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import versions
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import versions as schemas
from acstor.repository.repository import Repository
from acstor.repository.versions.record import VersionRecord
from acstor.versions import differences
from acstor.versions.differences import ZeroDisk
from acstor.versions.restore_plan import DiskContent


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
        one = self._record(call, call.path["version_id"])
        other = self._record(call, call.query["against"])
        repository = self._backends.open_versions().repository
        chunk_size = repository.chunk_size
        extents = differences.differing_extents(
            _content(repository, one, chunk_size), _content(repository, other, chunk_size)
        )
        behind = call.query.get("marker", -1)
        limit = min(call.query.get("limit", self._backends.limit_max), self._backends.limit_max)
        page = [extent for extent in extents if extent[0] > behind][:limit]
        links = paging.links_after(call, str(page[-1][0])) if len(page) == limit else []
        changed = sum(length for _, length in extents)
        diff = {"changed_bytes": changed, "extents": [list(extent) for extent in page]}
        return Answer({"diff": diff, "links": links})

    def _record(self, call: Call, version_id: str) -> VersionRecord:
        """Return the record of a restore point that the caller may see.

        :raises NotFoundError: when there is none.
        :raises ApiError: 409 when it is on its host only.
        """
        shown = versions.find(self._backends, call, version_id)
        found = self._backends.open_versions().find(shown.id)
        if found is None:
            raise not_found("version", version_id)
        if not found.record.is_restorable:
            error = ApiError(
                f"version {version_id} is {found.record.state.value}: its content is not there yet",
                hint="wait until it is committed",
                code="acstor.version.not_committed",
            )
            error.status = 409
            raise error
        return found.record


def _content(repository: Repository, record: VersionRecord, chunk_size: int) -> DiskContent:
    """Return the content of a version.

    :raises UnsupportedError: when it has log objects, which nobody has folded yet.
    """
    if record.logs:
        raise exception.UnsupportedError(
            "a version of a volume that was pushed since its last fold is not compared",
            hint="take the next version after a fold",
        )
    if record.manifest is None:
        return ZeroDisk(record.size_bytes, chunk_size)
    return repository.load_manifest(record.manifest)
