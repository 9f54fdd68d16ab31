"""Image files that have the content of a disk: made as they are read, of a length known before."""

import enum
from collections.abc import Callable, Iterator
from typing import Protocol

from acstor import exception, native
from acstor.repository.reading.disk_reader import DiskReader
from acstor.repository.reading.qcow2_file import Qcow2File

PIECE_SIZE = 4 << 20
"""Bytes that are made at once."""


class ImageFormat(enum.StrEnum):
    """Format of an image file."""

    RAW = "raw"
    """The bytes of the disk."""
    QCOW2 = "qcow2"
    """The bytes of the disk but for what is zero."""


class ImageFile(Protocol):
    """An image file that nobody stored. Every reading of it finds the same bytes."""

    @property
    def size_bytes(self) -> int:
        """Length of the file."""

    @property
    def layout(self) -> bytes:
        """Digest of where it has what: of one disk, files of one layout have the same bytes."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file.

        :raises InvalidError: when they are not all in it.
        :raises CorruptError: and :class:`~acstor.exception.UnavailableError` as
            :meth:`.DiskReader.read`.
        """


class RawFile:
    """The bytes of a disk; see :class:`ImageFile`."""

    def __init__(self, disk: DiskReader) -> None:
        """Keep the disk."""
        self._disk = disk

    @property
    def size_bytes(self) -> int:
        """See :class:`ImageFile`."""
        return self._disk.size_bytes

    @property
    def layout(self) -> bytes:
        """See :class:`ImageFile`."""
        return bytes(native.digest(f"raw {self.size_bytes}".encode()))

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`ImageFile`."""
        return self._disk.read(offset, size)


def image_file(
    disk: DiskReader, image_format: ImageFormat, check: Callable[[], None] = lambda: None
) -> ImageFile:
    """Return an image file of a disk.

    :param check: called now and then while its layout is made; ends that by raising.
    """
    if image_format is ImageFormat.RAW:
        return RawFile(disk)
    return Qcow2File(disk, disk.data_runs(check))


def pieces(file: ImageFile, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield bytes of a file, :data:`PIECE_SIZE` at a time.

    :param end: first byte that is not wanted; None: all from ``start`` on.
    :raises InvalidError: when the file has none such.
    """
    stop = file.size_bytes if end is None else end
    if not 0 <= start <= stop <= file.size_bytes:
        raise exception.InvalidError(
            f"an image file of {file.size_bytes} bytes has none from {start} to {stop}"
        )
    while start < stop:
        # At a border of pieces from the second on: chunks are then read whole.
        size = min(PIECE_SIZE - start % PIECE_SIZE, stop - start)
        yield file.read(start, size)
        start += size
