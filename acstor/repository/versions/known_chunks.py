"""Chunks that versions near this one have stored already, in bounded memory.

A host cannot hold the digests of all packs of the origin, as a registration does. It looks into the
packs of the parent's manifest, those of the base included, then into those of siblings: of other
disks of the same base, and of captures of the same moment. What is not found there is stored again.
"""

import bisect
import enum
from collections.abc import Iterable
from typing import NamedTuple

from acstor import exception, native
from acstor.origin import base
from acstor.repository import moved_packs, pack_reader
from acstor.repository.gc.condemnation import Tombstones
from acstor.repository.pack_reader import DATA_OFFSET, RECORD_SIZE, StoredPack
from acstor.repository.subjects import UNREADABLE
from acstor.repository.versions.delta_manifest import CLASSES, PackUse, PlacedRecord

CHUNKS_MAX_DEFAULT = 1 << 20
"""Most chunks that are known: 64 GiB of chunks of 64 KiB."""
CHUNK_BYTES = 60 + RECORD_SIZE
"""Bytes of memory of a chunk, about: in the index, and in the table of its pack."""


class Kinship(enum.Enum):
    """Relation of a pack to the version that is made."""

    ANCESTOR = enum.auto()
    """Versions before it, or the base, have it."""
    SIBLING = enum.auto()
    """It was stored for this version, or for another disk."""


class Known(NamedTuple):
    """A chunk that is stored already."""

    chunk: PlacedRecord
    kinship: Kinship


class _Table(NamedTuple):
    use: PackUse
    records: bytes
    offsets: list[int]
    kinship: Kinship


class KnownChunks:
    """Chunks of some packs of version 2, whatever their class. Not thread-safe.

    :param chunks_max: most chunks; packs that come later are left out.
    """

    def __init__(
        self, origin: base.Origin, chunk_size: int, chunks_max: int = CHUNKS_MAX_DEFAULT
    ) -> None:
        """Know nothing yet."""
        self._origin = origin
        self._chunk_size = chunk_size
        self._chunks_max = chunks_max
        self._index = native.StoredChunkIndex(chunk_size, None)
        self._tables: dict[bytes, _Table] = {}
        self._chunks = 0
        self.packs_left_out = 0
        """Packs for which there was no room, or that are not to be relied on."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory of index and tables."""
        tables = sum(len(table.records) for table in self._tables.values())
        return self._index.memory_bytes + tables

    def add_packs(self, packs: Iterable[bytes], kinship: Kinship = Kinship.ANCESTOR) -> None:
        """Add packs of the origin, the most promising ones first.

        Left out are packs of version 1, which have no checksums that a manifest could name, those
        that a collection is about to delete, those whose chunks were moved, and damaged ones.
        """
        condemned = Tombstones(self._origin).names()
        moved = set(moved_packs.list_moved(self._origin))
        for pack in dict.fromkeys(packs):
            if pack in self._tables:
                continue
            is_usable = pack.hex() not in condemned and pack.hex() not in moved
            found = self._read(pack) if is_usable and self._chunks < self._chunks_max else None
            if found is None or self._chunks + found.chunk_count > self._chunks_max:
                self.packs_left_out += 1
            else:
                self._add(pack, found.header, found.table, kinship)

    def add_stored(self, pack: bytes, header: bytes, table: bytes) -> None:
        """Add a pack that was just stored, a sibling's or an own one; there is room for those.

        :param header: its first 64 bytes.
        """
        self._add(pack, header, table, Kinship.SIBLING)

    def forget_pack(self, pack: bytes) -> None:
        """Let a pack's chunks no longer be found: a collection has it."""
        table = self._tables.pop(pack, None)
        if table is not None:
            self._chunks -= len(table.offsets)
            self._index.forget_pack(pack)

    def find(self, digest: bytes) -> Known | None:
        """Return where a chunk is stored, None where that is not known."""
        place = self._index.lookup(digest)
        if place is None:
            return None
        pack, offset, _size = place
        table = self._tables[pack]
        position = bisect.bisect_left(table.offsets, offset)
        record = table.records[position * RECORD_SIZE : (position + 1) * RECORD_SIZE]
        if record[:32] != digest:
            raise exception.InternalError(f"the index of pack {pack.hex()} contradicts its table")
        return Known(PlacedRecord(table.use, record), table.kinship)

    def _read(self, pack: bytes) -> StoredPack | None:
        try:
            found = pack_reader.read_pack(self._origin, pack)
        except UNREADABLE:
            return None
        is_usable = isinstance(found, StoredPack) and found.chunk_size == self._chunk_size
        return found if is_usable and isinstance(found, StoredPack) else None

    def _add(self, pack: bytes, header: bytes, table: bytes, kinship: Kinship) -> None:
        with native.map_errors(f"reading the table of pack {pack.hex()}"):
            parsed = native.PackHeader.parse(header)
            self._index.add_pack(pack, parsed, parsed.parse_table(pack, table))
        offsets = _offsets(table)
        use = pack_use(pack, parsed.pack_class, table)
        self._tables[pack] = _Table(use, table, offsets, kinship)
        self._chunks += len(offsets)


def _offsets(table: bytes) -> list[int]:
    """Return the offsets of the chunks of a pack, which ascend."""
    return [
        int.from_bytes(table[at + 32 : at + 36], "little")
        for at in range(0, len(table), RECORD_SIZE)
    ]


def pack_use(pack: bytes, pack_class: str, table: bytes) -> PackUse:
    """Return a pack as manifests name it.

    :param table: of the pack, whose last record is that of its last chunk.
    """
    offset = int.from_bytes(table[-12:-8], "little")
    size = int.from_bytes(table[-8:-5], "little")
    return PackUse(pack, offset + size - DATA_OFFSET, CLASSES[pack_class])
