"""Raw image files: the file is the disk; its holes are found with SEEK_HOLE."""

import errno
import os
from collections.abc import Iterator

from acstor import exception, native
from acstor.repository.source import base

READ_AHEAD_SIZE = 32 << 20
"""Distance ahead of the scan, bytes, that the kernel is asked to read."""


class RawSource(base.ImageSource):
    """The disk in a raw file, padded with zeros to a multiple of 512 bytes.

    :param file: stays open while the source is used; closed with it.
    """

    def __init__(self, file: base.SourceFile) -> None:
        """Use an open file."""
        self.file: base.SourceFile = file
        os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self.size_bytes = -(-file.size // base.SECTOR_SIZE) * base.SECTOR_SIZE

    def extents(self) -> Iterator[base.Extent]:
        """Yield data and holes; the padding belongs to the last extent."""
        position = 0
        while position < self.file.size:
            start, end = self._next_data(position)
            if start > position:
                yield base.Extent(position, self._padded(start), is_zero=True)
            if end > start:
                yield base.Extent(start, self._padded(end), is_zero=False)
            position = end

    def _padded(self, end: int) -> int:
        return self.size_bytes if end == self.file.size else end

    def _next_data(self, position: int) -> tuple[int, int]:
        """Return the first range of data at or after ``position``; (size, size) if none."""
        size = self.file.size
        try:
            start = os.lseek(self.file.descriptor, position, os.SEEK_DATA)
            end = os.lseek(self.file.descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size, size
            if error.errno == errno.EINVAL:
                return position, size
            raise exception.UnavailableError(f"{self.file.path}: {error.strerror}") from error
        return min(start, size), min(end, size)

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        """Read and digest in one pass on all cores."""
        size = max(0, min(len(buffer), self.file.size - offset))
        os.posix_fadvise(
            self.file.descriptor, offset + READ_AHEAD_SIZE, size, os.POSIX_FADV_WILLNEED
        )
        with native.map_errors(self.file.path):
            return native.scan_file(self.file.descriptor, offset, size, buffer, chunk_size, scope)

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of the file."""
        try:
            return os.pread(self.file.descriptor, size, offset)
        except OSError as error:
            raise exception.UnavailableError(f"{self.file.path}: {error.strerror}") from error

    def check_unchanged(self) -> None:
        """Refuse when the file was changed."""
        self.file.check_unchanged()

    def close(self) -> None:
        """Close the file."""
        self.file.close()
