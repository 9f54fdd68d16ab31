"""Differences of two versions by their files."""

from typing import Any

from acstor.api import version_browsing
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import versions
from acstor.api.resources.base import BackedResource
from acstor.api.resources.version_tree import page_of, partition_of, shown_file
from acstor.api.schemas import files as schemas
from acstor.browsing.disk_files import FileFound
from acstor.browsing.tree_differences import FileDifference, differing_files


class VersionTreeDiff(BackedResource):
    """Differences by files: ``/v1/versions/<id>/files/diff``."""

    @operation(
        "versions:file_diff",
        "Show which files two versions have differently",
        {200: schemas.DIFF},
        query=schemas.DIFF_QUERY,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer a page of them: what became of ``against`` in this version.

        Both disks are looked into at the same time, in one place: that of a download, as it may
        take as long.
        """
        after = versions.restorable(self._backends, call, call.path["version_id"])
        before = versions.restorable(self._backends, call, call.query["against"])
        path = call.query.get("path", "/")
        with version_browsing.compared(self._backends.files, before, after) as (old, new):
            number = partition_of(call, new)
            found = differing_files(old.walk(number, path), new.walk(number, path))
            page, links = page_of(call, found, self._backends.limit_max, lambda one: one.path)
        return Answer({"files": [_shown(one) for one in page], "links": links})


def _shown(difference: FileDifference) -> dict[str, Any]:
    return {
        "path": difference.path,
        "change": difference.change.value,
        "before": _shown_or_none(difference.before),
        "after": _shown_or_none(difference.after),
        "fields": list(difference.fields),
    }


def _shown_or_none(file: FileFound | None) -> dict[str, Any] | None:
    return None if file is None else shown_file(file)
