"""Differences of two versions of a disk: the parts that they have otherwise, by the chunk."""

import dataclasses
from collections.abc import Iterable, Iterator

from acstor import exception
from acstor.versions.restore_plan import CurrentDisk, DiskContent, PlacedChunk, plan_restore

CHUNKS_MAX = 1 << 20
"""Most chunks of a disk that is compared: each is looked at."""


@dataclasses.dataclass(frozen=True, slots=True)
class ZeroDisk:
    """Content of a disk of zeros."""

    size_bytes: int
    chunk_size: int

    def entries(self) -> Iterable[tuple[int, PlacedChunk]]:
        """Yield nothing."""
        return ()


def differing_extents(one: DiskContent, other: DiskContent) -> list[tuple[int, int]]:
    """Return offset and length, bytes, of the parts of a disk that another has otherwise.

    As far as the first reaches; what lies beyond the end of the other counts as zeros there.

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
    return list(_joined(extents))


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
