"""Storing chunks anew, in the order of a disk, although packs have them already.

What alpha chooses is meant to lie side by side: chunks go into new packs in the order of the disk,
and no index is asked. Each is verified by its digest on the way, and each new pack is read back
before anything names a chunk of it.
"""

import mmap
import zlib
from collections.abc import Callable, Iterator, Sequence

from acstor import exception, native
from acstor.origin import base
from acstor.repository import layout, moved_packs, pack_filler, pack_reader
from acstor.repository.compressed_filler import ZSTD_LEVEL
from acstor.repository.pack_reader import DATA_OFFSET, RECORD_SIZE
from acstor.repository.versions.delta_chunks import PACK_CLASS
from acstor.repository.versions.delta_manifest import PlacedRecord
from acstor.repository.versions.known_chunks import pack_use

RUN_SIZE_MAX = 4 << 20
"""Most bytes of a pack that are read at once."""

Placed = tuple[int, PlacedRecord]
"""Index of a chunk on the disk, and its place."""


class Repacker:
    """Stores chunks anew.

    :param announce: told the name of a pack before it is stored.
    :param check_room: raises where there is no room for so many bytes.
    """

    def __init__(
        self,
        objects: base.ObjectStore,
        chunk_size: int,
        pack_size: int,
        announce: Callable[[bytes], None],
        check_room: Callable[[int], None],
    ) -> None:
        """Allocate nothing yet."""
        self._objects = objects
        self._chunk_size = chunk_size
        chunks_max = max(1, pack_size // chunk_size)
        self._buffer_size = DATA_OFFSET + chunks_max * (chunk_size + RECORD_SIZE)
        self._announce = announce
        self._check_room = check_room
        self._buffer: mmap.mmap | None = None
        self._writer: native.PackWriter | None = None
        self._open: list[int] = []
        """Indexes of the chunks of the pack that is being filled."""
        self._places: dict[int, PlacedRecord] = {}
        self.bytes_stored = 0
        """Bytes of the packs that were stored."""

    def repack(
        self, chunks: Sequence[Placed], check: Callable[[], None]
    ) -> dict[int, PlacedRecord]:
        """Store chunks anew and return their places.

        :param chunks: in the order of the disk.
        :param check: called between reads; ends it by raising.
        :raises CorruptError: when one is damaged, or a pack was read back otherwise than written.
        :raises NotFoundError: when one is gone.
        """
        for run in _runs(chunks):
            check()
            self._take(run)
        if self._writer is not None:
            self._close_pack()
        return self._places

    def _take(self, run: Sequence[Placed]) -> None:
        """Take chunks that lie side by side in one pack, or lay there before it was compacted."""
        try:
            self._append([index for index, _ in run], self._read([place for _, place in run]))
        except exception.NotFoundError:
            for index, place in run:
                self._append([index], self._read_moved(place))

    def _read(self, run: Sequence[PlacedRecord]) -> native.StoredChunks:
        start = run[0].offset
        size = run[-1].offset + run[-1].stored_size - start
        key = layout.pack_key(run[0].pack.id.hex())
        stored = self._objects.get_range(key, start, size)
        return self._verified(b"".join(place.record for place in run), len(run), start, stored, key)

    def _read_moved(self, place: PlacedRecord) -> native.StoredChunks:
        """Read a chunk whose pack is gone, since a compaction has moved it."""
        pack, offset, size = place.pack.id, place.offset, place.stored_size
        for _ in range(moved_packs.HOPS_MAX):
            found = moved_packs.load_moved(self._objects, pack).find(offset, size)
            if found is None:
                break
            pack, offset, size, codec = found
            key = layout.pack_key(pack.hex())
            try:
                stored = self._objects.get_range(key, offset, size)
            except exception.NotFoundError:
                continue
            number = ("plain", "lz4", "zstd").index(codec)
            record = place.digest + offset.to_bytes(4, "little") + size.to_bytes(3, "little")
            record += bytes([number]) + zlib.crc32(stored).to_bytes(4, "little")
            return self._verified(record, 1, offset, stored, key)
        raise exception.NotFoundError(
            f"pack {place.pack.id.hex()} is gone, and was not moved whole"
        )

    def _verified(
        self, records: bytes, count: int, offset: int, stored: bytes, key: str
    ) -> native.StoredChunks:
        with native.map_errors(f"reading chunks of {key}"):
            table = native.ChunkRecords.parse(records)
            return native.rewrite_chunks(
                table, list(range(count)), offset, stored, self._chunk_size, ZSTD_LEVEL
            )

    def _append(self, indexes: Sequence[int], chunks: native.StoredChunks) -> None:
        first = 0
        while first < len(chunks):
            if self._writer is None:
                self._writer = self._begin_pack()
            end = self._writer.append(chunks, first)
            self._open.extend(indexes[first:end])
            first = end
            if first < len(chunks):
                self._close_pack()

    def _begin_pack(self) -> native.PackWriter:
        if self._buffer is None:
            self._buffer = mmap.mmap(-1, self._buffer_size)
        salt = pack_filler.random_salt()
        return native.PackWriter(self._buffer, self._chunk_size, PACK_CLASS, salt)

    def _close_pack(self) -> None:
        writer, self._writer = self._writer, None
        indexes, self._open = self._open, []
        if writer is None or self._buffer is None:
            raise exception.InternalError("no pack is being filled")
        pack, size, table = writer.seal()
        records = table.to_bytes()
        self._check_room(size + len(records))
        self._announce(pack)
        with memoryview(self._buffer) as view, view[:size] as content:
            self._objects.put_if_absent(layout.pack_key(pack.hex()), [content, records])
        self.bytes_stored += size + len(records)
        self._check_read_back(pack)
        use = pack_use(pack, PACK_CLASS, records)
        for position, index in enumerate(indexes):
            record = records[position * RECORD_SIZE : (position + 1) * RECORD_SIZE]
            self._places[index] = PlacedRecord(use, record)

    def _check_read_back(self, pack: bytes) -> None:
        found = pack_reader.read_pack(self._objects, pack)
        if found.find_unsound(self._objects, lambda size: None):
            raise exception.CorruptError(
                f"pack {pack.hex()} was read back otherwise than it was written",
                hint="check the memory of this machine and the origin",
            )


def _runs(chunks: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Yield neighbours that lie side by side in one pack, too."""
    run: list[Placed] = []
    for chunk in chunks:
        if run:
            last, place = run[-1][1], chunk[1]
            end = last.offset + last.stored_size
            is_next = (last.pack.id, end) == (place.pack.id, place.offset)
            if not is_next or end - run[0][1].offset >= RUN_SIZE_MAX:
                yield run
                run = []
        run.append(chunk)
    if run:
        yield run
