"""The disk in a snapshot of an RBD image of format raw."""

import concurrent.futures
from collections.abc import Iterator

from acstor import exception, native
from acstor.repository.source import base
from acstor.repository.source.rbd.base import BlockSnapshot

READS = 4
"""Reads in flight at once: each of them waits for another OSD."""
READ_SIZE = 4 << 20
"""Most bytes of one read: an object of an RBD image, by default."""
HEAD_SIZE = 1 << 20
"""Bytes that are read at once for inspection, which asks for them in small parts."""


class RbdSource(base.ImageSource):
    """The disk, padded with zeros to a multiple of 512 bytes.

    :param snapshot: closed with the source.
    """

    def __init__(self, snapshot: BlockSnapshot) -> None:
        """Use an open snapshot."""
        self.name = snapshot.name
        self.content_bytes: int = snapshot.size_bytes
        self.size_bytes = -(-snapshot.size_bytes // base.SECTOR_SIZE) * base.SECTOR_SIZE
        self._snapshot = snapshot
        self._pool = concurrent.futures.ThreadPoolExecutor(READS, "acstor-rbd")
        self._head = (0, b"")

    def extents(self) -> Iterator[base.Extent]:
        """Yield what the cluster has data of, and what it has not; the padding is the last's."""
        position = 0
        for start, end in self._snapshot.list_data():
            if start > position:
                yield base.Extent(position, start, is_zero=True)
            position = self._padded(end)
            yield base.Extent(start, position, is_zero=False)
        if position < self.size_bytes:
            yield base.Extent(position, self.size_bytes, is_zero=True)

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        """Read from several OSDs at once, then digest."""
        present = max(0, min(len(buffer), self.content_bytes - offset))
        jobs = [
            self._pool.submit(self._read_into, offset + start, buffer[start : start + READ_SIZE])
            for start in range(0, present, READ_SIZE)
        ]
        # All of them, also after a failure: nobody may write to the buffer after the return.
        concurrent.futures.wait(jobs)
        for job in jobs:
            job.result()
        buffer[present:] = bytes(len(buffer) - present)
        with native.map_errors(self.name):
            return native.scan_buffer(buffer, chunk_size, scope)

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of the disk."""
        size = min(size, self.content_bytes - offset, HEAD_SIZE)
        if size <= 0:
            return b""
        start, content = self._head
        if not start <= offset <= offset + size <= start + len(content):
            length = min(HEAD_SIZE, self.content_bytes - offset)
            self._head = start, content = offset, self._snapshot.read(offset, length)
        return content[offset - start : offset - start + size]

    def check_unchanged(self) -> None:
        """Refuse when the snapshot is gone: its objects read as zeros from then on."""
        if not self._snapshot.is_there():
            raise exception.ImageRefusedError(
                f"{self.name} was removed while it was being registered",
                hint="nothing needs to be done: an image that Glance still has is tried again",
            )

    def close(self) -> None:
        """End the reads and close the snapshot."""
        self._pool.shutdown(cancel_futures=True)
        self._snapshot.close()

    def _padded(self, end: int) -> int:
        return self.size_bytes if end == self.content_bytes else end

    def _read_into(self, offset: int, buffer: memoryview) -> None:
        size = min(len(buffer), self.content_bytes - offset)
        buffer[:size] = self._snapshot.read(offset, size)
