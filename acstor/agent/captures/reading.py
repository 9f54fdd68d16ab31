"""Reading a disk into its spool: what may have changed, compared, and at a bounded rate."""

import array
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from acstor import native
from acstor.agent.captures.parents import Comparison, wanted_extents
from acstor.agent.captures.sources.base import DiskSource
from acstor.agent.captures.spool import SpoolWriter
from acstor.rate_limit import RateLimit
from acstor.repository.pack_reader import DIGEST_SIZE
from acstor.repository.source.base import Extent
from acstor.repository.versions.changed_disk import on_chunk_grid

WINDOW_BYTES = 2 << 20
"""Bytes that are read at once."""
_ZERO = bytes(DIGEST_SIZE)


@dataclass(frozen=True)
class Pace:
    """Limits of reading, and what is called between windows."""

    read: RateLimit
    write: RateLimit
    check: Callable[[], None] = lambda: None
    """Ends the reading by raising."""
    advance: Callable[[int, int], None] = lambda done, total: None
    """Told bytes that are read, and those of all that has to be."""
    wait: Callable[[float], object] = time.sleep


def read_disk(
    source: DiskSource,
    spool: SpoolWriter,
    comparison: Comparison | None,
    chunk_size: int,
    scope: str | None,
    pace: Pace,
) -> None:
    """Keep in a spool what a disk has otherwise than the version before.

    :param scope: of the chunks' names.
    :raises ConflictError: when what was read is not of one moment.
    :raises ExhaustedError: when there is no room.
    :raises UnavailableError: when it cannot be read.
    """
    pieces = Pieces(source, comparison, chunk_size)
    step = max(WINDOW_BYTES, chunk_size)
    buffer = memoryview(bytearray(step))
    done = 0
    for piece in pieces:
        pace.check()
        if piece.is_zero:
            spool.take_zeros(piece.start // chunk_size, piece.end // chunk_size)
            continue
        for start in range(piece.start, piece.end, step):
            window = buffer[: min(step, piece.end - start)]
            present = min(len(window), source.size_bytes - start)
            source.read_into(start, window[:present])
            window[present:] = bytes(len(window) - present)
            scan = native.scan_buffer(window, chunk_size, scope)
            written = _take(spool, scan, window, start // chunk_size, comparison, chunk_size)
            done += present
            pace.advance(done, pieces.data_bytes)
            delay = max(pace.read.take(present), pace.write.take(written))
            if delay > 0:
                pace.wait(delay)
            pace.check()
    source.check_unchanged()


def _take(
    spool: SpoolWriter,
    scan: native.Scan,
    window: memoryview,
    first: int,
    comparison: Comparison | None,
    chunk_size: int,
) -> int:
    """Keep the chunks of a window that are other than in the version before; return their bytes."""
    digests, written = scan.digests(), 0
    for position in range(len(scan)):
        digest = digests[position * DIGEST_SIZE : (position + 1) * DIGEST_SIZE]
        index = first + position
        if comparison is not None and _is_in(comparison, index, digest):
            continue
        if digest == _ZERO:
            spool.take_zeros(index, index + 1)
            continue
        spool.take_chunk(index, digest, window[position * chunk_size : (position + 1) * chunk_size])
        written += chunk_size
    return written


def _is_in(comparison: Comparison, index: int, digest: bytes) -> bool:
    """Return whether the version before has that content at that place."""
    parent = comparison.parent
    entry = parent.entry(index) if index < parent.chunk_count else None
    return digest == (_ZERO if entry is None else entry.digest)


class Pieces:
    """Pieces of a disk to read, on the grid of chunks, 16 bytes for each."""

    def __init__(self, source: DiskSource, comparison: Comparison | None, chunk_size: int) -> None:
        self._numbers = array.array("Q")
        self.data_bytes = 0
        extents = wanted_extents(source.extents(), comparison, chunk_size)
        for piece in on_chunk_grid(extents, chunk_size, source.size_bytes):
            self._numbers.extend((piece.start, piece.end << 1 | piece.is_zero))
            if not piece.is_zero:
                self.data_bytes += min(piece.end, source.size_bytes) - piece.start

    def __iter__(self) -> Iterator[Extent]:
        numbers = iter(self._numbers)
        for start, end in zip(numbers, numbers, strict=True):
            yield Extent(start, end >> 1, bool(end & 1))
