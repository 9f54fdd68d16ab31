"""Content of an image by its manifest, in the pieces in which files are written and compared."""

from collections.abc import Iterator
from dataclasses import dataclass

from acstor import native
from acstor.conf.types import MIB
from acstor.repository.disk_manifest import DiskManifest

RUN_BYTES = 4 * MIB
"""Bytes that are read, compared and written at once; one chunk where that is larger."""
DIGEST_BYTES = 32


@dataclass(frozen=True)
class Run:
    """Neighbouring chunks with content."""

    offset: int
    """Of the first byte, bytes."""
    size: int
    """Bytes; less than whole chunks at the end of the disk only."""
    digests: bytes
    """Digests of the chunks, concatenated."""


class ImageContent:
    """Content of one image.

    :param manifest: it was compared with its name, as far as it is read.
    """

    def __init__(self, manifest: DiskManifest) -> None:
        self._manifest = manifest
        self.manifest = manifest.digest
        self.size_bytes = manifest.size_bytes
        self.chunk_size = manifest.chunk_size

    @property
    def data_bytes(self) -> int:
        """Bytes that a file of it takes; may take a while."""
        return (self._manifest.chunk_count - self._manifest.zero_count) * self.chunk_size

    @property
    def run_bytes(self) -> int:
        """Bytes of the longest run, whole chunks."""
        return max(1, RUN_BYTES // self.chunk_size) * self.chunk_size

    def runs(self) -> Iterator[Run]:
        """Yield all chunks with content, ascending; what lies between is zero."""
        first, digests = 0, bytearray()
        for index, entry in self._manifest.entries():
            count = len(digests) // DIGEST_BYTES
            if count and (index != first + count or count * self.chunk_size >= self.run_bytes):
                yield self._run(first, count, bytes(digests))
                digests.clear()
            if not digests:
                first = index
            digests += entry.digest
        if digests:
            yield self._run(first, len(digests) // DIGEST_BYTES, bytes(digests))

    def _run(self, first: int, count: int, digests: bytes) -> Run:
        offset = first * self.chunk_size
        size = min(count * self.chunk_size, self.size_bytes - offset)
        return Run(offset, size, digests)

    def is_right(self, run: Run, found: memoryview) -> bool:
        """Return whether bytes are those of a run."""
        if len(found) != run.size:
            return False
        missing = -run.size % self.chunk_size
        whole = found if not missing else bytes(found) + bytes(missing)
        return not native.unsound_chunks(whole, self.chunk_size, run.digests)
