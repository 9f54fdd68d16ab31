"""The disk that is being split: a sparse raw file in a folder of its own, beside the output."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from acstor import exception
from acstor.repository.progress import Progress
from acstor.repository.source import base, confinement

COPY_SIZE = 4 << 20
"""Bytes that are copied at once."""
_ZEROS = bytes(1 << 20)
FOLDER_PREFIX = ".acstor-split-"


class WorkDisk:
    """A raw disk in a file that this process and its tools write.

    :raises UnavailableError: when it cannot be made.
    """

    def __init__(self, path: str, size_bytes: int) -> None:
        """Make the file, a hole."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self.descriptor = os.open(path, flags, 0o600)
            user = confinement.tool_user()
            if user is not None:
                os.fchown(self.descriptor, *user)
            os.ftruncate(self.descriptor, size_bytes)
        except OSError as error:
            raise cannot_write(path, error) from error
        self.path = path

    @property
    def size_bytes(self) -> int:
        """Length."""
        return os.fstat(self.descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of it, fewer only at its end."""
        return os.pread(self.descriptor, size, offset)

    def write(self, offset: int, content: bytes) -> None:
        """Write bytes of it.

        :raises ExhaustedError: when there is no room.
        """
        view = memoryview(content)
        try:
            while view:
                done = os.pwrite(self.descriptor, view, offset)
                view, offset = view[done:], offset + done
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def clear(self, offset: int, size: int) -> None:
        """Write zeros: what was moved away would stay readable, and in the output."""
        while size > 0:
            part = min(size, len(_ZEROS))
            self.write(offset, _ZEROS[:part])
            offset, size = offset + part, size - part

    def grow(self, size_bytes: int) -> None:
        """Make it longer."""
        try:
            os.ftruncate(self.descriptor, size_bytes)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def copy_in(source: base.ImageSource, disk: WorkDisk, shift: int, progress: Progress) -> None:
    """Copy what an image has that is not zero.

    :param shift: place of its first byte.
    :raises AcstorError: as reading it does.
    """
    progress.begin("reading the image", source.size_bytes)
    for extent in source.extents():
        place = extent.start
        while place < extent.end:
            size = min(COPY_SIZE, extent.end - place)
            if not extent.is_zero:
                content = source.read(place, size)
                if content.count(0) != len(content):
                    disk.write(shift + place, content)
            place += size
            progress.advance(size)
    source.check_unchanged()


def copy_range(source: WorkDisk, start: int, target: WorkDisk, place: int, size: int) -> None:
    """Copy bytes of a disk where another has others; what neither has stays a hole.

    :raises ExhaustedError: when there is no room.
    """
    for done in range(0, size, COPY_SIZE):
        count = min(COPY_SIZE, size - done)
        content = source.read(start + done, count).ljust(count, b"\0")
        if content != target.read(place + done, count).ljust(count, b"\0"):
            target.write(place + done, content)


@contextmanager
def work_folder(output: str) -> Iterator[str]:
    """Have a folder beside the output, removed at the end, also by SIGTERM.

    :raises UnavailableError: when it cannot be made.
    """
    parent = os.path.dirname(os.path.abspath(output))
    try:
        folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent)
    except OSError as error:
        raise cannot_write(parent, error) from error

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        confinement.give(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def cannot_write(path: str, error: OSError) -> exception.AcstorError:
    """Return the error for a file that cannot be written."""
    hint = "make room beside the output: the whole disk is there for a while, without its holes"
    kind = exception.ExhaustedError if error.errno in (28, 122) else exception.UnavailableError
    return kind(f"{path} cannot be written: {error.strerror}", hint=hint)
