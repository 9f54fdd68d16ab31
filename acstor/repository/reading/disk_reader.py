"""Reading a disk at one moment: its manifest, and over that what its log objects have."""

import bisect
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from acstor import exception
from acstor.origin.base import ObjectStore
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.reading.chunk_reader import ChunkReader

READ_SIZE_MAX = 16 << 20
"""Most bytes that are read at once."""


class DataRun(NamedTuple):
    """Bytes of a disk that may be other than zero."""

    start: int
    end: int
    """First byte after it."""


class Overlay(Protocol):
    """Content that was written over a manifest."""

    def runs(self) -> Sequence["WrittenRun"]:
        """Return the parts of the disk that it has, ascending, without overlap."""

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill a buffer with bytes of a part that it has."""

    def close(self) -> None:
        """Let go of what holds it."""


class WrittenRun(NamedTuple):
    """Part of a disk that was written over its manifest."""

    start: int
    end: int
    """First byte after it."""
    is_zero: bool


class DiskReader:
    """A disk that never changes. Safe to use from several threads, except for closing.

    :param size_bytes: of the disk, which may be larger than its manifest's: then zeros follow.
    :param manifest: None: a disk of zeros.
    :param overlay: None: nothing is over the manifest. Closed along with this.
    """

    def __init__(
        self,
        objects: ObjectStore,
        size_bytes: int,
        manifest: DiskManifest | None,
        overlay: Overlay | None = None,
    ) -> None:
        """Read nothing yet."""
        self.size_bytes = size_bytes
        self._manifest = manifest
        self._overlay = overlay
        self._written = list(overlay.runs()) if overlay is not None else []
        self._starts = [run.start for run in self._written]
        self._chunks = None if manifest is None else ChunkReader(objects, manifest.chunk_size)

    def close(self) -> None:
        """Let go of what holds the overlay."""
        if self._overlay is not None:
            self._overlay.close()

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the disk, all of which are verified.

        :param size: bytes, at most :data:`READ_SIZE_MAX`.
        :raises InvalidError: when they are not all on the disk, or too many.
        :raises CorruptError: when the origin has not what the manifest says.
        :raises UnavailableError: when the origin cannot be reached.
        """
        if offset < 0 or not 0 <= size <= READ_SIZE_MAX or offset + size > self.size_bytes:
            raise exception.InvalidError(
                f"{size} bytes at {offset} are not read of a disk of {self.size_bytes} bytes"
            )
        content = bytearray(size)
        with memoryview(content) as view:
            self._read_manifest(offset, view)
            self._read_overlay(offset, view)
        return bytes(content)

    def data_runs(self, check: Callable[[], None] = lambda: None) -> Iterator[DataRun]:
        """Yield the parts that may be other than zero, ascending; none touches the next.

        :param check: called now and then; ends it by raising.
        """
        run: DataRun | None = None
        for start, end in self._pieces(check):
            if run is not None and start <= run.end:
                run = DataRun(run.start, max(run.end, end))
                continue
            if run is not None:
                yield run
            run = DataRun(start, end)
        if run is not None:
            yield run

    def written_chunks(self, chunk_size: int) -> Iterator[int]:
        """Yield the indexes of the chunks of which something was written over the manifest.

        :param chunk_size: bytes; a chunk in which two parts were written may come twice.
        """
        for run in self._written:
            yield from range(run.start // chunk_size, -(-run.end // chunk_size))

    def _pieces(self, check: Callable[[], None]) -> Iterator[tuple[int, int]]:
        """Yield what has content, by its start; pieces may touch and overlap."""
        written = iter([(run.start, run.end) for run in self._written if not run.is_zero])
        beside = next(written, None)
        for piece in self._chunks_with_content(check):
            while beside is not None and beside[0] <= piece[0]:
                yield beside
                beside = next(written, None)
            yield piece
        while beside is not None:
            yield beside
            beside = next(written, None)

    def _chunks_with_content(self, check: Callable[[], None]) -> Iterator[tuple[int, int]]:
        if self._manifest is None:
            return
        size = self._manifest.chunk_size
        zeroed = [_whole_chunks(run, size, self.size_bytes) for run in self._written if run.is_zero]
        for first, end in self._manifest.runs():
            check()
            start, stop = first * size, min(end * size, self.size_bytes)
            yield from _without(start, stop, zeroed)

    def _read_manifest(self, offset: int, out: memoryview) -> None:
        if self._manifest is None or self._chunks is None:
            return
        size = self._manifest.chunk_size
        first, end = offset // size, -(-(offset + len(out)) // size)
        found = self._manifest.entries_between(first, min(end, self._manifest.chunk_count))
        whole = [one for one in found if offset <= one[0] * size]
        places = [index * size - offset for index, _ in whole]
        self._chunks.read_into(places, [entry for _, entry in whole], out)
        for index, entry in found[: len(found) - len(whole)]:
            # Of the first one only the end is wanted.
            chunk = bytearray(size)
            self._chunks.read_into([0], [entry], memoryview(chunk))
            skipped = offset - index * size
            part = memoryview(chunk)[skipped : skipped + len(out)]
            out[: len(part)] = part

    def _read_overlay(self, offset: int, out: memoryview) -> None:
        end = offset + len(out)
        at = max(bisect.bisect_right(self._starts, offset) - 1, 0)
        while at < len(self._written) and self._written[at].start < end:
            run = self._written[at]
            start, stop = max(run.start, offset), min(run.end, end)
            if start < stop:
                part = out[start - offset : stop - offset]
                if run.is_zero or self._overlay is None:
                    part[:] = bytes(len(part))
                else:
                    self._overlay.read_into(start, part)
            at += 1


def _whole_chunks(run: WrittenRun, chunk_size: int, size_bytes: int) -> tuple[int, int]:
    """Return the part of a run that whole chunks lie in; it may be empty."""
    end = run.end if run.end >= size_bytes else run.end // chunk_size * chunk_size
    return -(-run.start // chunk_size) * chunk_size, end


def _without(
    start: int, end: int, left_out: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield a part without others, which are in order."""
    for other, other_end in left_out[max(bisect.bisect_left(left_out, (start, 0)) - 1, 0) :]:
        if other >= end:
            break
        if other < other_end and other_end > start:
            if start < other:
                yield start, other
            start = other_end
    if start < end:
        yield start, end


class SpooledOverlay:
    """Content that was written over a manifest, in a file, each byte at its place on the disk.

    :param descriptor: of the file; owned by this.
    """

    def __init__(self, descriptor: int, runs: Sequence[WrittenRun]) -> None:
        """Keep the file."""
        self._descriptor = descriptor
        self._runs = runs

    def runs(self) -> Sequence[WrittenRun]:
        """See :class:`Overlay`."""
        return self._runs

    def read_into(self, offset: int, out: memoryview) -> None:
        """See :class:`Overlay`.

        :raises UnavailableError: when the file cannot be read.
        """
        done = 0
        while done < len(out):
            try:
                count = os.preadv(self._descriptor, [out[done:]], offset + done)
            except OSError as error:
                raise exception.UnavailableError(
                    f"the copy of a volume's log cannot be read: {error.strerror}",
                    hint="check the disk of the temporary directory",
                ) from error
            if count == 0:
                raise exception.UnavailableError("the copy of a volume's log is cut off")
            done += count

    def close(self) -> None:
        """Close the file, which has no name."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
