"""Sections of manifests of version 2, as far as deltas are written and read here.

``reference/formats/manifest-v2`` describes the format; ``crates/manifest`` owns it, and checks what
is written here before anything names it.
"""

import dataclasses
import struct
import zlib
from collections.abc import Iterator, Sequence

from acstor import native

PAGE_SIZE = 4096
SPAN_CHUNKS = 8192
"""Chunks of which one slot of a directory tells."""
DIRECTORY_SPANS = 512
"""Slots of a directory page."""
DIRECTORIES_MAX = 256
ENTRY_SIZE = 48
PAGE_ENTRIES = 85
"""Entries of a page; so are pack records."""
RECORD_SIZE = 44
"""Bytes of an entry behind the number of its pack: a record as in a pack's table."""
PAGE_RUNS = 512
PAGE_DIGESTS = 128
HEADER = struct.Struct("<8sII16sQII16s32s32s32s32sIIII")
"""Magic, version, features, disk, its size, chunk size, depth, salt, base, name of the content,
digests of summary and index, data chunks, packs, runs, maps."""
DIRECTORIES = struct.Struct(f"<{DIRECTORIES_MAX}I")
DIRECTORIES_AT = 1024
CRC_AT = PAGE_SIZE - 4
MAGIC = b"ACSTMANI"
VERSION = 2
HAS_DIRECTORY = 1 << 31
NO_DIGEST = bytes(32)

PACK_RECORD = struct.Struct("<32sIIII")
"""Id, bytes of all chunks, bytes used, first run, class with the number of runs above it."""
PLACE = struct.Struct("<II")
"""Offset of a chunk in its pack, and the length of its stored bytes below its codec."""
ZEROS, RUN, MAP = 1, 2, 3
"""Kinds of slots."""
_ORDINAL_AT, _FIRST_AT, _LENGTH_AT, _COUNT_AT = 2, 34, 47, 51
_ORDINAL_MASK, _RUN_MASK, _MAP_MASK = (1 << 32) - 1, (1 << 13) - 1, (1 << 17) - 1


@dataclasses.dataclass(slots=True)
class Span:
    """Statements of a manifest about 8,192 chunks: one bit for each."""

    data: int = 0
    """Chunks with an entry."""
    zero: int = 0
    """Chunks that are zero, whatever the base has."""


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """Counts from which all sections follow."""

    data_chunks: int
    packs: int
    runs: int
    maps: int
    directories: int

    @property
    def summary_pages(self) -> int:
        """Pages of pack records and runs."""
        return -(-self.packs // PAGE_ENTRIES) - (-self.runs // PAGE_RUNS)

    @property
    def entry_pages(self) -> int:
        """Pages of entries."""
        return -(-self.data_chunks // PAGE_ENTRIES)

    @property
    def index_pages(self) -> int:
        """Pages of digests, of all levels."""
        covered = self.summary_pages + self.directories + self.maps + self.entry_pages
        total = 0
        while covered > 1 or (covered == 1 and not total):
            covered = -(-covered // PAGE_DIGESTS)
            total += covered
        return total


def padded(content: bytes | bytearray) -> bytes:
    """Return bytes with zeros up to the end of their last page."""
    return bytes(content) + bytes(-len(content) % PAGE_SIZE)


def record_pages(records: bytes | bytearray, per_page: int, size: int) -> bytes:
    """Return records of one size, so many a page."""
    step = per_page * size
    return b"".join(padded(records[at : at + step]) for at in range(0, len(records), step))


def pages_of(content: bytes) -> Iterator[bytes]:
    """Yield the pages of a section."""
    for at in range(0, len(content), PAGE_SIZE):
        yield content[at : at + PAGE_SIZE]


def index_of(sections: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the index over all pages of some sections, and the digest of its top page."""
    digests = [native.digest(page) for section in sections for page in pages_of(section)]
    levels: list[bytes] = []
    while len(digests) > 1 or (len(digests) == 1 and not levels):
        level = padded(b"".join(digests))
        levels.append(level)
        digests = [native.digest(page) for page in pages_of(level)]
    return b"".join(reversed(levels)), digests[0] if digests else NO_DIGEST


def map_page(span: Span) -> bytes:
    """Return the page of a map."""
    data = span.data.to_bytes(SPAN_CHUNKS // 8, "little")
    ranks, before = [], 0
    for at in range(0, len(data), 8):
        ranks.append(before)
        before += int.from_bytes(data[at : at + 8], "little").bit_count()
    zero = span.zero.to_bytes(SPAN_CHUNKS // 8, "little")
    return padded(data + zero + struct.pack(f"<{len(ranks)}H", *ranks))


def slot_of(span: Span, length: int, ordinal: int, map_number: int) -> int:
    """Return the slot of a span of which something is said.

    :param length: chunks of the span that are on the disk.
    :param ordinal: of its first data chunk, or of the next one where it has none.
    :param map_number: of its map, if it needs one.
    """
    count = span.data.bit_count()
    if not count and span.zero.bit_count() == length:
        return ZEROS
    first = (span.data & -span.data).bit_length() - 1
    if not span.zero and count and span.data >> first == (1 << count) - 1:
        return RUN | ordinal << _ORDINAL_AT | first << _FIRST_AT | (count - 1) << _LENGTH_AT
    return MAP | ordinal << _ORDINAL_AT | map_number << _FIRST_AT | count << _COUNT_AT


def span_of(slot: int, length: int, maps: bytes) -> Span | None:
    """Return what a slot says; None: nothing.

    :param maps: pages of all maps.
    """
    kind = slot & 3
    if kind == ZEROS:
        return Span(0, (1 << length) - 1)
    if kind == RUN:
        first = slot >> _FIRST_AT & _RUN_MASK
        count = (slot >> _LENGTH_AT & _RUN_MASK) + 1
        return Span(((1 << count) - 1) << first, 0)
    if kind != MAP:
        return None
    at = (slot >> _FIRST_AT & _MAP_MASK) * PAGE_SIZE
    half = SPAN_CHUNKS // 8
    return Span(
        int.from_bytes(maps[at : at + half], "little"),
        int.from_bytes(maps[at + half : at + 2 * half], "little"),
    )


def bits_of(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def with_crc(header: bytes) -> bytes:
    """Return a header page with its checksum."""
    front = header[:CRC_AT].ljust(CRC_AT, b"\0")
    return front + zlib.crc32(front).to_bytes(4, "little")
