"""The host's copy of what changed of a disk, until it is in the origin.

A folder for each disk (``doc/source/reference/formats/capture-spool.rst``): ``data`` has the
changed chunks one after the other, ``index`` a record for each run of zeros and each chunk. It is
whole when ``index`` has its end record, which is written after all of the data is on the disk.
"""

import bisect
import errno
import os
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from acstor import exception, native
from acstor.repository.pack_reader import DIGEST_SIZE
from acstor.repository.source.base import Extent

SPOOL_VERSION = 1
"""Version of spools that this build writes; it reads this one only."""
CHUNKS_MAX = 1 << 24
"""Most chunks of a spool."""
_MAGIC = b"ACSTSPOL"
_HEADER = struct.Struct("<8sIIQI36x")
"""Magic, version, chunk size, disk size, flags."""
_RECORD = struct.Struct("<QQ32s")
"""First chunk, chunks, digest; zeros have the digest of 32 zero bytes."""
_FLAG_WHOLE = 1
_END = (1 << 64) - 1
"""First chunk of the end record, whose number of chunks is that of the records before."""
_ZERO = bytes(DIGEST_SIZE)

Reserve = Callable[[int], None]
"""Told the bytes that are about to be written; raises where there is no room for them."""


class SpoolWriter:
    """Writes one spool; chunks and runs of zeros come in the order of the disk.

    :param folder: exists, and is empty.
    :param is_whole: whether it is of a disk without a parent: what is not in it is zeros.
    :raises ExhaustedError: when there is no room; from each method.
    """

    def __init__(
        self,
        folder: str,
        chunk_size: int,
        size_bytes: int,
        *,
        is_whole: bool,
        reserve: Reserve = lambda size: None,
    ) -> None:
        self._folder = folder
        self._chunk_size = chunk_size
        self._reserve = reserve
        self._records = 0
        self._next = 0
        self.held_bytes = 0
        """Bytes that were written."""
        self.chunks = 0
        """Chunks with content."""
        self._data = _created(os.path.join(folder, "data"))
        try:
            self._index = _created(os.path.join(folder, "index"))
        except BaseException:
            self._data.close()
            raise
        flags = _FLAG_WHOLE if is_whole else 0
        self._write(self._index, _HEADER.pack(_MAGIC, SPOOL_VERSION, chunk_size, size_bytes, flags))

    def take_chunk(self, number: int, digest: bytes, content: memoryview) -> None:
        """Keep a chunk with content."""
        self._write(self._data, content)
        self._add(number, 1, digest)
        self.chunks += 1

    def take_zeros(self, first: int, end: int) -> None:
        """Keep a run of chunks that are zero."""
        if first < end:
            self._add(first, end - first, _ZERO)

    def finish(self) -> None:
        """Make it whole, and last through a power failure."""
        try:
            self._data.flush()
            os.fsync(self._data.fileno())
            self._write(self._index, _RECORD.pack(_END, self._records, _ZERO))
            self._index.flush()
            os.fsync(self._index.fileno())
        except OSError as error:
            raise _no_room(self._folder, error) from error
        finally:
            self.close()

    def close(self) -> None:
        """Close the files; closing again does nothing."""
        for file in (self._data, self._index):
            try:
                file.close()
            except OSError:
                continue  # what is not whole is removed

    def _add(self, first: int, count: int, digest: bytes) -> None:
        if first < self._next or self._records >= CHUNKS_MAX:
            raise exception.InternalError(f"chunk {first} of a spool is out of order, or too much")
        self._write(self._index, _RECORD.pack(first, count, digest))
        self._records += 1
        self._next = first + count

    def _write(self, file: BinaryIO, content: bytes | memoryview) -> None:
        self._reserve(len(content))
        try:
            file.write(content)
        except OSError as error:
            raise _no_room(self._folder, error) from error
        self.held_bytes += len(content)


class _Run(NamedTuple):
    first: int
    chunks: int
    digest: bytes
    data_offset: int


class SpooledDisk:
    """A disk as its spool has it; a :class:`.ChangedDisk`.

    :raises NotFoundError: when there is no spool, or one that is not whole.
    :raises CorruptError: when it is damaged.
    :raises UnsupportedError: when a newer release wrote it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        try:
            with open(os.path.join(folder, "index"), "rb") as file:
                content = file.read(_HEADER.size + (CHUNKS_MAX + 2) * _RECORD.size)
            self._descriptor = os.open(
                os.path.join(folder, "data"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            )
        except FileNotFoundError as error:
            raise exception.NotFoundError(f"{folder} holds no capture") from error
        except OSError as error:
            raise exception.UnavailableError(f"{folder}: {error.strerror}") from error
        try:
            self._parse(content)
        except BaseException:
            self.close()
            raise
        self._firsts = [run.first for run in self._runs]

    @property
    def digests(self) -> tuple[bytes, ...]:
        """Names of its chunks with content, in the order of the disk."""
        return tuple(run.digest for run in self._runs if run.digest != _ZERO)

    def extents(self) -> Iterator[Extent]:
        """See :class:`.ChangedDisk`; of a whole disk also what is zeros because it is not there."""
        position = 0
        for run in self._runs:
            start, end = run.first * self.chunk_size, (run.first + run.chunks) * self.chunk_size
            if self.is_whole and position < start:
                yield Extent(position, start, is_zero=True)
            position = min(end, self.size_bytes)
            yield Extent(start, position, is_zero=run.digest == _ZERO)
        if self.is_whole and position < self.size_bytes:
            yield Extent(position, self.size_bytes, is_zero=True)

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        """See :class:`.ChangedDisk`; what is read is compared with the digests of the capture.

        :raises CorruptError: when the host's disk has changed it.
        """
        first = offset // self.chunk_size
        at = bisect.bisect_left(self._firsts, first)
        runs = self._runs[at : at + len(buffer) // self.chunk_size]
        wanted = b"".join(run.digest for run in runs)
        self._read_into(runs[0].data_offset if runs else 0, buffer)
        scan = native.scan_buffer(buffer, chunk_size, scope)
        if scan.digests() != wanted or any(run.chunks != 1 for run in runs):
            raise exception.CorruptError(
                f"{self._folder} is damaged near byte {offset} of the disk",
                hint="the host's disk has changed what was captured: capture again",
            )
        return scan

    def check_unchanged(self) -> None:
        """Do nothing: every chunk was compared with its digest."""

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _parse(self, content: bytes) -> None:
        if len(content) < _HEADER.size + _RECORD.size:
            raise exception.NotFoundError(f"the capture in {self._folder} is not whole")
        magic, version, chunk_size, size_bytes, flags = _HEADER.unpack_from(content)
        if magic != _MAGIC or not chunk_size or chunk_size & (chunk_size - 1):
            raise self._damaged("its header is none")
        if version != SPOOL_VERSION:
            raise exception.UnsupportedError(f"{self._folder} is of version {version}")
        self.chunk_size, self.size_bytes = int(chunk_size), int(size_bytes)
        self.is_whole = bool(flags & _FLAG_WHOLE)
        records, rest = divmod(len(content) - _HEADER.size, _RECORD.size)
        *runs, end = _RECORD.iter_unpack(content[_HEADER.size : len(content) - rest])
        if end[0] != _END:
            raise exception.NotFoundError(f"the capture in {self._folder} is not whole")
        if rest or end[1] != records - 1:
            raise self._damaged("records are missing")
        self._runs = list(self._placed(runs))

    def _placed(self, runs: list[tuple[int, int, bytes]]) -> Iterator[_Run]:
        position = offset = 0
        chunks = -(-self.size_bytes // self.chunk_size)
        data_size = os.fstat(self._descriptor).st_size
        for first, count, digest in runs:
            is_zero = digest == _ZERO
            if first < position or not count or first + count > chunks:
                raise self._damaged("records are out of order")
            position = first + count
            yield _Run(first, count, digest, offset)
            offset += 0 if is_zero else self.chunk_size
        if offset != data_size:
            raise self._damaged("chunks are missing")

    def _read_into(self, offset: int, buffer: memoryview) -> None:
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
                if not count:
                    raise self._damaged("chunks are missing")
                done += count
        except OSError as error:
            raise exception.UnavailableError(f"{self._folder}: {error.strerror}") from error

    def _damaged(self, reason: str) -> exception.CorruptError:
        return exception.CorruptError(
            f"the capture in {self._folder} is damaged: {reason}", hint="capture again"
        )


def _created(path: str) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _no_room(os.path.dirname(path), error) from error
    return os.fdopen(descriptor, "wb")


def _no_room(folder: str, error: OSError) -> exception.AcstorError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return exception.ExhaustedError(
            f"the file system of {folder} is full",
            hint="make room there, or let [captures] path be on a larger one",
        )
    return exception.UnavailableError(f"{folder}: {error.strerror or error}")
