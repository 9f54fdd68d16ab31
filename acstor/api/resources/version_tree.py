"""Files of a version: partitions, and what is in their directories."""

import datetime
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from acstor import exception
from acstor.api import paging, times, version_browsing
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources import versions
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import files as schemas
from acstor.browsing.disk_files import DiskFiles, FileFound, FileKind, PartitionFound
from acstor.browsing.tree_differences import path_key

_Item = TypeVar("_Item")


class VersionPartitions(BackedResource):
    """Partitions: ``/v1/versions/<id>/partitions``."""

    @operation(
        "versions:partitions",
        "List the partitions of a version's disk, and which of them can be looked into",
        {200: schemas.PARTITIONS},
    )
    def on_get(self, call: Call) -> Answer:
        """Answer all of them."""
        version = versions.restorable(self._backends, call, call.path["version_id"])
        with version_browsing.looked_into(self._backends.files, version) as files:
            found = files.partitions()
        return Answer({"partitions": [_shown_partition(one) for one in found]})


class VersionListing(BackedResource):
    """Directory: ``/v1/versions/<id>/files``."""

    @operation(
        "versions:files",
        "Show a file of a version, and where it is a directory what is in it",
        {200: schemas.LISTING},
        query=schemas.LIST_QUERY,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer a page, by names ascending."""
        version = versions.restorable(self._backends, call, call.path["version_id"])
        path = call.query.get("path", "/")
        with version_browsing.looked_into(self._backends.files, version) as files:
            number = partition_of(call, files)
            file = files.entry(number, path)
            is_directory = file.kind is FileKind.DIRECTORY
            listing = files.listing(number, path) if is_directory else iter(())
            found, links = page_of(call, listing, self._backends.limit_max, lambda one: one.name)
        return Answer(
            {"file": shown_file(file), "files": [shown_file(one) for one in found], "links": links}
        )


def partition_of(call: Call, files: DiskFiles) -> int:
    """Return the number of the partition that a call names, or of the one that can be looked into.

    :raises InvalidError: when it names none, and it is not clear which one is meant.
    :raises UnsupportedError: when none can be looked into.
    """
    named = call.query.get("partition")
    if named is not None:
        return int(named)
    found = files.partitions()
    readable = [one for one in found if one.is_readable]
    if not readable:
        kinds = ", ".join(f"{one.number}: {one.file_system}" for one in found) or "none at all"
        raise exception.UnsupportedError(
            f"no partition of the disk can be looked into ({kinds}): files of ext2, ext3 and ext4 "
            "are shown",
            hint="export the version, and look into it with a machine of your own",
        )
    largest = max(readable, key=lambda one: one.size_bytes)
    if (
        len(readable) > 1
        and largest.size_bytes < 2 * sorted(one.size_bytes for one in readable)[-2]
    ):
        numbers = ", ".join(str(one.number) for one in readable)
        raise exception.InvalidError(
            f"the disk has several partitions with files: {numbers}", hint="name one: partition"
        )
    return largest.number


def page_of(
    call: Call, found: Iterator[_Item], limit_max: int, path_of: Callable[[_Item], str]
) -> tuple[list[_Item], list[dict[str, str]]]:
    """Return the page that a call asks for, and its links.

    The marker is a path, which need not be there; a disk may have it twice.

    :param found: everything, by paths ascending.
    :param limit_max: most items of a page.
    """
    marker = call.query.get("marker")
    if marker is not None:
        place = path_key(marker)
        found = itertools.dropwhile(lambda one: path_key(path_of(one)) <= place, found)
    limit = min(call.query.get("limit", limit_max), limit_max)
    page = list(itertools.islice(found, limit))
    return page, paging.links_after(call, path_of(page[-1])) if len(page) == limit else []


def shown_file(file: FileFound) -> dict[str, Any]:
    """Return a file as answers have it."""
    return {
        "name": file.name,
        "kind": file.kind.value,
        "size_bytes": file.size_bytes,
        "mode": f"{file.mode:04o}",
        "uid": file.uid,
        "gid": file.gid,
        "modified_at": _time(file.modified_ns),
        "target": file.target,
    }


def _time(nanoseconds: int) -> str | None:
    """Return a time as ISO 8601; None: no calendar has it, as a disk may say anything."""
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    try:
        return times.text(epoch + datetime.timedelta(microseconds=nanoseconds // 1000))
    except OverflowError:
        return None


def _shown_partition(partition: PartitionFound) -> dict[str, Any]:
    return {
        "number": partition.number,
        "start_bytes": partition.start,
        "size_bytes": partition.size_bytes,
        "name": partition.name,
        "file_system": partition.file_system,
        "label": partition.label,
        "is_readable": partition.is_readable,
        "reason": partition.reason,
    }
