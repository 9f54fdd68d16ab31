"""Sets of chunks of one disk, whose memory and bytes follow what is in them.

Most read and merge what others sent: a set has at most :data:`SPANS_MAX` spans with a chunk, so a
disk of any size costs no more than the largest one that has a bitmap of all of its chunks.
"""

import dataclasses
import struct
from collections.abc import Iterable, Iterator, Mapping

from acstor import exception
from acstor.control import bitmap

SPAN_CHUNKS = 1 << 12
"""Chunks of one span."""
SPANS_MAX = 1 << 14
"""Most spans with a chunk: 8 MiB of bits."""
BITMAP_CHUNKS_MAX = 1 << 26
"""Most chunks of a disk whose sets are bitmaps; those of a larger one are told by span."""
CHUNK_COUNT_MAX = 1 << 30
"""Most chunks of a disk: a limit of manifests."""
SPANS_VERSION = 1
"""Version of the form by span."""
_MAGIC = b"ACSTSPAN"
_SPAN_BYTES = SPAN_CHUNKS // 8
_HEADER = struct.Struct("<8sII")
_RECORD = struct.Struct(f"<I{_SPAN_BYTES}s")


def is_bitmap(chunk_count: int) -> bool:
    """Return whether sets of chunks of a disk of that many are bitmaps."""
    return chunk_count <= BITMAP_CHUNKS_MAX


def len_max(chunk_count: int) -> int:
    """Return the greatest length of a set of chunks of a disk of that many, bytes."""
    if is_bitmap(chunk_count):
        return bitmap.bitmap_len(chunk_count)
    return _HEADER.size + SPANS_MAX * _RECORD.size


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkSet:
    """A set of chunks of one disk."""

    chunk_count: int
    """Chunks of the disk."""
    spans: Mapping[int, int] = dataclasses.field(default_factory=dict)
    """By number of the span, ascending, the bits of its chunks; none is 0."""

    @classmethod
    def of(cls, chunks: Iterable[int], chunk_count: int) -> "ChunkSet":
        """Return the set of some chunks."""
        spans: dict[int, int] = {}
        for chunk in sorted(chunks):
            number, bit = divmod(chunk, SPAN_CHUNKS)
            spans[number] = spans.get(number, 0) | 1 << bit
        return cls(chunk_count, spans)

    def __iter__(self) -> Iterator[int]:
        for number, bits in self.spans.items():
            left = bits
            while left:
                lowest = left & -left
                yield number * SPAN_CHUNKS + lowest.bit_length() - 1
                left ^= lowest

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self.spans.values())

    def __or__(self, other: "ChunkSet") -> "ChunkSet":
        """Return the chunks of either; of spans past :data:`SPANS_MAX` those of ``self`` first."""
        added = sorted(number for number in other.spans if number not in self.spans)
        room = max(0, SPANS_MAX - len(self.spans))
        numbers = sorted([*self.spans, *added[:room]])
        return ChunkSet(
            self.chunk_count,
            {number: self.spans.get(number, 0) | other.spans.get(number, 0) for number in numbers},
        )

    def __and__(self, other: "ChunkSet") -> "ChunkSet":
        both = {number: bits & other.spans.get(number, 0) for number, bits in self.spans.items()}
        return ChunkSet(self.chunk_count, _without_empty(both))

    def __sub__(self, other: "ChunkSet") -> "ChunkSet":
        left = {number: bits & ~other.spans.get(number, 0) for number, bits in self.spans.items()}
        return ChunkSet(self.chunk_count, _without_empty(left))

    def to_bytes(self) -> bytes:
        """Return the bitmap of all chunks, or of a large disk the form by span."""
        if is_bitmap(self.chunk_count):
            found = bytearray(bitmap.bitmap_len(self.chunk_count))
            for number, bits in self.spans.items():
                start = number * _SPAN_BYTES
                length = len(found[start : start + _SPAN_BYTES])
                found[start : start + length] = bits.to_bytes(length, "little")
            return bytes(found)
        records = [
            _RECORD.pack(number, bits.to_bytes(_SPAN_BYTES, "little"))
            for number, bits in self.spans.items()
        ]
        return b"".join([_HEADER.pack(_MAGIC, SPANS_VERSION, len(records)), *records])

    @classmethod
    def from_bytes(cls, content: bytes, chunk_count: int) -> "ChunkSet":
        """Return the set of chunks, of a disk of that many, that bytes are.

        :raises CorruptError: when they are none.
        """
        if is_bitmap(chunk_count):
            found = cls(chunk_count, _spans_of_bitmap(content, chunk_count))
        else:
            found = cls(chunk_count, _spans_of_records(content, chunk_count))
        # Numbers are ascending: the last span has the last chunk.
        for number, bits in list(found.spans.items())[-1:]:
            if number * SPAN_CHUNKS + bits.bit_length() > chunk_count:
                raise exception.CorruptError(f"the set has chunks past the last of {chunk_count}")
        return found

    def encode(self) -> str:
        """Return the set as text."""
        return bitmap.encode(self.to_bytes())

    @classmethod
    def decode(cls, text: str, chunk_count: int) -> "ChunkSet":
        """Return the set of chunks, of a disk of that many, that a text holds.

        :raises CorruptError: when it is none; no more than the longest one is ever decompressed.
        """
        return cls.from_bytes(bitmap.inflate(text, len_max(chunk_count)), chunk_count)


def _spans_of_bitmap(content: bytes, chunk_count: int) -> dict[int, int]:
    if len(content) != bitmap.bitmap_len(chunk_count):
        raise exception.CorruptError(f"{len(content)} bytes are no bitmap of {chunk_count} chunks")
    starts = range(0, len(content), _SPAN_BYTES)
    pieces = (content[start : start + _SPAN_BYTES] for start in starts)
    return _without_empty(
        {number: int.from_bytes(piece, "little") for number, piece in enumerate(pieces)}
    )


def _spans_of_records(content: bytes, chunk_count: int) -> dict[int, int]:
    def refused(reason: str) -> exception.CorruptError:
        return exception.CorruptError(f"no spans of {chunk_count} chunks: {reason}")

    if len(content) < _HEADER.size:
        raise refused(f"{len(content)} bytes")
    magic, version, count = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise refused("they do not begin so")
    if version != SPANS_VERSION:
        raise refused(f"version {version}, this release reads {SPANS_VERSION}")
    if count > SPANS_MAX or len(content) != _HEADER.size + count * _RECORD.size:
        raise refused(f"{count} spans in {len(content)} bytes")
    spans: dict[int, int] = {}
    before = -1
    for number, piece in _RECORD.iter_unpack(content[_HEADER.size :]):
        if number <= before:
            raise refused("they are not in order")
        spans[number] = int.from_bytes(piece, "little")
        before = number
    if not all(spans.values()):
        raise refused("one is empty")
    return spans


def _without_empty(spans: Mapping[int, int]) -> dict[int, int]:
    return {number: bits for number, bits in spans.items() if bits}
