"""Reading and changing the refs of versions.

There may be a million of them: they lie in 256 folders, by the first byte of their ids, and whoever
lists a page of them goes through these in order, from where the page before ended.
"""

import dataclasses
import datetime
import time
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.origin.base import RefStore
from acstor.repository import layout
from acstor.repository.record_changes import RecordChange, change_record, check_sound
from acstor.repository.repository import Repository
from acstor.repository.versions.record import VersionRecord
from acstor.repository.versions.states import VersionEvent, check_transition
from acstor.repository.volumes import record as volume_records

SHARDS = 256
"""Folders of the refs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """A version as it is in the origin."""

    id: str
    record: VersionRecord


Change = RecordChange[VersionRecord]
"""Record of a version before and after a call."""


def utc_now() -> datetime.datetime:
    """Return the time, in whole seconds of UTC."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def find_version(refs: RefStore, version_id: str) -> Version | None:
    """Return a version, None when there is none.

    :raises InvalidError: when the id is no UUID.
    :raises CorruptError: and the like when its record is not readable.
    """
    version_id = layout.canonical_id(version_id, "version")
    ref = refs.get_ref(layout.version_ref(version_id))
    return (
        None if ref is None else Version(version_id, VersionRecord.parse(ref.content, version_id))
    )


def version_ids(refs: RefStore) -> Iterator[str]:
    """Yield the ids of all versions, in no particular order."""
    for name in refs.list_refs(layout.VERSION_PREFIX):
        yield name.rpartition("/")[2]


def ordered_ids(refs: RefStore, after: str | None = None) -> Iterator[str]:
    """Yield the ids of all versions, ascending, folder by folder.

    One that exists from the beginning to the end is among them. No more than the names of one
    folder are in memory, and a page costs the listing of the folders that it is from; in a Ceph
    cluster, which lists no folder alone, that of all for each folder.

    :param after: id behind which to begin; None: at the first.
    """
    begin = 0 if after is None else int(layout.canonical_id(after, "version")[:2], 16)
    for number in range(begin, SHARDS):
        shard = layout.version_shard(number)
        names = sorted(name.removeprefix(shard) for name in refs.list_refs(shard))
        yield from (name for name in names if after is None or name > after)


class VersionRefs:
    """The refs of versions in one repository.

    Every method may raise :class:`~acstor.exception.UnavailableError` (the origin cannot be
    reached; the call may or may not have had its effect, and may be repeated), and those that
    change something :class:`~acstor.exception.ConflictError` when others write all the time.

    :param repository: of format version 8 or newer.
    :param wait: how to wait between attempts; a test may put its own.
    :param now: returns the time.
    :raises UnsupportedError: when the repository is older.
    """

    def __init__(
        self,
        repository: Repository,
        wait: Callable[[float], object] = time.sleep,
        now: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        """Keep what to work in."""
        repository.check_versions_allowed()
        self._repository = repository
        self._origin = repository.origin
        self._wait = wait
        self._now = now

    @property
    def repository(self) -> Repository:
        """The repository."""
        return self._repository

    def find(self, version_id: str) -> Version | None:
        """Return a version, None when there is none; errors as in :func:`find_version`."""
        return find_version(self._origin, version_id)

    def get(self, version_id: str) -> Version:
        """Return a version.

        :raises NotFoundError: when there is none.
        """
        version = self.find(version_id)
        if version is None:
            raise _no_version(version_id)
        return version

    def list_ids(self, after: str | None = None) -> Iterator[str]:
        """Yield the ids of versions, ascending; see :func:`ordered_ids`."""
        return ordered_ids(self._origin, after)

    def list(self, after: str | None = None) -> Iterator[Version]:
        """Yield versions by ascending id; those that vanish meanwhile are left out."""
        for version_id in self.list_ids(after):
            version = self.find(version_id)
            if version is not None:
                yield version

    def _publish(self, version_id: str, event: VersionEvent, record: VersionRecord) -> Version:
        """Write the first state of a record; repeating it with the same content is safe.

        :raises ConflictError: when there is a version with that id.
        :raises InvalidError: when the record is not sound.
        """
        version_id = layout.canonical_id(version_id, "version")
        check_transition(None, event, record.state)
        check_sound(record, f"version {version_id}")
        name, content = layout.version_ref(version_id), record.encode()
        try:
            self._origin.swap_ref(name, None, content)
        except exception.ConflictError as error:
            raise exception.ConflictError(f"version {version_id} exists already") from error
        except exception.UnavailableError:
            # It may be there all the same: then it is as any other.
            ref = self._origin.get_ref(name)
            if ref is None or ref.content != content:
                raise
        return Version(version_id, record)

    def _change(
        self,
        version_id: str,
        event: VersionEvent | Callable[[VersionRecord], VersionEvent],
        make: Callable[[VersionRecord], VersionRecord | None],
    ) -> Change:
        """Change a record by compare-and-swap, again when somebody else was quicker.

        :param event: what happens, possibly after a look at the record.
        :param make: returns the record as it shall be, the same one when nothing is to do, None to
            remove the version; raises to refuse. Asked anew at every attempt.
        :raises NotFoundError: when there is no such version.
        :raises InvalidError: when the new record is not sound.
        """
        version_id = layout.canonical_id(version_id, "version")

        def read(content: bytes | None) -> VersionRecord:
            if content is None:
                raise _no_version(version_id)
            return VersionRecord.parse(content, version_id)

        def renew(before: VersionRecord, after: VersionRecord | None) -> VersionRecord | None:
            happens = event if isinstance(event, VersionEvent) else event(before)
            check_transition(before.state, happens, None if after is None else after.state)
            if after is None:
                return None
            after = dataclasses.replace(after, nonce=volume_records.random_nonce())
            check_sound(after, f"version {version_id}")
            return after

        name = layout.version_ref(version_id)
        return change_record(self._origin, name, read, make, renew, self._wait)


def _no_version(version_id: str) -> exception.NotFoundError:
    return exception.NotFoundError(f"version {version_id} does not exist")
