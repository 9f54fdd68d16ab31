"""Making, comparing and removing local files: the seam between deciding and the file system."""

import contextlib
import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from typing import Protocol

from acstor import exception
from acstor.agent.reconcilers.local_files import verity
from acstor.agent.reconcilers.local_files.content import ImageContent
from acstor.agent.reconcilers.local_files.reading import ImageReader
from acstor.conf.types import MIB
from acstor.drivers.nova.image_links.local_directory import (
    FILE_MODE,
    LocalDirectory,
    Space,
    file_name,
    partial_name,
)

SYNC_BYTES = 64 * MIB
"""Bytes after which what was written is synced and dropped from the page cache."""

Pace = Callable[[int], None]
"""Called with the bytes of each piece; waits, and raises when the work is not wanted any more."""


class NoLongerWantedError(Exception):
    """The work is not wanted any more."""


class FileMaker(Protocol):
    """Makes, compares and removes the local files of one directory.

    Every method raises ``OSError`` as the file system does. Names are those of
    :mod:`acstor.drivers.nova.image_links.local_directory`.
    """

    def names(self) -> list[str]:
        """Return the names in the directory."""

    def space(self) -> Space:
        """Return the room of the file system."""

    def write(self, image_id: str, content: ImageContent, pace: Pace) -> None:
        """Write an image's partial file, each chunk compared before it is written, and sync it.

        :raises CorruptError: when what is read is not the image.
        :raises UnavailableError: when the image cannot be read.
        """

    def is_right(self, name: str, content: ImageContent, pace: Pace) -> bool:
        """Return whether what the disk holds under a name is the image."""

    def finish(self, image_id: str) -> bool:
        """Give a partial file its final name; return whether it is sealed by fs-verity."""

    def refresh(self, image_id: str, size_bytes: int) -> bool:
        """Make a finished file look young to Nova; return whether it is there, of that size."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""


class DiskFileMaker:
    """Makes the files on a disk; a :class:`FileMaker`.

    :param open_reader: opens an image in the mount, by its id.
    """

    def __init__(
        self, directory: LocalDirectory, open_reader: Callable[[str], ImageReader]
    ) -> None:
        self._directory = directory
        self._open_reader = open_reader

    def names(self) -> list[str]:
        """See :class:`FileMaker`."""
        return self._directory.names()

    def space(self) -> Space:
        """See :class:`FileMaker`."""
        return self._directory.space()

    def write(self, image_id: str, content: ImageContent, pace: Pace) -> None:
        """See :class:`FileMaker`."""
        with contextlib.closing(self._open_reader(image_id)) as reader:
            if reader.size_bytes != content.size_bytes:
                raise exception.CorruptError(
                    f"image {image_id} has {reader.size_bytes} bytes in the mount and "
                    f"{content.size_bytes} in its manifest"
                )
            self._directory.make(reader.group)
            self.remove(partial_name(image_id))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with self._opened(partial_name(image_id), flags) as target:
                os.ftruncate(target, content.size_bytes)
                _copy(image_id, content, reader, target, pace)
                os.fsync(target)

    def is_right(self, name: str, content: ImageContent, pace: Pace) -> bool:
        """See :class:`FileMaker`."""
        with self._opened(name, os.O_RDONLY) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != content.size_bytes:
                return False
            _bypass_page_cache(descriptor)
            return _compare(descriptor, content, pace)

    def finish(self, image_id: str) -> bool:
        """See :class:`FileMaker`."""
        partial = partial_name(image_id)
        with self._opened(partial, os.O_RDONLY) as descriptor:
            os.fchmod(descriptor, FILE_MODE)
            is_sealed = verity.seal(descriptor)
            os.fsync(descriptor)
        directory = self._directory.opened()
        try:
            os.rename(partial, file_name(image_id), src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)
        finally:
            os.close(directory)
        return is_sealed

    def refresh(self, image_id: str, size_bytes: int) -> bool:
        """See :class:`FileMaker`."""
        try:
            with self._opened(file_name(image_id), os.O_RDONLY) as descriptor:
                status = os.fstat(descriptor)
                os.utime(descriptor)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == size_bytes

    def remove(self, name: str) -> None:
        """See :class:`FileMaker`."""
        self._directory.remove(name)

    @contextlib.contextmanager
    def _opened(self, name: str, flags: int) -> Iterator[int]:
        directory = self._directory.opened()
        try:
            flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600, dir_fd=directory)
        finally:
            os.close(directory)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _copy(
    image_id: str, content: ImageContent, reader: ImageReader, target: int, pace: Pace
) -> None:
    synced_to = written = 0
    for run in content.runs():
        pace(run.size)
        piece = reader.read(run.offset, run.size)
        if not content.is_right(run, piece):
            raise exception.CorruptError(
                f"image {image_id} is not what its manifest says at {run.offset}",
                hint="restart acstor-dataplane, then 'acstor image verify' reads the origin's copy",
            )
        _write(target, piece, run.offset)
        written += run.size
        if written >= SYNC_BYTES:
            end = run.offset + run.size
            os.fdatasync(target)
            os.posix_fadvise(target, synced_to, end - synced_to, os.POSIX_FADV_DONTNEED)
            synced_to, written = end, 0


def _write(target: int, content: memoryview, offset: int) -> None:
    while content:
        size = os.pwrite(target, content, offset)
        content, offset = content[size:], offset + size


def _bypass_page_cache(descriptor: int) -> None:
    """Have a file read from the disk: what the page cache holds of it proves nothing."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise


def _compare(descriptor: int, content: ImageContent, pace: Pace) -> bool:
    buffer = memoryview(mmap.mmap(-1, content.run_bytes))
    end = 0
    for run in content.runs():
        pace(run.size)
        if not _is_zero(descriptor, end, run.offset, buffer):
            return False
        if not content.is_right(run, _read(descriptor, run.offset, run.size, buffer)):
            return False
        end = run.offset + run.size
    return _is_zero(descriptor, end, content.size_bytes, buffer)


def _is_zero(descriptor: int, start: int, end: int, buffer: memoryview) -> bool:
    """Return whether a part is zero; its holes are not read."""
    while start < end:
        try:
            data = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return True
            raise
        if data >= end:
            return True
        # From a multiple of the page size on, as direct reads want; what comes before is zero too.
        start = max(start, data - data % mmap.PAGESIZE)
        found = _read(descriptor, start, min(end - start, len(buffer)), buffer)
        if not found or found.tobytes().count(0) != len(found):
            return False
        start += len(found)
    return True


def _read(descriptor: int, offset: int, size: int, buffer: memoryview) -> memoryview:
    """Return a part of a file, less at its end; reads whole pages, as direct reads want."""
    filled, wanted = 0, min(len(buffer), -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    while filled < size:
        count = os.preadv(descriptor, [buffer[filled:wanted]], offset + filled)
        if not count:
            break
        filled += count
    return buffer[: min(filled, size)]
