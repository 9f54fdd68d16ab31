"""Local files in memory."""

import errno
import os
from collections.abc import Callable

from acstor import exception
from acstor.agent.reconcilers.local_files.content import ImageContent
from acstor.agent.reconcilers.local_files.making import Pace
from acstor.conf.types import GIB
from acstor.drivers.nova.image_links.local_directory import Space, file_name, partial_name


class MemoryFileMaker:
    """Makes local files in memory; a ``FileMaker``.

    :param disks: content of the images in the mount, by id.
    """

    def __init__(self, disks: dict[str, bytes]) -> None:
        self.disks = disks
        self.files: dict[str, bytes] = {}
        self.total_bytes = 100 * GIB
        self.others_bytes = 0
        """Bytes that others take."""
        self.on_piece: Callable[[], None] = lambda: None
        """Called at each piece that is written."""

    def names(self) -> list[str]:
        """Return the names in the directory."""
        return sorted(self.files)

    def space(self) -> Space:
        """Return the room of the file system."""
        taken = self.others_bytes + sum(map(len, self.files.values()))
        return Space(self.total_bytes, max(0, self.total_bytes - taken))

    def write(self, image_id: str, content: ImageContent, pace: Pace) -> None:
        """Write a partial file piece by piece."""
        disk = self.disks.get(image_id)
        if disk is None:
            raise exception.UnavailableError("the data plane does not offer it")
        written = bytearray(content.size_bytes)
        for run in content.runs():
            pace(run.size)
            self.on_piece()
            piece = memoryview(disk)[run.offset : run.offset + run.size]
            if not content.is_right(run, piece):
                raise exception.CorruptError("it is not what its manifest says")
            written[run.offset : run.offset + run.size] = piece
            self.files[partial_name(image_id)] = bytes(written)

    def is_right(self, name: str, content: ImageContent, pace: Pace) -> bool:
        """Return whether a file is the image."""
        found = self._file(name)
        for run in content.runs():
            pace(run.size)
            piece = memoryview(found)[run.offset : run.offset + run.size]
            if not content.is_right(run, piece):
                return False
        return len(found) == content.size_bytes

    def finish(self, image_id: str) -> bool:
        """Give a partial file its final name."""
        self.files[file_name(image_id)] = self._file(partial_name(image_id))
        del self.files[partial_name(image_id)]
        return True

    def refresh(self, image_id: str, size_bytes: int) -> bool:
        """Return whether a finished file is there, of that size."""
        return len(self.files.get(file_name(image_id), b"")) == size_bytes

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self.files.pop(name, None)

    def _file(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self.files[name]
