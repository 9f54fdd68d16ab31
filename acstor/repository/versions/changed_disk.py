"""Changed set of a disk: the bytes that may be other than in the version before."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from acstor import exception, native
from acstor.repository.source.base import Extent


class ChangedDisk(Protocol):
    """A disk at one moment, and which part of it may have changed. Image sources are some, too."""

    @property
    def size_bytes(self) -> int:
        """Size of the disk, a multiple of 512."""

    def extents(self) -> Iterator[Extent]:
        """Yield ranges that may have changed, ascending, without overlap; there may be gaps."""

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        """Read from ``offset`` on into ``buffer``, zeros past the disk's end, and digest it.

        :raises UnavailableError: when it cannot be read.
        """

    def check_unchanged(self) -> None:
        """Refuse when the disk was changed since the moment that it is to show.

        :raises ImageRefusedError: when it was.
        """


def on_chunk_grid(extents: Iterable[Extent], chunk_size: int, size_bytes: int) -> Iterator[Extent]:
    """Yield the extents with every border on a multiple of ``chunk_size``.

    A chunk is zero only if zero extents cover it wholly; of all others with a byte that may have
    changed the whole is read. The last border is rounded up.

    :raises InternalError: when they overlap, are out of order or leave the disk.
    """
    position = 0
    for extent in _joined(extents, size_bytes):
        first, end = extent.start // chunk_size, -(-extent.end // chunk_size)
        if extent.is_zero:
            inner_first = -(-extent.start // chunk_size)
            inner_end = end if extent.end == size_bytes else extent.end // chunk_size
            pieces = [(first, inner_first, False), (inner_first, inner_end, True)]
            pieces.append((max(inner_first, inner_end), end, False))
        else:
            pieces = [(first, end, False)]
        for piece_first, piece_end, is_zero in pieces:
            piece_first = max(piece_first, position)
            if piece_first < piece_end:
                yield Extent(piece_first * chunk_size, piece_end * chunk_size, is_zero)
                position = piece_end


def _joined(extents: Iterable[Extent], size_bytes: int) -> Iterator[Extent]:
    """Yield extents, those of one kind that touch as one."""
    run: Extent | None = None
    end = 0
    for extent in extents:
        if not end <= extent.start <= extent.end <= size_bytes:
            raise exception.InternalError(
                f"changed bytes {extent.start} to {extent.end} are out of order, or off the disk"
            )
        end = extent.end
        if run is not None and (run.end, run.is_zero) == (extent.start, extent.is_zero):
            run = Extent(run.start, extent.end, run.is_zero)
            continue
        if run is not None:
            yield run
        run = extent
    if run is not None:
        yield run
