"""Differences of two versions of a disk: the parts that they have otherwise, by the chunk.

Manifests are compared by the digests of their chunks. Of what log objects have written over one,
nobody knows the digests: those chunks are read and compared.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Protocol

from acstor import exception
from acstor.versions.restore_plan import CurrentDisk, DiskContent, PlacedChunk, plan_restore

CHUNKS_MAX = 1 << 20
"""Most chunks of a disk that is compared: each is looked at."""
READ_CHUNKS_MAX = 1024
"""Most chunks that are read for a comparison: 64 MiB of chunks of 64 KiB, of both disks."""


class WrittenDisk(Protocol):
    """A disk that can be read: a :class:`~acstor.repository.reading.disk_reader.DiskReader`."""

    @property
    def size_bytes(self) -> int:
        """Size of the disk, bytes."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the disk."""

    def written_chunks(self, chunk_size: int) -> Iterator[int]:
        """Yield the indexes of the chunks of which something was written over the manifest."""


@dataclasses.dataclass(frozen=True, slots=True)
class ZeroDisk:
    """Content of a disk of zeros."""

    size_bytes: int
    chunk_size: int

    def entries(self) -> Iterable[tuple[int, PlacedChunk]]:
        """Yield nothing."""
        return ()


def differing_extents(
    one: DiskContent, other: DiskContent, disks: tuple[WrittenDisk, WrittenDisk] | None = None
) -> list[tuple[int, int]]:
    """Return offset and length, bytes, of the parts of a disk that another has otherwise.

    As far as the first reaches; what lies beyond the end of the other counts as zeros there.

    :param disks: both, where something was written over the manifest of one.
    :returns: ascending, no two of which touch.
    :raises UnsupportedError: when the chunks are of different sizes, or too many.
    """
    if one.chunk_size != other.chunk_size:
        raise exception.UnsupportedError(
            f"chunks of {one.chunk_size} and {other.chunk_size} bytes are not compared",
            hint="compare versions of one repository",
        )
    if max(one.size_bytes, other.size_bytes) > CHUNKS_MAX * one.chunk_size:
        raise exception.UnsupportedError(
            f"disks of more than {CHUNKS_MAX} chunks are not compared",
            hint="export both versions and compare them",
        )
    # The reverse delta, where everything is at hand: then no other way is cheaper.
    plan = plan_restore(one, CurrentDisk(other), None, lambda digest: True)
    extents = [(extent.offset, extent.length) for extent in plan.extents]
    if disks is not None:
        extents = list(_with_written(extents, disks, one.chunk_size))
    return list(_joined(extents))


def _with_written(
    extents: Iterable[tuple[int, int]], disks: tuple[WrittenDisk, WrittenDisk], chunk_size: int
) -> Iterator[tuple[int, int]]:
    """Yield extents by the chunk; of chunks that were written, those that are unlike.

    :raises UnsupportedError: when too many were written.
    """
    size_bytes = disks[0].size_bytes
    written = {
        index
        for disk in disks
        for index in disk.written_chunks(chunk_size)
        if index * chunk_size < size_bytes
    }
    if len(written) > READ_CHUNKS_MAX:
        raise exception.UnsupportedError(
            f"a version of a volume with {len(written)} chunks that were pushed since its last "
            "fold is not compared",
            hint="take the next version after a fold",
        )
    indexes = {
        index
        for offset, length in extents
        for index in range(offset // chunk_size, -(-(offset + length) // chunk_size))
    }
    unlike = {index for index in written if _is_unlike(disks, index, chunk_size)}
    for index in sorted(indexes - written | unlike):
        yield index * chunk_size, min(chunk_size, size_bytes - index * chunk_size)


def _is_unlike(disks: tuple[WrittenDisk, WrittenDisk], index: int, chunk_size: int) -> bool:
    """Return whether a chunk of the first disk is other than that of the second."""
    offset = index * chunk_size
    one, other = (
        disk.read(min(offset, disk.size_bytes), max(0, min(chunk_size, disk.size_bytes - offset)))
        for disk in disks
    )
    return one != other[: len(one)].ljust(len(one), b"\0")


def _joined(extents: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield extents with neighbours as one."""
    last: tuple[int, int] | None = None
    for offset, length in extents:
        if last is not None and sum(last) == offset:
            last = (last[0], last[1] + length)
            continue
        if last is not None:
            yield last
        last = (offset, length)
    if last is not None:
        yield last
