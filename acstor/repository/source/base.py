"""Interface of an image file to registration, whatever its format."""

import abc
import dataclasses
import os
from collections.abc import Iterable, Iterator

from acstor import exception, native

SECTOR_SIZE = 512
"""Sizes of disks are multiples of this, bytes; a file is padded with zeros up to it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Extent:
    """A half-open range of a disk, bytes."""

    start: int
    end: int
    is_zero: bool
    """True if every byte is known to be zero without reading it."""


class SourceFile:
    """An open image file, and what it looked like when it was opened.

    Everything, QEMU's tools too, reads the file through this one descriptor, so that replacing
    the name under it has no effect.

    :raises InvalidError: when it is no regular file or cannot be opened.
    """

    def __init__(self, path: str) -> None:
        """Open the file."""
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise exception.InvalidError(f"{path}: {error.strerror}") from error
        self._status = os.fstat(self.descriptor)
        if not os.path.isfile(f"/proc/self/fd/{self.descriptor}"):
            self.close()
            raise exception.InvalidError(f"{path} is no regular file")
        self.size = self._status.st_size

    def check_unchanged(self) -> None:
        """Refuse when size or time stamps are not as they were.

        :raises ImageRefusedError: when they are not.
        """
        now, then = os.fstat(self.descriptor), self._status
        if (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (
            then.st_size,
            then.st_mtime_ns,
            then.st_ctime_ns,
        ):
            raise exception.ImageRefusedError(
                f"{self.path} was changed while it was being registered",
                hint="wait until whoever writes it is done, then register again",
            )

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class ImageSource(abc.ABC):
    """The disk that an image file describes."""

    size_bytes: int
    """Size of the disk, a multiple of 512."""
    file: SourceFile | None = None
    """The open file, where the source is one."""
    content_bytes: int | None = None
    """Size of what a checksum is declared of, where the source is no file."""
    name: str = "the disk"
    """Name of the source in messages, where it is no file."""

    @abc.abstractmethod
    def extents(self) -> Iterator[Extent]:
        """Yield ranges that cover the disk without gap or overlap, in ascending order."""

    @abc.abstractmethod
    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        """Read from ``offset`` on into ``buffer``, zeros past the disk's end, and digest it.

        :param buffer: whole chunks.
        :param scope: of the chunks' names; None: their plain digests.
        :raises InvalidError: when the file turns out shorter than it was.
        :raises UnavailableError: when it cannot be read.
        """

    @abc.abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Return at most ``size`` bytes of the disk, fewer only at its end; for inspection."""

    @abc.abstractmethod
    def check_unchanged(self) -> None:
        """Refuse when the file was changed since it was opened.

        :raises ImageRefusedError: when it was.
        """

    def close(self) -> None:  # noqa: B027 - a source of memory holds nothing
        """Release what the source holds."""


def on_chunk_grid(extents: Iterable[Extent], chunk_size: int, size_bytes: int) -> Iterator[Extent]:
    """Yield the extents with every border on a multiple of ``chunk_size``.

    A chunk is zero only if zero extents cover it wholly. The last border is rounded up. Extents
    of the same kind that then touch are joined.

    :param extents: as :meth:`ImageSource.extents` yields them.
    :raises InternalError: when they leave a gap, overlap or do not end at ``size_bytes``.
    """
    position = 0
    run: Extent | None = None
    covered = 0
    for extent in extents:
        if extent.start != covered or extent.end < extent.start:
            raise exception.InternalError(f"extents of the image do not join at byte {covered}")
        covered = extent.end
        is_last = covered == size_bytes
        if extent.is_zero:
            end = -(-covered // chunk_size) * chunk_size if is_last else covered
            end = end // chunk_size * chunk_size
        else:
            end = -(-covered // chunk_size) * chunk_size
        if end <= position:
            continue
        piece = Extent(position, end, extent.is_zero)
        position = end
        if run and run.is_zero == piece.is_zero:
            run = Extent(run.start, piece.end, run.is_zero)
            continue
        if run:
            yield run
        run = piece
    if covered != size_bytes:
        raise exception.InternalError(f"extents of the image end at byte {covered}")
    if run:
        yield run
