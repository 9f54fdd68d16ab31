"""Copying chunks of packs to new packs: verified, compressed anew, and read back.

Decompressing what was compressed compares two implementations (RFD 19), so nothing names a new pack
before it was read back.
"""

import logging
import mmap
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence

from acstor import exception, native
from acstor.origin import base
from acstor.repository import layout, pack_filler, pack_reader
from acstor.repository.gc.compaction_plan import Candidate
from acstor.repository.pack_reader import DATA_OFFSET, RECORD_SIZE, StoredPack, chunk_record
from acstor.repository.subjects import UNREADABLE

LOG = logging.getLogger(__name__)

ZSTD_LEVEL = 6
"""Level with which chunks are compressed that are expected to stay (RFD 19)."""

_UNSOUND = (
    "pack %s was read back otherwise than it was written: %s; nothing is moved to it; check the "
    "memory of this machine and the origin"
)
Copies = list[tuple[bytes, native.ChunkRecords, list[tuple[int, int]]]]
"""Of each new pack its id and table, and of each copy its position in the old and the new table."""


class ChunkCopier:
    """Fills one pack after the other, all of one class.

    :param pack_class: of the packs.
    :param pack_size: bytes at which a pack is closed.
    :param announce: told the name of a pack before it is stored.
    :param check_room: raises where there is no room for so many bytes.
    :param advance: told of bytes that were read.
    """

    def __init__(
        self,
        objects: base.ObjectStore,
        pack_class: str,
        chunk_size: int,
        pack_size: int,
        announce: Callable[[bytes], None],
        check_room: Callable[[int], None],
        advance: Callable[[int], None],
    ) -> None:
        """Allocate nothing yet."""
        self._objects = objects
        self._class = pack_class
        self._chunk_size = chunk_size
        chunks_max = max(1, pack_size // chunk_size)
        self._buffer_size = DATA_OFFSET + chunks_max * (chunk_size + RECORD_SIZE)
        self._announce = announce
        self._check_room = check_room
        self._advance = advance
        self._buffer: mmap.mmap | None = None
        self._writer: native.PackWriter | None = None
        self._open: list[tuple[bytes, int]] = []
        """Source and position of each chunk of the pack that is being filled."""
        self._copies: defaultdict[bytes, Copies] = defaultdict(list)
        self.unsound: set[bytes] = set()
        """Sources that have copies in a pack that was read back otherwise than it was written."""
        self.packs = 0
        """Packs stored."""
        self.bytes_stored = 0
        """Bytes of those packs."""

    def copy(self, candidate: Candidate) -> native.ChunkRecords:
        """Copy the needed chunks of a pack; return the table of the pack.

        :raises NotFoundError: when it is gone.
        :raises CorruptError: when it is damaged.
        """
        pack = pack_reader.read_pack(self._objects, candidate.pack)
        table = pack.records if isinstance(pack, StoredPack) else _table_of(pack)
        key = layout.pack_key(candidate.pack.hex())
        positions = needed_positions(table, candidate.runs)
        reads = table.plan_reads(pack_reader.READ_SIZE, positions) if positions else []
        for offset, size, wanted in reads:
            stored = self._objects.get_range(key, offset, size)
            with native.map_errors(f"copying chunks of {key}"):
                chunks = self._rewritten(pack, table, wanted, offset, stored)
            self._append(candidate.pack, wanted, chunks)
            self._advance(size)
        return table

    def _rewritten(
        self,
        pack: pack_reader.Pack,
        table: native.ChunkRecords,
        positions: Sequence[int],
        offset: int,
        stored: bytes,
    ) -> native.StoredChunks:
        if not isinstance(pack, StoredPack):
            table = _with_checksums(table, positions, offset, stored)
            positions = range(len(table))
        return native.rewrite_chunks(
            table, list(positions), offset, stored, self._chunk_size, ZSTD_LEVEL
        )

    def finish(self) -> None:
        """Store what is left."""
        if self._writer is not None:
            self._close_pack()

    def copies_of(self, pack: bytes) -> Copies:
        """Return where the copies of a pack's chunks are, all of which are stored."""
        return self._copies[pack]

    def _append(self, pack: bytes, positions: Sequence[int], chunks: native.StoredChunks) -> None:
        first = 0
        while first < len(chunks):
            if self._writer is None:
                self._writer = self._begin_pack()
            end = self._writer.append(chunks, first)
            self._open.extend((pack, position) for position in positions[first:end])
            first = end
            if first < len(chunks):
                self._close_pack()

    def _begin_pack(self) -> native.PackWriter:
        if self._buffer is None:
            self._buffer = mmap.mmap(-1, self._buffer_size)
        salt = pack_filler.random_salt()
        return native.PackWriter(self._buffer, self._chunk_size, self._class, salt)

    def _close_pack(self) -> None:
        writer, self._writer = self._writer, None
        chunks, self._open = self._open, []
        if writer is None or self._buffer is None:
            raise exception.InternalError("no pack is being filled")
        pack, size, records = writer.seal()
        table = records.to_bytes()
        self._check_room(size + len(table))
        self._announce(pack)
        key = layout.pack_key(pack.hex())
        with memoryview(self._buffer) as view, view[:size] as content:
            self._objects.put_if_absent(key, [content, table])
        self.packs += 1
        self.bytes_stored += size + len(table)
        if not self._is_read_back(pack):
            self.unsound.update(source for source, _ in chunks)
            return
        by_source: defaultdict[bytes, list[tuple[int, int]]] = defaultdict(list)
        for after, (source, before) in enumerate(chunks):
            by_source[source].append((before, after))
        for source, positions in by_source.items():
            self._copies[source].append((pack, records, positions))

    def _is_read_back(self, pack: bytes) -> bool:
        """Return whether a new pack is what was written; what is wrong is logged."""
        try:
            found = pack_reader.read_pack(self._objects, pack)
            unsound = found.find_unsound(self._objects, lambda size: None)
        except exception.NotFoundError as error:
            raise exception.ConflictError(
                f"pack {pack.hex()} was deleted while it was being made",
                hint="another compaction has begun on this host; let it end, then repeat this one",
            ) from error
        except UNREADABLE as error:
            LOG.error(_UNSOUND, pack.hex(), error)
            return False
        if unsound:
            wrong = f"{len(unsound)} chunks are not what their digests say"
            LOG.error(_UNSOUND, pack.hex(), wrong)
        return not unsound


def _table_of(pack: pack_reader.Pack) -> native.ChunkRecords:
    """Return the digests of a pack of version 1 as a table, without checksums."""
    size = pack_reader.DIGEST_SIZE
    records = (
        chunk_record(
            pack.table[at * size : (at + 1) * size], pack.offset_of(at), pack.chunk_size, 0
        )
        for at in range(pack.chunk_count)
    )
    return native.ChunkRecords.parse(b"".join(records))


def _with_checksums(
    table: native.ChunkRecords, positions: Sequence[int], offset: int, stored: bytes
) -> native.ChunkRecords:
    """Return the records of chunks with the checksums of what was read.

    Packs of version 1 have none: whether the bytes are right the digests alone tell.
    """
    records = []
    for position in positions:
        digest, start, size, *_ = table.record(position)
        content = stored[start - offset : start - offset + size]
        records.append(chunk_record(digest, start, size, zlib.crc32(content)))
    return native.ChunkRecords.parse(b"".join(records))


def needed_positions(records: native.ChunkRecords, runs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the positions of the chunks that lie in runs of bytes, which are in order."""
    positions = []
    numbers = iter(runs)
    run = next(numbers, None)
    for position in range(len(records)):
        _digest, offset, size, *_ = records.record(position)
        while run is not None and run[1] <= offset:
            run = next(numbers, None)
        if run is None:
            break
        if run[0] <= offset and offset + size <= run[1]:
            positions.append(position)
    return positions
