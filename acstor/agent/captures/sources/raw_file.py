"""A raw disk in a file at rest: no layer tells what has changed, so all of it is read.

Source: CloudVS, §3.4, which scans raw disks, too, and lets the guest go first; it copies the disk
by a snapshot of LVM before. Here what is read has to be unchanged at the end.
"""

import errno
import os
from collections.abc import Callable, Iterator

from acstor import exception
from acstor.agent.captures.sources.base import SECTOR_SIZE, DiskSource, LayeredExtent


class RawFileDisk(DiskSource):
    """A raw disk in a regular file.

    :param descriptor: of the file, open for reading; closed with the source.
    :param check: raises when the guest was started meanwhile.
    :raises UnsupportedError: when it is not of whole sectors.
    """

    def __init__(
        self, device: str, path: str, descriptor: int, check: Callable[[], None] = lambda: None
    ) -> None:
        self.device = device
        self._path = path
        self._descriptor = descriptor
        self._check = check
        self._status = os.fstat(descriptor)
        self.size_bytes = self._status.st_size
        if not self.size_bytes or self.size_bytes % SECTOR_SIZE:
            self.close()
            raise exception.UnsupportedError(
                f"{path} has {self._status.st_size} bytes, no multiple of {SECTOR_SIZE}",
                hint="versions need disks of whole sectors",
            )
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def extents(self) -> Iterator[LayeredExtent]:
        """See :class:`.DiskSource`; holes are zeros."""
        position = 0
        while position < self.size_bytes:
            start, end = self._next_data(position)
            if start > position:
                yield LayeredExtent(position, start, is_zero=True, is_own=True)
            if end > start:
                yield LayeredExtent(start, end, is_zero=False, is_own=True)
            position = end

    def _next_data(self, position: int) -> tuple[int, int]:
        """Return the first range of data at or after ``position``; (size, size) if none."""
        size = self.size_bytes
        try:
            start = os.lseek(self._descriptor, position, os.SEEK_DATA)
            end = os.lseek(self._descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size, size
            if error.errno == errno.EINVAL:  # a file system that tells of no holes
                return position, size
            raise self._unreadable(error) from error
        return min(start, size), min(end, size)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """See :class:`.DiskSource`; what was read leaves the page cache to the guests."""
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
                if not count:
                    raise exception.ConflictError(
                        f"{self._path} has become shorter while it was read",
                        hint="capture it again",
                    )
                done += count
            os.posix_fadvise(self._descriptor, offset, done, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._unreadable(error) from error

    def check_unchanged(self) -> None:
        """See :class:`.DiskSource`."""
        self._check()
        check_same_file(self._path, self._status, os.fstat(self._descriptor))

    def close(self) -> None:
        """See :class:`.DiskSource`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _unreadable(self, error: OSError) -> exception.UnavailableError:
        return exception.UnavailableError(f"{self._path}: {error.strerror or error}")


def check_same_file(path: str, then: os.stat_result, now: os.stat_result) -> None:
    """Refuse a file that was written to.

    The time of the last change of the inode does not count: a link to it may come or go.

    :raises ConflictError: when it was.
    """
    if (then.st_size, then.st_mtime_ns) != (now.st_size, now.st_mtime_ns):
        raise exception.ConflictError(
            f"{path} was written to while it was read", hint="capture it again"
        )
