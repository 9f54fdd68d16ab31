"""Reading chunks that a manifest names: verified, and wherever a compaction has moved them to."""

import dataclasses
import zlib
from collections.abc import Iterable, Iterator, Sequence

from acstor import exception, native
from acstor.origin.base import ObjectStore
from acstor.repository import layout, moved_packs
from acstor.repository.disk_manifest import Entry
from acstor.repository.pack_reader import chunk_record

READ_SIZE = 8 << 20
"""Most stored bytes that are read at once."""
GAP_MAX = 64 << 10
"""Bytes between two chunks that are read along with them."""

Wanted = tuple[int, Entry]
"""Position among the chunks that are asked for, and place."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """Neighbours in a pack."""

    pack: bytes
    offset: int
    size: int
    chunks: tuple[Wanted, ...]

    @property
    def key(self) -> str:
        return layout.pack_key(self.pack.hex())


class ChunkReader:
    """Reads chunks. Safe to use from several threads.

    For whoever streams whole disks, hosts have the data plane: it caches, and asks other hosts.

    :param chunk_size: of plain chunks, bytes.
    """

    def __init__(self, objects: ObjectStore, chunk_size: int) -> None:
        """Keep where to read."""
        self._objects = objects
        self._chunk_size = chunk_size

    def read_into(self, places: Sequence[int], entries: Sequence[Entry], out: memoryview) -> None:
        """Fill parts of a buffer with chunks.

        :param places: offset in ``out`` for each, bytes.
        :param entries: the chunks, as a manifest has them.
        :param out: writable; each chunk takes the size of a plain one, or what is left.
        :raises CorruptError: when a chunk is not what its digest says, or is nowhere.
        :raises UnavailableError: when the origin cannot be reached.
        """
        wanted: list[Wanted] = list(enumerate(entries))
        for _ in range(moved_packs.HOPS_MAX + 1):
            wanted = self._read_there(wanted, places, out)
            if not wanted:
                return
            wanted = [(at, self._moved(entry)) for at, entry in wanted]
        raise _lost(wanted[0][1])

    def _read_there(
        self, wanted: Sequence[Wanted], places: Sequence[int], out: memoryview
    ) -> list[Wanted]:
        """Fill in the chunks that are where they are looked for; return the others."""
        left: list[Wanted] = []
        for run in _runs(wanted):
            try:
                stored = self._objects.get_range(run.key, run.offset, run.size)
            except exception.NotFoundError:
                left += run.chunks
                continue
            content = self._plain(run, stored)
            for number, (at, _) in enumerate(run.chunks):
                begin = number * self._chunk_size
                room = min(self._chunk_size, len(out) - places[at])
                out[places[at] : places[at] + room] = content[begin : begin + room]
        return left

    def _plain(self, run: _Run, stored: bytes) -> memoryview:
        """Return the plain chunks of a run, in its order.

        :raises CorruptError: when one is not what its digest says.
        """
        records = []
        for _, entry in run.chunks:
            begin = entry.offset - run.offset
            # Manifests do not tell the checksum of what is stored; the digest decides.
            checksum = zlib.crc32(memoryview(stored)[begin : begin + entry.stored_size])
            records.append(
                chunk_record(entry.digest, entry.offset, entry.stored_size, checksum, entry.codec)
            )
        content = bytearray(len(records) * self._chunk_size)
        with native.map_errors(f"reading chunks of {run.key}"):
            table = native.ChunkRecords.parse(b"".join(records))
            positions = list(range(len(records)))
            wrong = table.decompress(positions, run.offset, stored, self._chunk_size, content)
        if wrong:
            position, reason = wrong[0]
            raise exception.CorruptError(
                f"chunk {run.chunks[position][1].digest.hex()} in {run.key} is damaged: {reason}",
                hint="'acstor repository verify' shows what is",
            )
        return memoryview(content)

    def _moved(self, entry: Entry) -> Entry:
        """Return where a chunk is now.

        :raises CorruptError: when nobody knows.
        """
        moved = moved_packs.find_moved(self._objects, entry.pack)
        found = None if moved is None else moved.find(entry.offset, entry.stored_size)
        if found is None:
            raise _lost(entry)
        return Entry(entry.digest, *found)


def _runs(wanted: Iterable[Wanted]) -> Iterator[_Run]:
    """Yield what is read at once."""
    ordered = sorted(wanted, key=lambda one: (one[1].pack, one[1].offset))
    chunks: list[Wanted] = []
    for one in ordered:
        if chunks and not _is_near(chunks, one[1]):
            yield _run_of(chunks)
            chunks = []
        chunks.append(one)
    if chunks:
        yield _run_of(chunks)


def _is_near(chunks: Sequence[Wanted], entry: Entry) -> bool:
    first, last = chunks[0][1], chunks[-1][1]
    gap = entry.offset - (last.offset + last.stored_size)
    size = entry.offset + entry.stored_size - first.offset
    return entry.pack == first.pack and gap <= GAP_MAX and size <= READ_SIZE


def _run_of(chunks: Sequence[Wanted]) -> _Run:
    first = chunks[0][1]
    end = max(entry.offset + entry.stored_size for _, entry in chunks)
    return _Run(first.pack, first.offset, end - first.offset, tuple(chunks))


def _lost(entry: Entry) -> exception.CorruptError:
    return exception.CorruptError(
        f"chunk {entry.digest.hex()} is not in {layout.pack_key(entry.pack.hex())}, nor where that "
        "was moved to",
        hint="'acstor repository verify' shows what is lost",
    )
