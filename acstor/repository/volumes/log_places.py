"""Members of the origin that logs were written in, by the records of volumes, snapshots, versions.

An epoch has one member for ever (RFD 38, Invariant M): a log that is known is known for good.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from acstor import exception
from acstor.origin.base import Ref, RefStore
from acstor.repository import layout
from acstor.repository.copying.object_check import UNREADABLE
from acstor.repository.copying.roots import named
from acstor.repository.versions.record import VersionRecord
from acstor.repository.versions.states import VersionState
from acstor.repository.volumes.record import SnapshotRecord, VolumeRecord

_PREFIXES = (layout.VOLUME_PREFIX, layout.SNAPSHOT_PREFIX, layout.VERSION_PREFIX)


class _Known(NamedTuple):
    """A ref, and the logs that it names."""

    ref: Ref | None
    """None: the ref is damaged."""
    logs: tuple[tuple[str, str | None], ...]
    """Folder and member of each; None: the home."""
    written: frozenset[str | None] | None
    """Members that the volume writes to, seals a log in or is to write to; None: not known."""
    is_final: bool = False
    """True if the ref names no other logs any more, whatever becomes of it."""


class RecordedLogs:
    """Places of logs by all records; one that has not changed is not read again.

    :param refs: of the repository.
    :param home: returns the name of the home.
    """

    def __init__(self, refs: RefStore, home: Callable[[], str]) -> None:
        self._refs = refs
        self._home = home
        self._known: dict[str, _Known] = {}
        self._folders: dict[str, str | None] = {}
        self._is_fresh = False

    def refresh(self) -> None:
        """Look at all records again.

        :raises UnavailableError: when the home cannot be reached; what was known stays known.
        """
        self._is_fresh = False
        known: dict[str, _Known] = {}
        for prefix in _PREFIXES:
            for name in list(self._refs.list_refs(prefix)):
                found = self._look(name, self._known.get(name))
                if found is not None:
                    known[name] = found
        folders: dict[str, str | None] = {}
        for one in known.values():
            for folder, member in one.logs:
                # A program that knows no members may have left it out of what it has copied.
                folders[folder] = member or folders.get(folder)
        self._known, self._folders = known, folders
        self._is_fresh = True

    def _look(self, name: str, before: _Known | None) -> _Known | None:
        """Return what a ref names; None: it is gone."""
        if before is not None and before.is_final:
            return before  # there are many more of these than of volumes
        former = None if before is None else before.ref
        try:
            ref = self._refs.refresh_ref(name, former)
        except exception.CorruptError:
            # Of one that is damaged the others are known all the same.
            return _Known(None, () if before is None else before.logs, None)
        if ref is None:
            return None
        if before is not None and ref is former:
            return before
        return _read(name, ref)

    def member_of(self, folder: str) -> str | None:
        """Return the member in which an epoch was written; None: no record names its log."""
        if folder not in self._folders:
            return None
        return self._folders[folder] or self._home()

    def is_written(self, member: str) -> bool:
        """Return whether a volume needs a member that is not the home, to write to or to seal in.

        One whose record cannot be read may need any.
        """
        return any(one.written is None or member in one.written for one in self._known.values())

    def may_be_written(self, member: str) -> bool:
        """Return the same, and True where the last look failed: volumes may have come since."""
        return not self._is_fresh or self.is_written(member)


def _read(name: str, ref: Ref) -> _Known:
    content = ref.content
    logs = tuple(_logs_of(name, content))
    return _Known(ref, logs, _written_of(name, content), _is_final(name, content))


def _is_final(name: str, content: bytes) -> bool:
    """Return whether the logs of a ref are fixed: a snapshot's, and a version's once it has some.

    A version is captured without content in the origin, gets it as it is committed, and later gets
    other manifests at most.
    """
    try:
        if name.startswith(layout.SNAPSHOT_PREFIX):
            SnapshotRecord.parse(content, name.removeprefix(layout.SNAPSHOT_PREFIX))
            return True
        if name.startswith(layout.VERSION_PREFIX):
            version = VersionRecord.parse(content, name.rsplit("/", 1)[-1])
            return version.state is not VersionState.CAPTURED
    except UNREADABLE:
        pass
    return False


def _written_of(name: str, content: bytes) -> frozenset[str | None] | None:
    """Return the members that a ref's volume writes to; of what is no volume, none."""
    if not name.startswith(layout.VOLUME_PREFIX):
        return frozenset()
    try:
        record = VolumeRecord.parse(content, name.removeprefix(layout.VOLUME_PREFIX))
    except UNREADABLE:
        return None
    return record.written_members


def _logs_of(name: str, content: bytes) -> Iterator[tuple[str, str | None]]:
    """Yield folders and members of the logs that a ref names; of one that is not readable, none."""
    try:
        _, ranges, _ = named(name, content)
        yield from ((one.folder, one.member) for one in ranges)
        if name.startswith(layout.VOLUME_PREFIX):
            volume = name.removeprefix(layout.VOLUME_PREFIX)
            record = VolumeRecord.parse(content, volume)
            yield layout.log_folder(volume, record.epoch), record.member
            if record.unsealed is not None:
                yield layout.log_folder(volume, record.unsealed), record.unsealed_member
    except UNREADABLE:
        return
