"""Filling packs of version 2: new chunks are compressed on all cores, then put side by side.

A window of the image is read and digested in a buffer of its own; the compressed bytes are made of
that buffer, so that an image which changes under the reader cannot put wrong bytes under a digest.
"""

import mmap
from typing import Protocol

from acstor import exception, native
from acstor.repository import pack_filler
from acstor.repository.chunk_indexes import PACK_CLASS
from acstor.repository.pack_filler import WINDOW_SIZE, PackStorer
from acstor.repository.pack_reader import DATA_OFFSET, RECORD_SIZE

ZSTD_LEVEL = 1
"""Level with which new images are compressed (RFD 19)."""


class ChunkTaker(Protocol):
    """Knows which chunks are new, and learns in which pack they are."""

    def absorb(self, scan: native.Scan) -> list[int]:
        """Take scanned chunks and return the positions of the new ones, ascending.

        All of these, of all calls, are put into packs in this order.
        """

    def close_pack(self, pack_id: bytes, table: native.ChunkRecords, /) -> None:
        """Note that a pack, which is stored next, has the first of those that are in none yet."""


class CompressedPackFiller:
    """Fills one pack of version 2 after the other from the new chunks of a disk.

    :param builder: knows which chunks are new.
    :param pack_size: bytes of stored chunks at which a pack is closed; a buffer has about as many.
    """

    def __init__(
        self,
        builder: ChunkTaker,
        chunk_size: int,
        pack_size: int,
        storer: PackStorer,
    ) -> None:
        """Allocate nothing yet."""
        self._builder = builder
        self._chunk_size = chunk_size
        chunks_max = max(1, pack_size // chunk_size)
        self._buffer_size = DATA_OFFSET + chunks_max * (chunk_size + RECORD_SIZE)
        self.window_chunks = max(1, WINDOW_SIZE // chunk_size)
        """Number of chunks that a window may have."""
        self._storer = storer
        self._window: mmap.mmap | None = None
        self._buffer: mmap.mmap | None = None
        self._writer: native.PackWriter | None = None

    def window(self, chunk_count: int) -> memoryview:
        """Return the place for the next ``chunk_count`` chunks."""
        if self._window is None:
            self._window = mmap.mmap(-1, self.window_chunks * self._chunk_size)
        return memoryview(self._window)[: chunk_count * self._chunk_size]

    def take(self, scan: native.Scan, window: memoryview) -> None:
        """Take the chunks of the window that was handed out last; waits for a free buffer.

        :raises AcstorError: when a pack could not be stored.
        """
        fresh = self._builder.absorb(scan)
        if not fresh:
            return
        chunks = native.compress_chunks(scan, window, fresh, ZSTD_LEVEL)
        first = 0
        while first < len(chunks):
            if self._writer is None:
                self._writer = self._begin_pack()
            first = self._writer.append(chunks, first)
            if first < len(chunks):
                self._close_pack()

    def finish(self) -> None:
        """Store what is left and wait for all packs.

        :raises AcstorError: when a pack could not be stored.
        """
        if self._writer is not None:
            self._close_pack()
        self._storer.finish()

    def _begin_pack(self) -> native.PackWriter:
        self._buffer = self._storer.take_buffer(self._buffer_size)
        salt = pack_filler.random_salt()
        return native.PackWriter(self._buffer, self._chunk_size, PACK_CLASS, salt)

    def _close_pack(self) -> None:
        writer, self._writer = self._writer, None
        buffer, self._buffer = self._buffer, None
        if writer is None or buffer is None:
            raise exception.InternalError("no pack is being filled")
        pack, size, records = writer.seal()
        self._builder.close_pack(pack, records)
        self._storer.store(pack, buffer, size, records.to_bytes())
