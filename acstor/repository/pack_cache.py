"""The digests of packs seen before, in one file on the local disk.

A cache: packs never change, so what is in it stays true, and removing it costs only reading the
origin again. Layout, integers little-endian::

    0   magic "ACSTPIDX"   8
    8   version            u32
    12  chunk size, bytes  u32
    then records: pack id 32, salt 16, chunk count u32, digests count x 32

The id of a pack is a hash of the rest of its record, so a damaged or torn record is noticed; the
file is cut off there. One process appends at a time; others use what is there.
"""

import contextlib
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Collection, Iterator

from acstor import exception, native

CACHE_VERSION = 1
_MAGIC = b"ACSTPIDX"
_HEADER = struct.Struct("<8sII")
_RECORD = struct.Struct("<32s16sI")
_DIGEST_SIZE = 32


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

    def load(self, index: native.DigestIndex, wanted: Collection[bytes]) -> set[bytes]:
        """Add the wanted packs that the cache has to ``index``; return their ids."""
        size = os.fstat(self._descriptor).st_size
        if size < len(self._header) or os.pread(self._descriptor, 16, 0) != self._header:
            self._start_anew()
            return set()
        added: set[bytes] = set()
        stale_size = 0
        end = len(self._header)
        with mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ) as content:
            view = memoryview(content)
            try:
                index.reserve(min(size // _DIGEST_SIZE, 1 << 32))
                for pack, salt, digests, record_end in _records(view, end):
                    if pack not in wanted:
                        stale_size += record_end - end
                    elif pack not in added:
                        with native.map_errors(f"reading {self._path}"):
                            index.add_pack(pack, salt, digests)
                        added.add(pack)
                    digests.release()
                    end = record_end
            except exception.CorruptError:
                digests.release()
            finally:
                view.release()
        if self._is_writer:
            if 2 * stale_size > size:
                self._start_anew()
            elif end < size:
                os.ftruncate(self._descriptor, end)
        return added

    def append(self, pack: bytes, salt: bytes, digests: bytes) -> None:
        """Remember a pack; does nothing while another process appends."""
        if not self._is_writer:
            return
        record = _RECORD.pack(pack, salt, len(digests) // _DIGEST_SIZE) + digests
        # A full disk must not stop a registration: the cache only saves time.
        with self._lock, contextlib.suppress(OSError):
            os.lseek(self._descriptor, 0, os.SEEK_END)
            os.write(self._descriptor, record)

    def close(self) -> None:
        """Close the file and release its lock."""
        os.close(self._descriptor)

    def _start_anew(self) -> None:
        if self._is_writer:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, self._header, 0)


def _records(view: memoryview, start: int) -> Iterator[tuple[bytes, bytes, memoryview, int]]:
    """Yield (pack id, salt, digests, end of the record) as far as records are complete."""
    while start + _RECORD.size <= len(view):
        pack, salt, count = _RECORD.unpack_from(view, start)
        end = start + _RECORD.size + count * _DIGEST_SIZE
        if count == 0 or end > len(view):
            return
        yield pack, salt, view[start + _RECORD.size : end], end
        start = end
