"""Bytes that each method of a server's restore moves, by what is recorded: no disk is read.

In place the host fetches what the disk has otherwise than the version, unless the base file has it
at the same place. The disk itself is not looked at: the newest version of it tells what it had
then, and of what was written since nobody knows. Whatever that is, no more is moved than what the
base has otherwise. A rebuild moves the version as a whole into the image store, where no image of
it is there, and uncompressed, as such files are; the host then takes of the image what is read, or
all of it.

Source: CloudVS, §3.7, whose reverse delta the first is, and the differential one its bound. Differs
from :mod:`acstor.versions.restore_plan`: chunks count as local at the same place only, as the host
looks for them (``acstor/agent/restores/supply.py``).
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from acstor import exception
from acstor.repository.repository import Repository
from acstor.repository.versions.record import Trigger, VersionRecord
from acstor.repository.versions.states import RESTORABLE
from acstor.versions.database.version_index import (
    Filter,
    IndexedVersion,
    Operator,
    VersionField,
    VersionIndex,
    VersionQuery,
)
from acstor.versions.differences import CHUNKS_MAX, ZeroDisk
from acstor.versions.restore_plan import DiskContent, PlacedChunk
from acstor.versions.services.compute import Server

IMAGE_USE = "image/"
"""Beginning of the uses of images, which the image's id ends: while it is there, the version is."""
SEEN_MAX = 1 << 16
"""Most contents that are known when they come again, as on the host."""
REPLACED = frozenset({Trigger.RESTORE, Trigger.REBUILD})
"""Causes of versions after which the disk gets another content."""


class Moved(NamedTuple):
    """Bytes that one method moves."""

    bytes: int
    """As far as anything is recorded."""
    at_most: int
    """Whatever has become of the disk, or of the image, since."""


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate for one version and one server."""

    in_place: Moved
    """Fetched from the origin, as chunks are stored."""
    rebuild: Moved
    """Put into the image store and taken from there, uncompressed."""
    compared_with: str | None = None
    """Version that told what the disk had; None: none does, and the base alone was compared."""


def newest_version(
    index: VersionIndex, project: str, server: Server, device: str
) -> IndexedVersion | None:
    """Return the newest version that tells what a server's disk has.

    :param device: name of the disk.
    :returns: None where there is none, or where the disk was exchanged after it.
    :raises UnavailableError: when the database cannot be reached.
    """
    states = tuple(sorted(state.value for state in RESTORABLE))
    filters = (
        Filter(VersionField.SERVER, Operator.EQ, (server.id,)),
        Filter(VersionField.DISK, Operator.EQ, (device,)),
        Filter(VersionField.STATE, Operator.IN, states),
    )
    found = index.page(VersionQuery(project=project, filters=filters, limit=1))
    newest = next(iter(found), None)
    if newest is None or newest.trigger in REPLACED or newest.base_image != server.image:
        return None
    return newest


def estimate(
    repository: Repository,
    version: VersionRecord,
    image_id: str | None,
    newest: tuple[str, VersionRecord] | None,
) -> Estimate:
    """Return what a restore would move.

    :param version: that is restored.
    :param image_id: of the image that the server's disk is based on.
    :param newest: id and record of the version that tells what the disk has.
    :raises UnsupportedError: when there is too much to compare.
    :raises NotFoundError: when a manifest is gone meanwhile.
    :raises UnavailableError: when the origin cannot be reached.
    """
    wanted = _content(repository, version)
    base = _base(repository, image_id)
    present = None if newest is None else _content(repository, newest[1])
    for other in (base, present):
        _require_comparable(wanted, other)
    sums = _sums(wanted, base, present)
    has_image = any(use.startswith(IMAGE_USE) for use in version.uses)
    upload = 0 if has_image else sums.content_bytes
    return Estimate(
        Moved(sums.unlike_bytes, sums.unlike_base_bytes),
        Moved(upload, upload + sums.content_bytes),
        None if newest is None else newest[0],
    )


def _content(repository: Repository, record: VersionRecord) -> DiskContent:
    """Return the content of a version of a server's disk.

    :raises UnsupportedError: when it is not in its manifest as a whole.
    """
    if record.logs:
        raise exception.UnsupportedError("a version of a volume is not compared")
    if record.manifest is None:
        return ZeroDisk(record.size_bytes, repository.chunk_size)
    return repository.load_manifest(record.manifest)


def _base(repository: Repository, image_id: str | None) -> DiskContent | None:
    """Return the content of an image; None where the repository does not have it."""
    image = None if image_id is None else repository.find_image(image_id)
    return None if image is None else repository.load_manifest(image.record.manifest)


def _require_comparable(wanted: DiskContent, other: DiskContent | None) -> None:
    """Refuse contents that are not compared.

    :raises UnsupportedError: saying why.
    """
    if wanted.size_bytes > CHUNKS_MAX * wanted.chunk_size:
        raise exception.UnsupportedError(f"disks of more than {CHUNKS_MAX} chunks are not compared")
    if other is not None and other.chunk_size != wanted.chunk_size:
        raise exception.UnsupportedError(
            f"chunks of {wanted.chunk_size} and {other.chunk_size} bytes are not compared"
        )


class _Sums(NamedTuple):
    """Sums over the chunks of a version."""

    content_bytes: int
    """Of the disk, without zeros."""
    unlike_bytes: int
    """Stored, of what neither base nor disk have there."""
    unlike_base_bytes: int
    """Stored, of what the base does not have there."""


class _Places:
    """Chunks of a disk, looked up in ascending order.

    :param disk: None: it has none.
    """

    def __init__(self, disk: DiskContent | None) -> None:
        entries: Iterable[tuple[int, PlacedChunk]] = () if disk is None else disk.entries()
        self._entries: Iterator[tuple[int, PlacedChunk]] = iter(entries)
        self._next = next(self._entries, None)

    def has(self, index: int, chunk: PlacedChunk) -> bool:
        """Return whether the disk has that chunk at that place."""
        while self._next is not None and self._next[0] < index:
            self._next = next(self._entries, None)
        found = self._next
        return found is not None and found[0] == index and found[1].digest == chunk.digest


class _MovedOnce:
    """Sum of the chunks that are moved; content that comes again is counted once.

    Of so many contents only, as the host remembers no more, and memory is bounded.
    """

    def __init__(self) -> None:
        self.stored_bytes = 0
        self._seen: set[bytes] = set()

    def add(self, chunk: PlacedChunk) -> None:
        """Count a chunk."""
        if chunk.digest in self._seen:
            return
        self.stored_bytes += chunk.stored_size
        if len(self._seen) < SEEN_MAX:
            self._seen.add(chunk.digest)


def _sums(wanted: DiskContent, base: DiskContent | None, present: DiskContent | None) -> _Sums:
    """Add up what a version has otherwise."""
    in_base, in_present = _Places(base), _Places(present)
    unlike, unlike_base = _MovedOnce(), _MovedOnce()
    content_bytes = 0
    for index, chunk in wanted.entries():
        content_bytes += min(wanted.chunk_size, wanted.size_bytes - index * wanted.chunk_size)
        if in_base.has(index, chunk):
            continue
        unlike_base.add(chunk)
        if not in_present.has(index, chunk):
            unlike.add(chunk)
    return _Sums(content_bytes, unlike.stored_bytes, unlike_base.stored_bytes)
