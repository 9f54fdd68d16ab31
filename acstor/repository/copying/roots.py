"""Refs of a repository at one moment, each with the objects that it names.

Every ref is read once, as a whole, and is consistent by itself: what it names exists, and a hold
(gc/hold.py) keeps it there. Log objects are listed after the records were read: of the open epoch
of a volume the copy has what its owner had pushed by then, without a gap.
"""

import bisect
import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from acstor import exception
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.copying import ref_kinds
from acstor.repository.copying.manifest_keys import ManifestKeys
from acstor.repository.copying.object_check import UNREADABLE
from acstor.repository.copying.report import CopyDamage
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.images.usage import USAGE_PREFIX, Usage
from acstor.repository.repository import Repository
from acstor.repository.versions.record import VersionRecord
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record import SnapshotRecord, VolumeRecord

READINGS_MAX = 5
"""Readings of a ref whose manifest is not there: somebody changes it, or it is really gone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Root:
    """One ref and what it names."""

    name: str
    content: bytes
    token: str
    groups: tuple[Sequence[str], ...] = ()
    """Keys of the objects that it needs; those of one manifest are shared with other refs."""
    damages: tuple[CopyDamage, ...] = ()
    """Damage by which it is not known, or not there, what it names."""

    @property
    def keys(self) -> Iterator[str]:
        """Keys of all objects that it needs."""
        return itertools.chain.from_iterable(self.groups)


class LogListing:
    """Sequence numbers of the log objects of a store.

    :param is_whole: whether to list all at once; else each folder when it is asked for.
    """

    def __init__(self, objects: base.ObjectStore, *, is_whole: bool) -> None:
        self._objects = objects
        self._is_whole = is_whole
        self._found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        if is_whole:
            self._add(layout.VOLUME_LOG_PREFIX)

    def _add(self, prefix: str) -> None:
        for key in self._objects.list(prefix):
            parsed = layout.parse_log_key(key)
            if parsed is not None:
                volume, epoch, sequence = parsed
                self._found[volume, epoch].append(sequence)
        for sequences in self._found.values():
            sequences.sort()

    def _of(self, volume: str, epoch: int) -> list[int]:
        if not self._is_whole and (volume, epoch) not in self._found:
            self._found[volume, epoch] = []
            self._add(layout.log_folder(volume, epoch))
        return self._found.get((volume, epoch), [])

    def within(self, logs: LogRange) -> list[int]:
        """Return the sequence numbers of a range that are there, ascending."""
        found = self._of(logs.volume, logs.epoch)
        return found[bisect.bisect_left(found, logs.first) : bisect.bisect_right(found, logs.last)]

    def run(self, volume: str, epoch: int, first: int) -> int:
        """Return the last sequence number that follows on ``first`` without a gap.

        ``first`` - 1 where not even that one is there.
        """
        last = first - 1
        found = self._of(volume, epoch)
        for sequence in itertools.islice(found, bisect.bisect_left(found, first), None):
            if sequence != last + 1:
                break
            last = sequence
        return last


class RootReader:
    """Reads the refs that a copy has.

    :param is_restore: see :func:`.ref_kinds.is_carried`.
    """

    def __init__(self, repository: Repository, *, is_restore: bool) -> None:
        self._repository = repository
        self._origin = repository.origin
        self._is_restore = is_restore
        self._manifest_keys = ManifestKeys(repository)
        self.unknown: list[str] = []
        """Names of refs of kinds that this release does not know."""

    def read_all(self) -> Iterator[Root]:
        """Yield all refs that the copy has."""
        names = sorted(self._origin.list_refs())
        self.unknown = [name for name in names if ref_kinds.kind_of(name) is None]
        carried = [n for n in names if ref_kinds.is_carried(n, is_restore=self._is_restore)]
        found = [one for name in carried if (one := self._read(name)) is not None]
        # Only now: what a record names by its open end is listed after the record was read.
        listing = LogListing(self._origin, is_whole=True)
        for one in found:
            root = self._resolved(one, listing)
            if root is not None:
                yield root

    def read_again(self, name: str) -> Root | None:
        """Return one ref as it is now, None when it is gone."""
        found = self._read(name)
        return found and self._resolved(found, LogListing(self._origin, is_whole=False))

    def _read(self, name: str) -> Root | None:
        """Return a ref, of which it is not known yet what it names."""
        try:
            ref = self._origin.get_ref(name)
        except exception.CorruptError as error:
            return Root(name, b"", "", damages=(CopyDamage(name, error.message),))
        return None if ref is None else Root(name, ref.content, ref.token)

    def _resolved(self, found: Root, listing: LogListing) -> Root | None:
        """Return a ref with what it names; read anew where its manifest was replaced meanwhile."""
        for _ in range(READINGS_MAX):
            if found.damages:
                return found
            try:
                return self._with_objects(found, listing)
            except exception.NotFoundError as error:
                again = self._read(found.name)
                if again is None:
                    return None
                if again.content == found.content:
                    return dataclasses.replace(
                        found, damages=(CopyDamage(found.name, error.message),)
                    )
                found = again
                listing = LogListing(self._origin, is_whole=False)
        raise exception.ConflictError(
            f"ref {found.name} changes faster than it can be read", hint="try again"
        )

    def _with_objects(self, found: Root, listing: LogListing) -> Root:
        try:
            manifests, logs, open_ends = named(found.name, found.content)
        except UNREADABLE as error:
            return dataclasses.replace(found, damages=(CopyDamage(found.name, error.message),))
        groups: list[Sequence[str]] = []
        damages: list[CopyDamage] = []
        for digest in manifests:
            try:
                groups.append(self._manifest_keys.of(digest))
            except exception.NotFoundError:
                if not found.name.startswith(USAGE_PREFIX):
                    raise  # a host has attached what is gone: nothing is left to copy
            except (exception.CorruptError, exception.UnsupportedError) as error:
                key = layout.manifest_key(digest)
                groups.append((key,))
                damages.append(CopyDamage(key, error.message))
        for one in logs:
            present = listing.within(one)
            groups.append([one.key(sequence) for sequence in present])
            if len(present) < len(one):
                damages.append(_missing(one, present))
        for volume, epoch, first in open_ends:
            last = listing.run(volume, epoch, first)
            try:
                last = max(last, self._last_in_member(found, volume, epoch, first))
            except (exception.UnavailableError, exception.UnsupportedError) as error:
                damages.append(CopyDamage(layout.log_key(volume, epoch, first), error.message))
            keys = [layout.log_key(volume, epoch, at) for at in range(first, last + 1)]
            groups.append(keys)
        groups.append(_seals(found, listing))
        return dataclasses.replace(found, groups=tuple(groups), damages=tuple(damages))

    def _last_in_member(self, found: Root, volume: str, epoch: int, first: int) -> int:
        """Return the end of a log that is being written, as the epoch's member has it.

        A member that is not in use or sleeps is left out of listings, and what others have copies
        of may be less. Of a copy, and where the home has the log, the listing says all.

        :raises UnavailableError: when that member cannot be asked.
        :raises UnsupportedError: when it is not open here.
        """
        record = VolumeRecord.parse(found.content, volume)
        member = record.member if record.unsealed is None else record.unsealed_member
        is_open = record.owner is not None or record.unsealed is not None
        if member is None or not is_open or self._is_restore:
            return first - 1
        store = self._origin.of_member(member)
        return LogListing(store, is_whole=False).run(volume, epoch, first)


_Named = tuple[Iterable[str], Iterable[LogRange], Iterable[tuple[str, int, int]]]
"""Manifests, closed ranges, and (volume, epoch, first sequence number) of open ends."""


def named(name: str, content: bytes) -> _Named:
    """Return what a ref names.

    :raises CorruptError: and the like when it is not readable.
    """
    if name.startswith(layout.IMAGE_PREFIX):
        image_id = name.removeprefix(layout.IMAGE_PREFIX)
        return [ImageRecord.parse(content, image_id).manifest], [], []
    if name.startswith(USAGE_PREFIX):
        return sorted(Usage.parse(content, name.removeprefix(USAGE_PREFIX)).manifests), [], []
    if name.startswith(layout.SNAPSHOT_PREFIX):
        disk = SnapshotRecord.parse(content, name.removeprefix(layout.SNAPSHOT_PREFIX)).disk
        return _one(disk.manifest), disk.logs, []
    if name.startswith(layout.VERSION_PREFIX):
        version = VersionRecord.parse(content, name.rsplit("/", 1)[-1])
        return version.manifests, version.logs, []
    if name.startswith(layout.VOLUME_PREFIX):
        volume = name.removeprefix(layout.VOLUME_PREFIX)
        record = VolumeRecord.parse(content, volume)
        return _one(record.manifest), record.logs, [open_end(volume, record)]
    return [], [], []


def _one(manifest: str | None) -> list[str]:
    return [] if manifest is None else [manifest]


def open_end(volume: str, record: VolumeRecord) -> tuple[str, int, int]:
    """Return volume, epoch and first sequence number of what the record does not list yet.

    Of an owner that has not sealed the epoch before, nothing is stored yet.
    """
    epoch = record.epoch if record.unsealed is None else record.unsealed
    return volume, epoch, record.next


def _seals(found: Root, listing: LogListing) -> list[str]:
    """Return the keys of the seals that are there; nothing of a disk is in them."""
    if not found.name.startswith(layout.VOLUME_PREFIX):
        return []
    volume = found.name.removeprefix(layout.VOLUME_PREFIX)
    record = VolumeRecord.parse(found.content, volume)
    return [
        layout.log_key(volume, epoch, at)
        for epoch, at in record.seals
        if listing.within(LogRange(volume, epoch, at, at))
    ]


def _missing(logs: LogRange, present: Sequence[int]) -> CopyDamage:
    expected = itertools.count(logs.first)
    first = next(
        (at for at, found in zip(expected, present, strict=False) if at != found),
        logs.first + len(present),
    )
    count = len(logs) - len(present)
    return CopyDamage(logs.key(first), f"the log object is missing, {count} of its range are")
