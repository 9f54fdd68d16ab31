"""Filling packs and storing them while the next one is being filled.

The bytes that were digested are the bytes that are stored: a window of the image is read into
the tail of a pack's buffer and digested there, chunks that are known already are squeezed out,
and the full buffer is written from where it is. So nothing is copied in user space, and an image
that changes under the reader cannot put wrong bytes under a digest.
"""

import concurrent.futures
import contextlib
import mmap
import os
import queue
from collections.abc import Callable

from acstor import exception, native
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.pack_reader import DATA_OFFSET, HEADER_SIZE

SALT_SIZE = 16
WINDOW_SIZE = 8 << 20
"""Bytes read and digested at once: enough for all cores, few enough for their caches."""


def random_salt() -> bytes:
    """Return a salt for a new pack, so that no name is ever used twice (RFD 5)."""
    return os.urandom(SALT_SIZE)


class InlineExecutor(concurrent.futures.Executor):
    """Runs each job at once in the caller's thread."""

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Run the job and return its outcome."""
        future: concurrent.futures.Future[object] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


Stored = Callable[[bytes, bytes, bytes, int], None]
"""Called after a pack was stored: id, header, what follows its chunks, size in bytes."""


def _new_buffer(size: int) -> mmap.mmap:
    """Return a page-aligned buffer (O_DIRECT wants that), in huge pages where there are any."""
    buffer = mmap.mmap(-1, size)
    with contextlib.suppress(OSError):
        buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


class PackStorer:
    """Stores full packs, and has buffers for those to come.

    :param executor: stores the packs.
    :param stores_max: packs being stored at the same time; with the one being filled, that many
        buffers plus one are allocated.
    :param on_stored: called from the executor's threads.
    :param check_room: called from them before a pack of so many bytes is stored; raises where
        there is no room for it.
    """

    def __init__(
        self,
        objects: base.ObjectStore,
        executor: concurrent.futures.Executor,
        stores_max: int,
        on_stored: Stored,
        check_room: Callable[[int], None] = lambda size: None,
    ) -> None:
        """Allocate nothing yet."""
        self._objects = objects
        self._executor = executor
        self._on_stored = on_stored
        self._check_room = check_room
        self._free: queue.SimpleQueue[mmap.mmap | None] = queue.SimpleQueue()
        for _ in range(stores_max + 1):
            self._free.put(None)
        self._jobs: list[concurrent.futures.Future[None]] = []

    def take_buffer(self, size: int) -> mmap.mmap:
        """Return a buffer, the same size each time; waits until one is free.

        :raises AcstorError: when a pack could not be stored.
        """
        taken = self._free.get()
        self._raise_failures()
        return taken or _new_buffer(size)

    def store(self, pack: bytes, buffer: mmap.mmap, size: int, table: bytes) -> None:
        """Begin to store a pack: the first bytes of a buffer, and then its table.

        :param size: of what is in the buffer, bytes.
        """
        self._jobs.append(self._executor.submit(self._store, pack, buffer, size, table))

    def finish(self) -> None:
        """Wait for all packs.

        :raises AcstorError: when a pack could not be stored.
        """
        concurrent.futures.wait(self._jobs)
        self._raise_failures()

    def abandon(self) -> None:
        """Wait for the packs being stored, whatever becomes of them, and store no more."""
        concurrent.futures.wait(self._jobs)

    def _store(self, pack: bytes, buffer: mmap.mmap, size: int, table: bytes) -> None:
        try:
            stored_size = size + len(table)
            self._check_room(stored_size)
            key = layout.pack_key(pack.hex())
            with memoryview(buffer) as view, view[:size] as content:
                is_new = self._objects.put_if_absent(key, [content, table])
            # Names are never used twice, so what is there can only be our own, repeated.
            if not is_new and self._objects.size(key) != stored_size:
                raise exception.CorruptError(f"{key} exists with another size")
            self._on_stored(pack, buffer[:HEADER_SIZE], table, stored_size)
        finally:
            self._free.put(buffer)

    def _raise_failures(self) -> None:
        running = []
        for job in self._jobs:
            if job.done():
                job.result()
            else:
                running.append(job)
        self._jobs = running


class PackFiller:
    """Fills one pack of version 1 after the other from the new chunks of an image.

    :param builder: knows which chunks are new; its open pack is the one being filled.
    :param pack_size: bytes at which a pack is closed; a buffer has about as many.
    """

    def __init__(
        self,
        builder: native.ImageBuilder,
        chunk_size: int,
        pack_size: int,
        storer: PackStorer,
    ) -> None:
        """Allocate nothing yet."""
        self._builder = builder
        self._chunk_size = chunk_size
        self._chunks_max = max(1, pack_size // chunk_size)
        self._window_max = max(1, min(WINDOW_SIZE // chunk_size, self._chunks_max))
        # Closing a pack early beats reading ever smaller windows into its last bytes.
        self._window_min = max(1, self._window_max // 8)
        self._storer = storer
        self._buffer: mmap.mmap | None = None
        self._filled = 0

    @property
    def window_chunks(self) -> int:
        """Number of chunks that the next window may have, at least 1."""
        return min(self._window_max, self._chunks_max - self._filled)

    def window(self, chunk_count: int) -> memoryview:
        """Return the place for the next ``chunk_count`` chunks; waits for a free buffer.

        :raises AcstorError: when a pack could not be stored.
        """
        if self._buffer is None:
            size = DATA_OFFSET + self._chunks_max * self._chunk_size
            self._buffer = self._storer.take_buffer(size)
        start = DATA_OFFSET + self._filled * self._chunk_size
        return memoryview(self._buffer)[start : start + chunk_count * self._chunk_size]

    def keep(self, chunk_count: int) -> None:
        """Keep the first chunks of the window that was handed out last."""
        self._filled += chunk_count
        if self._chunks_max - self._filled < self._window_min:
            self._close_pack()

    def finish(self) -> None:
        """Store what is left and wait for all packs.

        :raises AcstorError: when a pack could not be stored.
        """
        if self._filled:
            self._close_pack()
        self._storer.finish()

    def _close_pack(self) -> None:
        salt = random_salt()
        pack, digests = self._builder.seal_pack(salt)
        buffer, self._buffer = self._buffer, None
        count, self._filled = self._filled, 0
        if buffer is None or len(digests) != count * 32:
            raise exception.InternalError("the pack's buffer and its digests differ")
        buffer[:DATA_OFFSET] = native.pack_header(self._chunk_size, count, salt)
        self._storer.store(pack, buffer, DATA_OFFSET + count * self._chunk_size, digests)
