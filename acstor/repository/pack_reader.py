"""Reading packs from the origin, of either version; a pack's header says which it is."""

import concurrent.futures
import dataclasses
import logging
import mmap
import struct
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from acstor import exception, native
from acstor.origin import base
from acstor.repository import layout, pack_cache
from acstor.repository.chunk_indexes import ChunkIndex
from acstor.repository.gc.condemnation import Tombstones

LOG = logging.getLogger(__name__)

DATA_OFFSET = 4096
"""Offset of the first chunk in a pack, bytes."""
HEADER_SIZE = 64
"""Bytes of a pack's header that carry information."""
PLAIN_VERSION = 1
"""Version of packs whose chunks are stored as they are."""
STORED_VERSION = 2
"""Version of packs whose chunks are stored in the form that pays."""
DIGEST_SIZE = 32
RECORD_SIZE = 44
"""Bytes of a record in the table of a pack of version 2."""
READERS = 4
"""Packs whose digests are read at the same time."""
READ_SIZE = 8 << 20
"""Bytes of chunks that are read and digested at once."""
CODECS = {"plain": 0, "lz4": 1, "zstd": 2}
"""Codecs of stored chunks by their names (crates/types, pack table)."""
_VERSION = struct.Struct("<8sI")
_PLACE = struct.Struct("<III")
"""Offset, size with the codec above it, and checksum, in a record of a pack's table."""
_CODEC_SHIFT = 24

Advance = Callable[[int], None]
"""Told that so many bytes more were read."""


def chunk_record(
    digest: bytes, offset: int, stored_size: int, checksum: int, codec: str = "plain"
) -> bytes:
    """Return the record of a chunk in the table of a pack of version 2.

    :param offset: of the stored bytes in the pack, bytes.
    :param checksum: CRC-32 of the stored bytes.
    :param codec: one of :data:`CODECS`.
    """
    size = stored_size | CODECS[codec] << _CODEC_SHIFT
    return digest + _PLACE.pack(offset, size, checksum)


class Pack(Protocol):
    """A pack whose header and table were read and compared with its id."""

    @property
    def id(self) -> bytes:
        """Name of the pack."""

    @property
    def header(self) -> bytes:
        """Its first 64 bytes."""

    @property
    def table(self) -> bytes:
        """The bytes behind its chunks: digests, or records."""

    @property
    def version(self) -> int:
        """Version of the format."""

    @property
    def chunk_size(self) -> int:
        """Size of a plain chunk, bytes."""

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""

    @property
    def size_bytes(self) -> int:
        """Size of the whole pack, bytes."""

    def offset_of(self, position: int) -> int:
        """Return the offset of a chunk in the pack, bytes."""

    def find_unsound(self, objects: base.ObjectStore, advance: Advance) -> list[int]:
        """Read all chunks; return the positions of those that are not what their digests say."""


@dataclasses.dataclass(frozen=True, slots=True)
class PlainPack:
    """A pack of version 1: chunks of one length, then their digests."""

    id: bytes
    header: bytes
    table: bytes
    chunk_size: int
    chunk_count: int
    version: int = PLAIN_VERSION

    @property
    def size_bytes(self) -> int:
        """See :class:`Pack`."""
        return self.offset_of(self.chunk_count) + len(self.table)

    def offset_of(self, position: int) -> int:
        """See :class:`Pack`."""
        return DATA_OFFSET + position * self.chunk_size

    def find_unsound(self, objects: base.ObjectStore, advance: Advance) -> list[int]:
        """See :class:`Pack`."""
        key = layout.pack_key(self.id.hex())
        window = max(1, READ_SIZE // self.chunk_size)
        unsound: list[int] = []
        with mmap.mmap(-1, window * self.chunk_size) as buffer, memoryview(buffer) as view:
            for first in range(0, self.chunk_count, window):
                end = min(first + window, self.chunk_count)
                with view[: (end - first) * self.chunk_size] as part:
                    objects.read_exactly(key, self.offset_of(first), part)
                    expected = self.table[first * DIGEST_SIZE : end * DIGEST_SIZE]
                    wrong = native.unsound_chunks(part, self.chunk_size, expected)
                    advance(len(part))
                unsound.extend(first + position for position in wrong)
        return unsound


@dataclasses.dataclass(frozen=True, slots=True)
class StoredPack:
    """A pack of version 2: chunks in the form that pays, then a table of where each is."""

    id: bytes
    header: bytes
    table: bytes
    chunk_size: int
    chunk_count: int
    size_bytes: int
    records: native.ChunkRecords
    version: int = STORED_VERSION

    def offset_of(self, position: int) -> int:
        """See :class:`Pack`."""
        _digest, offset, *_ = self.records.record(position)
        return offset

    def find_unsound(self, objects: base.ObjectStore, advance: Advance) -> list[int]:
        """See :class:`Pack`."""
        key = layout.pack_key(self.id.hex())
        unsound: list[int] = []
        for offset, size, positions in self.records.plan_reads(READ_SIZE):
            stored = objects.get_range(key, offset, size)
            wrong = self.records.decompress(positions, offset, stored, self.chunk_size)
            unsound.extend(position for position, _reason in wrong)
            advance(size)
        return sorted(unsound)


def version_of(header: bytes) -> int:
    """Return the version of the pack that begins so."""
    _magic, version = _VERSION.unpack_from(header)
    return int(version)


def overhead_of(header: bytes) -> int:
    """Return how many bytes of the pack that begins so are header and table.

    :raises CorruptError: when the header is damaged.
    :raises UnsupportedError: when a newer release wrote it.
    """
    with native.map_errors("reading the header of a pack"):
        if version_of(header) == STORED_VERSION:
            return DATA_OFFSET + native.PackHeader.parse(header).table_size
        _size, chunk_count, _salt = native.parse_pack_header(header)
        return DATA_OFFSET + chunk_count * DIGEST_SIZE


def read_header(objects: base.ObjectStore, pack: bytes) -> bytes:
    """Return the first bytes of a pack.

    :raises NotFoundError: when there is no such pack.
    """
    return objects.get_range(layout.pack_key(pack.hex()), 0, HEADER_SIZE)


def read_pack(objects: base.ObjectStore, pack: bytes, header: bytes | None = None) -> Pack:
    """Return a pack of either version.

    :param header: its first bytes, where they are known.
    :raises NotFoundError: when there is no such pack.
    :raises CorruptError: when header or table are damaged.
    :raises UnsupportedError: when a newer release wrote it.
    """
    found = read_header(objects, pack) if header is None else header
    with native.map_errors(f"reading {layout.pack_key(pack.hex())}"):
        is_stored = version_of(found) == STORED_VERSION
        return (_read_stored if is_stored else _read_plain)(objects, pack, found)


def _read_plain(objects: base.ObjectStore, pack: bytes, header: bytes) -> PlainPack:
    key = layout.pack_key(pack.hex())
    chunk_size, chunk_count, salt = native.parse_pack_header(header)
    end = DATA_OFFSET + chunk_size * chunk_count
    digests = objects.get_range(key, end, chunk_count * DIGEST_SIZE)
    if native.pack_id(digests, salt) != pack:
        raise exception.CorruptError(f"{key}: the digests are not those of this pack")
    return PlainPack(pack, header, digests, chunk_size, chunk_count)


def _read_stored(objects: base.ObjectStore, pack: bytes, header: bytes) -> StoredPack:
    parsed = native.PackHeader.parse(header)
    table = objects.get_range(
        layout.pack_key(pack.hex()), parsed.table_offset, parsed.chunk_count * RECORD_SIZE
    )
    return StoredPack(
        pack,
        header,
        table,
        parsed.chunk_size,
        parsed.chunk_count,
        parsed.size_bytes,
        parsed.parse_table(pack, table),
    )


def load_index(
    origin: base.Origin,
    index: ChunkIndex,
    cache: pack_cache.PackCache | None,
) -> None:
    """Add every pack that may be relied on, of the index's version.

    That is all but the condemned, those that were moved, since that frees them, those that a host
    could delete, and those that it does not take.

    Packs that vanish meanwhile or are damaged are left out; chunks in them are stored anew.
    """
    names = {layout.name_of(key) for key in origin.list_protected(layout.PACK_PREFIX)} - {None}
    moved = {layout.name_of(key) for key in origin.list(layout.MOVED_PREFIX)}
    usable = names - Tombstones(origin).names() - moved
    wanted = {bytes.fromhex(name) for name in usable if name}
    known = cache.load(index, wanted) if cache else set()
    for pack, header, found in _read_all(origin, wanted - known, index.version):
        if cache:
            cache.append(pack, header, found.table if found else b"")
        if found is None:
            continue
        if index.takes(header):
            index.add_pack(pack, header, found.table)
        else:
            LOG.info("pack %s is of volumes, or of chunks of another size", pack.hex())


_Found = tuple[bytes, bytes, Pack | None]
"""Id and header of a pack, and the pack if it is of the version that is wanted."""


def _read_all(
    objects: base.ObjectStore, packs: Collection[bytes], version: int
) -> Iterator[_Found]:
    def read(pack: bytes) -> _Found | None:
        try:
            header = read_header(objects, pack)
            if version_of(header) != version:
                return pack, header, None
            return pack, header, read_pack(objects, pack, header)
        except exception.NotFoundError:
            return None
        except (exception.CorruptError, exception.UnsupportedError) as error:
            LOG.warning("pack %s is not used: %s", pack.hex(), error)
            return None

    ordered = sorted(packs)
    if len(ordered) <= READERS:
        yield from filter(None, map(read, ordered))
        return
    with concurrent.futures.ThreadPoolExecutor(READERS, "acstor-digests") as pool:
        yield from filter(None, pool.map(read, ordered))
