"""Writing and reading deltas: manifests of version 2 of what is other than in their base.

Hosts fold volumes by ``crates/overlay``, from their logs. A version is made of chunks of a disk
that no log has, so its delta is written here, in as much memory as its own bytes. Whatever is
written is read by the crate, chunk by chunk, before it is stored.
"""

import dataclasses
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from acstor import exception, native
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.disk_manifest import DEPTH_MAX, PagedManifest
from acstor.repository.versions import delta_pages as pages
from acstor.repository.versions.delta_pages import Counts, Span

CLASSES = {"image": 1, "volume": 2}
"""Numbers of the classes of packs."""
_PACK_END = 1 << 32


class PackUse(NamedTuple):
    """A pack, as entries of manifests know it."""

    id: bytes
    stored_bytes: int
    """Bytes of all chunks that it holds."""
    pack_class: int
    """Number of its class."""


class PlacedRecord(NamedTuple):
    """A chunk with content."""

    pack: PackUse
    record: bytes
    """Digest, offset, length, codec and checksum: 44 bytes, as in the pack's table."""

    @property
    def digest(self) -> bytes:
        """Name of the content."""
        return self.record[:32]

    @property
    def offset(self) -> int:
        """Offset of its stored bytes in the pack."""
        return int.from_bytes(self.record[32:36], "little")

    @property
    def stored_size(self) -> int:
        """Length of its stored bytes."""
        return int.from_bytes(self.record[36:39], "little")


Said = PlacedRecord | None
"""Statement of a delta about a chunk; None: it is zero."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeltaDisk:
    """Properties of a delta."""

    disk_id: str
    size_bytes: int
    """At least that of the base."""
    chunk_size: int
    base: str
    """Name of the base, hexadecimal."""
    base_depth: int

    @property
    def chunk_count(self) -> int:
        """Number of chunks of the disk."""
        return -(-self.size_bytes // self.chunk_size)


class _Uses:
    """Packs in the order of their first use, with the runs of bytes that are used of each."""

    def __init__(self) -> None:
        self._numbers: dict[PackUse, int] = {}
        self._runs: list[list[tuple[int, int]]] = []

    def add(self, pack: PackUse, start: int, end: int) -> int:
        number = self._numbers.setdefault(pack, len(self._runs))
        if number == len(self._runs):
            self._runs.append([])
        runs = self._runs[number]
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
        return number

    def pages(self) -> tuple[bytes, int, int]:
        """Return the pages of the summary, and the numbers of packs and runs."""
        records, all_runs, run_count = bytearray(), bytearray(), 0
        for pack, runs in zip(self._numbers, self._runs, strict=True):
            joined = _joined(runs)
            used = sum(end - start for start, end in joined)
            if used > pack.stored_bytes:
                raise exception.InternalError(f"pack {pack.id.hex()} has fewer bytes than are used")
            joined = [] if used == pack.stored_bytes else joined
            records += pages.PACK_RECORD.pack(
                pack.id,
                pack.stored_bytes,
                used,
                run_count if joined else 0,
                pack.pack_class | len(joined) << 8,
            )
            all_runs += b"".join(pages.PLACE.pack(*run) for run in joined)
            run_count += len(joined)
        front = pages.record_pages(records, pages.PAGE_ENTRIES, pages.ENTRY_SIZE)
        return front + pages.padded(all_runs), len(self._runs), run_count


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(runs):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


class DeltaWriter:
    """Writes one delta, chunk by chunk in the order of the disk.

    :raises UnsupportedError: when the base is as deep as manifests may be.
    """

    def __init__(self, disk: DeltaDisk) -> None:
        if not 1 <= disk.base_depth < DEPTH_MAX:
            raise exception.UnsupportedError(
                f"a delta over manifest {disk.base} would be {disk.base_depth + 1} deep, at most "
                f"{DEPTH_MAX} may be"
            )
        if disk.size_bytes > layout.DISK_SIZE_MAX or disk.chunk_count > layout.PAGED_CHUNKS_MAX:
            raise exception.DiskTooLargeError(
                f"the disk has {disk.size_bytes} bytes, more than a manifest describes"
            )
        self._disk = disk
        self._next = 0
        self._spans: dict[int, Span] = {}
        self._uses = _Uses()
        self._entries = bytearray()

    def push(self, index: int, chunk: PlacedRecord) -> None:
        """Say that a chunk has content.

        :raises InternalError: when it is out of order, or nothing can be stored so.
        """
        self._take(index, index + 1)
        start, end = chunk.offset, chunk.offset + chunk.stored_size
        is_possible = len(chunk.record) == pages.RECORD_SIZE and pages.PAGE_SIZE <= start < end
        if not is_possible or end >= _PACK_END:
            raise exception.InternalError(f"chunk {index} is stored where no chunk can be")
        number = self._uses.add(chunk.pack, start, end)
        self._entries += number.to_bytes(4, "little") + chunk.record
        self._span(index).data |= 1 << index % pages.SPAN_CHUNKS

    def push_zeros(self, first: int, end: int) -> None:
        """Say that chunks are zero, whatever the base has.

        :raises InternalError: when they are out of order.
        """
        self._take(first, end)
        while first < end:
            start = first % pages.SPAN_CHUNKS
            count = min(end - first, pages.SPAN_CHUNKS - start)
            self._span(first).zero |= ((1 << count) - 1) << start
            first += count

    def _take(self, first: int, end: int) -> None:
        if not self._next <= first <= end <= self._disk.chunk_count:
            raise exception.InternalError(f"chunk {first} of a delta is out of order")
        self._next = end

    def _span(self, index: int) -> Span:
        return self._spans.setdefault(index // pages.SPAN_CHUNKS, Span())

    def finish(self, salt: bytes) -> tuple[str, bytes]:
        """Return the name of the delta, hexadecimal, and its bytes.

        :param salt: 16 bytes, random, so that no name is used twice (RFD 5).
        """
        summary, packs, runs = self._uses.pages()
        directories, fields, map_pages = self._directories()
        maps = b"".join(map_pages)
        entries = pages.record_pages(self._entries, pages.PAGE_ENTRIES, pages.ENTRY_SIZE)
        index, top = pages.index_of([summary, directories, maps, entries])
        disk = self._disk
        header = pages.HEADER.pack(
            pages.MAGIC,
            pages.VERSION,
            0,
            uuid.UUID(disk.disk_id).bytes,
            disk.size_bytes,
            disk.chunk_size,
            disk.base_depth + 1,
            salt,
            bytes.fromhex(disk.base),
            pages.NO_DIGEST,
            native.digest(summary) if packs else pages.NO_DIGEST,
            top,
            len(self._entries) // pages.ENTRY_SIZE,
            packs,
            runs,
            len(map_pages),
        )
        front = header.ljust(pages.DIRECTORIES_AT, b"\0") + pages.DIRECTORIES.pack(*fields)
        page = pages.with_crc(front)
        content = b"".join([page, summary, index, directories, maps, entries])
        return native.digest(page).hex(), content

    def _directories(self) -> tuple[bytes, list[int], list[bytes]]:
        """Return the directory pages, what the header says of them, and the pages of the maps."""
        map_pages: list[bytes] = []
        fields, found = [0] * pages.DIRECTORIES_MAX, dict[int, list[int]]()
        ordinal = 0
        for number, span in sorted(self._spans.items()):
            directory, place = divmod(number, pages.DIRECTORY_SPANS)
            if directory not in found:
                found[directory] = [0] * pages.DIRECTORY_SPANS
                fields[directory] = pages.HAS_DIRECTORY | ordinal
            left = self._disk.chunk_count - number * pages.SPAN_CHUNKS
            length = min(left, pages.SPAN_CHUNKS)
            slot = pages.slot_of(span, length, ordinal, len(map_pages))
            if slot & 3 == pages.MAP:
                map_pages.append(pages.map_page(span))
            found[directory][place] = slot
            ordinal += span.data.bit_count()
        slots = (slot for page in found.values() for slot in page)
        return b"".join(slot.to_bytes(8, "little") for slot in slots), fields, map_pages


def check(
    name: str, content: bytes, below: PagedManifest, said: Mapping[int, Said]
) -> PagedManifest:
    """Return a delta that was written, once the crate has found in it what it was to say.

    Of the base no page is read.

    :raises InternalError: when it says something else: a fault of this program.
    """
    found = PagedManifest(
        name, len(content), lambda offset, size: content[offset : offset + size], below
    )
    for index, chunk in said.items():
        entry = found.entry(index)
        place = entry and (entry.digest, entry.pack, entry.offset, entry.stored_size)
        wanted = chunk and (chunk.digest, chunk.pack.id, chunk.offset, chunk.stored_size)
        if place != wanted:
            raise exception.InternalError(f"manifest {name} was written otherwise at chunk {index}")
    return found


class Delta:
    """A delta that was read whole: what it says, without its base.

    :param name: its name, hexadecimal.
    :raises CorruptError: when these are not its bytes.
    """

    def __init__(self, name: str, content: bytes) -> None:
        if len(content) < pages.PAGE_SIZE or not _is_of(name, content):
            raise exception.CorruptError(f"manifest {name} is damaged in the origin")
        header = pages.HEADER.unpack_from(content)
        self.name = name
        self.base: str = header[8].hex()
        self.size_bytes: int = header[4]
        self.chunk_size: int = header[5]
        self._fields = pages.DIRECTORIES.unpack_from(content, pages.DIRECTORIES_AT)
        data_chunks, packs, runs, maps = header[12:]
        counts = Counts(data_chunks, packs, runs, maps, sum(map(bool, self._fields)))
        self.counts = counts
        at = pages.PAGE_SIZE
        self._packs = _packs_of(content, at, counts.packs)
        at += (counts.summary_pages + counts.index_pages) * pages.PAGE_SIZE
        self._directories = content[at : at + counts.directories * pages.PAGE_SIZE]
        at += len(self._directories)
        self._maps = content[at : at + counts.maps * pages.PAGE_SIZE]
        self._entries = content[at + len(self._maps) :]

    @property
    def pages(self) -> int:
        """Number of its pages."""
        counts = self.counts
        front = 1 + counts.summary_pages + counts.index_pages
        return front + counts.directories + counts.maps + counts.entry_pages

    def said(self) -> Iterator[tuple[int, Said]]:
        """Yield index and content of every chunk of which it says something, ascending."""
        ordinal = 0
        for number, span in self._spans():
            first = number * pages.SPAN_CHUNKS
            for place in pages.bits_of(span.data | span.zero):
                if span.data >> place & 1:
                    yield first + place, self._entry(ordinal)
                    ordinal += 1
                else:
                    yield first + place, None

    def _spans(self) -> Iterator[tuple[int, Span]]:
        chunk_count = -(-self.size_bytes // self.chunk_size)
        numbers = [number for number, field in enumerate(self._fields) if field]
        for position, directory in enumerate(numbers):
            for place in range(pages.DIRECTORY_SPANS):
                at = position * pages.PAGE_SIZE + 8 * place
                slot = int.from_bytes(self._directories[at : at + 8], "little")
                number = directory * pages.DIRECTORY_SPANS + place
                length = min(chunk_count - number * pages.SPAN_CHUNKS, pages.SPAN_CHUNKS)
                span = pages.span_of(slot, length, self._maps) if slot else None
                if span is not None:
                    yield number, span

    def _entry(self, ordinal: int) -> PlacedRecord:
        page, slot = divmod(ordinal, pages.PAGE_ENTRIES)
        at = page * pages.PAGE_SIZE + slot * pages.ENTRY_SIZE
        number = int.from_bytes(self._entries[at : at + 4], "little")
        record = self._entries[at + 4 : at + pages.ENTRY_SIZE]
        return PlacedRecord(self._packs[number], record)


def _is_of(name: str, content: bytes) -> bool:
    """Return whether a header is of a name, and the header's index of all pages."""
    header = content[: pages.PAGE_SIZE]
    if native.digest(header).hex() != name:
        return False
    *_, top, data_chunks, packs, runs, maps = pages.HEADER.unpack_from(header)
    fields = pages.DIRECTORIES.unpack_from(header, pages.DIRECTORIES_AT)
    counts = Counts(data_chunks, packs, runs, maps, sum(map(bool, fields)))
    begin = (1 + counts.summary_pages) * pages.PAGE_SIZE
    end = begin + counts.index_pages * pages.PAGE_SIZE
    index, digest = pages.index_of([content[pages.PAGE_SIZE : begin], content[end:]])
    return (index, digest) == (content[begin:end], top)


def _packs_of(content: bytes, at: int, count: int) -> list[PackUse]:
    found = []
    for number in range(count):
        page, slot = divmod(number, pages.PAGE_ENTRIES)
        place = at + page * pages.PAGE_SIZE + slot * pages.ENTRY_SIZE
        pack, stored_bytes, _used, _first, mixed = pages.PACK_RECORD.unpack_from(content, place)
        found.append(PackUse(pack, stored_bytes, mixed & 0xFF))
    return found


def write(disk: DeltaDisk, said: Mapping[int, Said], salt: bytes) -> tuple[str, bytes]:
    """Return name and bytes of a delta that says this of chunks, and nothing of all others."""
    writer = DeltaWriter(disk)
    for index in sorted(said):
        chunk = said[index]
        if chunk is None:
            writer.push_zeros(index, index + 1)
        else:
            writer.push(index, chunk)
    return writer.finish(salt)


def store(objects: base.ObjectStore, name: str, content: bytes) -> None:
    """Store a manifest that somebody named before."""
    objects.put_if_absent(layout.manifest_key(name), [content])
