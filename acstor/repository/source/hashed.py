"""The declared checksum of a disk that is no file, computed of what the scan has read.

A disk behind a network is read once: what is scanned is hashed as well, in a thread of its own, and
what is known to be zero is hashed as zeros without being read.
"""

import concurrent.futures
import hashlib
import threading
from collections.abc import Iterator

from acstor import exception, native
from acstor.repository.checksum import Checksum
from acstor.repository.source import base

_ZEROS = bytes(1 << 20)


class HashedSource(base.ImageSource):
    """Another source, whose content is hashed as it is scanned for the first time.

    :param inner: scanned in ascending order; what is left out is zero. It is not closed here.
    :param content_bytes: what the checksum is of: the disk without its padding.
    """

    def __init__(self, inner: base.ImageSource, content_bytes: int, declared: Checksum) -> None:
        """Begin with nothing hashed."""
        self.name = inner.name
        self.size_bytes = inner.size_bytes
        self._inner = inner
        self._content_bytes = content_bytes
        self._declared = declared
        self._digest = hashlib.new(declared.algorithm, usedforsecurity=False)
        self._position = 0
        self._is_closed = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "acstor-checksum")
        self._pending: concurrent.futures.Future[None] | None = None

    def extents(self) -> Iterator[base.Extent]:
        """Yield those of the source."""
        return self._inner.extents()

    def scan(
        self, offset: int, buffer: memoryview, chunk_size: int, scope: str | None = None
    ) -> native.Scan:
        """Scan, and have it hashed where it was not yet."""
        scan = self._inner.scan(offset, buffer, chunk_size, scope)
        end = min(offset + len(buffer), self._content_bytes)
        if end > self._position:
            # A copy, for the caller may change the buffer as soon as this returns.
            part = bytes(buffer[max(0, self._position - offset) : end - offset])
            self._submit(max(0, offset - self._position), part)
            self._position = end
        return scan

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of the disk."""
        return self._inner.read(offset, size)

    def check_unchanged(self) -> None:
        """Refuse when the source was changed."""
        self._inner.check_unchanged()

    def check(self) -> None:
        """Take the rest of the disk for zeros, wait for the checksum and compare.

        :raises ChecksumMismatchError: when it is not the declared one.
        """
        self._submit(self._content_bytes - self._position, b"")
        self._position = self._content_bytes
        self._wait()
        value = self._digest.hexdigest()
        if value != self._declared.value:
            raise exception.ChecksumMismatchError(
                f"{self.name} has {self._declared.algorithm} {value}, "
                f"declared is {self._declared.value}",
                hint="upload the image again, or correct the declared checksum",
            )

    def close(self) -> None:
        """Stop hashing, early if need be; the source stays open."""
        self._is_closed.set()
        self._pool.shutdown(cancel_futures=True)

    def _submit(self, zeros: int, part: bytes) -> None:
        self._wait()
        self._pending = self._pool.submit(self._hash, zeros, part)

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _hash(self, zeros: int, part: bytes) -> None:
        while zeros > 0 and not self._is_closed.is_set():
            self._digest.update(memoryview(_ZEROS)[: min(zeros, len(_ZEROS))])
            zeros -= len(_ZEROS)
        self._digest.update(part)
