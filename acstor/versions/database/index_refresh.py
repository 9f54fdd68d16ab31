"""Keeping the index of versions as the records are: one row, or all of them.

A snapshot of Cinder's has a row as well, and is stored once: as a snapshot.
"""

import dataclasses
import heapq
from collections.abc import Iterable, Iterator

from acstor import exception
from acstor.origin.base import RefStore
from acstor.repository.versions import version_refs
from acstor.repository.volumes import record_refs
from acstor.versions.database.version_index import IndexedVersion, VersionIndex

ATTEMPTS_MAX = 8
"""Times that a row is written while its record changes."""
PAGE = 1000
"""Rows of the index that a rebuild reads at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class RebuildReport:
    """Report of a rebuild."""

    unchanged: int
    written: int
    """Rows that were missing, or of another state of the record."""
    removed: int
    """Rows of versions that do not exist."""
    unreadable: tuple[str, ...]
    """Ids of versions whose records cannot be read; their rows are as they were."""


def refresh(index: VersionIndex, refs: RefStore, version_id: str) -> IndexedVersion | None:
    """Make the row of a version as its record is, and return it; None: there is no version.

    Two that do this at the same time do not leave the older state: each looks at the record again
    after it has written, and the later of the two writes what is there then.

    :raises InvalidError: when the id is no UUID.
    :raises CorruptError: when the record is not readable; the row is left as it is.
    :raises OverloadedError: when the record changed all the time.
    """
    row = _row_of(refs, version_id)
    for _ in range(ATTEMPTS_MAX):
        if row is None:
            index.remove(version_id)
        else:
            index.put(row)
        before, row = row, _row_of(refs, version_id)
        if (None if row is None else row.nonce) == (None if before is None else before.nonce):
            return before
    raise exception.OverloadedError(f"the record of version {version_id} changes all the time")


def rebuild(index: VersionIndex, refs: RefStore) -> RebuildReport:
    """Make the index as the origin is.

    Versions may be made and deleted meanwhile. Each difference is looked at anew before the row is
    changed, so nothing is lost that is there; the record of every version is read once.

    :raises UnavailableError: when origin or database cannot be reached: repeat it.
    """
    unchanged = written = removed = 0
    unreadable: list[str] = []
    rows = dict(_rows(index))
    for version_id in _ids(refs, rows):
        try:
            found = _row_of(refs, version_id)
            before = rows.get(version_id)
            if found is not None and found.nonce == before:
                unchanged += 1
            elif refresh(index, refs, version_id) is None:
                removed += before is not None
            else:
                written += 1
        except (exception.CorruptError, exception.UnsupportedError):
            unreadable.append(version_id)
    return RebuildReport(unchanged, written, removed, tuple(unreadable))


def _row_of(refs: RefStore, version_id: str) -> IndexedVersion | None:
    """Return the row that a version or a snapshot should have; None: there is neither."""
    version = version_refs.find_version(refs, version_id)
    if version is not None:
        return IndexedVersion.of(version.id, version.record)
    snapshot = record_refs.find_snapshot(refs, version_id)
    return None if snapshot is None else IndexedVersion.of_snapshot(snapshot)


def _rows(index: VersionIndex) -> Iterator[tuple[str, str]]:
    after: str | None = None
    while page := index.nonces(after, PAGE):
        yield from page
        after = page[-1][0]


def _ids(refs: RefStore, rows: Iterable[str]) -> Iterator[str]:
    """Yield the ids of origin and index, ascending, each once."""
    previous = None
    snapshots = sorted(record_refs.snapshot_ids(refs))
    for version_id in heapq.merge(version_refs.ordered_ids(refs), snapshots, sorted(rows)):
        if version_id != previous:
            yield version_id
        previous = version_id
