"""The headers and tables of packs seen before, in one file on the local disk.

A cache: packs never change, so what is in it stays true, and removing it costs only reading the
origin again. Layout, integers little-endian::

    0   magic "ACSTPIDX"   8
    8   version            u32
    12  chunk size, bytes  u32
    then records: pack id 32, the pack's first 64 bytes, size of the table u32, table

The table is what follows the pack's chunks; none where nobody has read it, since only packs of
another version were wanted. The id of a pack is a hash of header and table, so a damaged or torn
record is noticed; the file is cut off there. One process appends at a time; others use what is
there.
"""

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Collection, Iterator
from typing import NamedTuple

from acstor import exception, native
from acstor.repository.chunk_indexes import ChunkIndex

CACHE_VERSION = 2
_MAGIC = b"ACSTPIDX"
_HEADER = struct.Struct("<8sII")
_RECORD = struct.Struct("<32s64sI")
_PACK_VERSION = struct.Struct("<I")
_PACK_VERSION_OFFSET = 8
_CHUNK_BYTES_MIN = 32
"""Fewest bytes of a table that a chunk takes."""
_TABLE_BYTES_MAX = 64 << 20
"""More than a table of the most chunks that a pack has, 2^20 (crates/types, limits.rs)."""


class _Record(NamedTuple):
    pack: bytes
    header: bytes
    table: bytes
    end: int
    """Offset behind it, bytes."""

    @property
    def version(self) -> int:
        """Version of the pack."""
        (version,) = _PACK_VERSION.unpack_from(self.header, _PACK_VERSION_OFFSET)
        return int(version)


class PackCache:
    """The cache file of one repository.

    :param path: the file; its directory is made if needed.
    :param chunk_size: of the repository, bytes.
    """

    def __init__(self, path: str, chunk_size: int) -> None:
        """Open the file, and lock it for appending if no other process has."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._path = path
        self._header = _HEADER.pack(_MAGIC, CACHE_VERSION, chunk_size)
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._is_writer = False
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_writer = True

    def load(self, index: ChunkIndex, wanted: Collection[bytes]) -> set[bytes]:
        """Add the wanted packs that the cache has to ``index``.

        :returns: ids of the wanted packs that need not be read: those that were added, and those
            of another version than the index takes.
        """
        size = os.fstat(self._descriptor).st_size
        if size < len(self._header) or os.pread(self._descriptor, 16, 0) != self._header:
            self._start_anew()
            return set()
        known: set[bytes] = set()
        stale_size = 0
        end = len(self._header)
        index.reserve(min(size // _CHUNK_BYTES_MIN, 1 << 32))
        with contextlib.suppress(exception.CorruptError):
            for record in _records(self._descriptor, end, size):
                if record.pack not in wanted:
                    stale_size += record.end - end
                elif record.pack not in known:
                    with native.map_errors(f"reading {self._path}"):
                        if _is_known(index, record):
                            known.add(record.pack)
                end = record.end
        if self._is_writer:
            if 2 * stale_size > size:
                self._start_anew()
            elif end < size:
                os.ftruncate(self._descriptor, end)
        return known

    def append(self, pack: bytes, header: bytes, table: bytes) -> None:
        """Remember a pack; does nothing while another process appends.

        :param header: its first 64 bytes.
        :param table: empty where it was not read.
        """
        if not self._is_writer:
            return
        record = _RECORD.pack(pack, header, len(table)) + table
        # A full disk must not stop a registration: the cache only saves time.
        with self._lock, contextlib.suppress(OSError):
            os.lseek(self._descriptor, 0, os.SEEK_END)
            os.write(self._descriptor, record)

    def close(self) -> None:
        """Close the file and release its lock.

        The lock first: a child that is being started holds it with its copy of the file.
        """
        if self._is_writer:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

    def _start_anew(self) -> None:
        if self._is_writer:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, self._header, 0)


def _is_known(index: ChunkIndex, record: _Record) -> bool:
    """Add a pack to the index if it is one of its version; return whether it is not to be read."""
    if record.version != index.version:
        return True
    if not record.table:
        return False
    if index.takes(record.header):
        index.add_pack(record.pack, record.header, record.table)
    return True


def _records(descriptor: int, start: int, end: int) -> Iterator[_Record]:
    """Yield the records as far as they are complete.

    Read, not mapped: the process that writes may cut the file off meanwhile, and a signal ends who
    then looks at what was mapped.
    """
    while len(head := os.pread(descriptor, _RECORD.size, start)) == _RECORD.size:
        pack, header, size = _RECORD.unpack(head)
        start += _RECORD.size
        if size > min(_TABLE_BYTES_MAX, end - start):
            return
        table = os.pread(descriptor, size, start)
        start += size
        if len(table) < size:
            return
        yield _Record(pack, header, table, start)
