"""Manifests: what a disk consists of, in whichever of their two formats.

The header says which it is, and :func:`load_manifest` alone looks there. Version 1 is read whole,
40 bytes for each chunk of the disk's size. Version 2 is read by the page: who asks which packs it
refers to reads header and summary, and no entry.
"""

import contextlib
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from acstor import exception, native
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.chunk_indexes import ChunkIndexes

PAGED_VERSION = 2
"""Version of manifests that are read by the page."""
DEPTH_MAX = 3
"""Most manifests that one reading looks into: a limit of the format."""
SIZE_MAX = (64 << 20) * 40 + (4 << 20) * 32 + 96
"""Largest manifest that is read whole, bytes: a limit of version 1 (crates/types, limits.rs), and
of hosts, which fetch those of either version so."""
_PAGE_SIZE = 4096
_FRONT_SIZE = 64 << 10
"""Bytes that are read first: mostly header and summary, and small manifests of version 1 whole."""
_MAGIC = b"ACSTMANI"
_VERSION = struct.Struct("<8sI")
_SIZES = struct.Struct("<QI")
_ENTRIES = 4096
"""Entries that are read at once."""

Read = Callable[[int, int], bytes]
"""Returns bytes of a manifest: those from an offset on, as many as are asked for."""


class Entry(NamedTuple):
    """Place of a chunk with content."""

    digest: bytes
    pack: bytes
    offset: int
    """Of its stored bytes in the pack, bytes."""
    stored_size: int
    codec: str
    """``plain``, ``lz4`` or ``zstd``."""


class DiskManifest(Protocol):
    """Manifest of one state of a disk."""

    @property
    def digest(self) -> str:
        """Name of the manifest in the origin, hexadecimal."""

    @property
    def disk_id(self) -> str:
        """UUID of the disk."""

    @property
    def size_bytes(self) -> int:
        """Size of the disk, bytes."""

    @property
    def chunk_size(self) -> int:
        """Size of a chunk, bytes."""

    @property
    def chunk_count(self) -> int:
        """Number of chunks, zero chunks included."""

    @property
    def zero_count(self) -> int:
        """Number of zero chunks; may take a while."""

    def packs(self) -> list[bytes]:
        """Return the ids of the packs that it refers to, those of its bases included."""

    def references(self) -> dict[bytes, str]:
        """Return name and key of every object that has to be there: itself, its bases, packs."""

    def content_name(self) -> str:
        """Return the name of the content, the same wherever its chunks are; hexadecimal.

        Manifests of different versions have different names for the same content.
        """

    def entry(self, index: int) -> Entry | None:
        """Return the place of a chunk, None for a zero chunk.

        :raises IndexError: past the end of the disk.
        """

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """Yield index and place of every chunk with content, ascending."""

    def entries_between(self, first: int, end: int) -> list[tuple[int, Entry]]:
        """Return index and place of chunks with content from ``first`` on, before ``end``."""

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the runs of chunks with content, ascending: the first, and the first after it."""

    def has_data(self, first: int, end: int) -> bool:
        """Return whether a chunk from ``first`` on, before ``end``, has content."""

    def is_as_scanned(self, first: int, scan: native.Scan) -> bool:
        """Return whether the chunks from ``first`` on are those that were scanned."""

    def check(self) -> None:
        """Check what was not checked when the manifest was loaded.

        :raises CorruptError: when it is damaged, or contradicts itself.
        """

    def unsound(self, sound: ChunkIndexes) -> list[int]:
        """Return the indexes of chunks that are not among the sound ones, ascending."""

    def account(self, space: native.SpaceAccount, owner: int) -> None:
        """Add the stored bytes that it needs to an account."""


class WholeManifest:
    """A manifest of version 1."""

    def __init__(self, manifest: native.Manifest) -> None:
        self._manifest = manifest
        self.digest = manifest.digest
        self.disk_id = manifest.disk_id
        self.size_bytes = manifest.size_bytes
        self.chunk_size = manifest.chunk_size
        self.chunk_count = manifest.chunk_count

    @property
    def zero_count(self) -> int:
        """See :class:`DiskManifest`."""
        return self._manifest.zero_count

    def packs(self) -> list[bytes]:
        """See :class:`DiskManifest`."""
        return self._manifest.packs()

    def references(self) -> dict[bytes, str]:
        """See :class:`DiskManifest`."""
        return _keys_of([self.digest], self.packs())

    def content_name(self) -> str:
        """Return BLAKE3 of disk size, chunk size and the digests of all chunks."""
        sizes = _SIZES.pack(self.size_bytes, self.chunk_size)
        return native.digest(sizes + self._manifest.digests()).hex()

    def entry(self, index: int) -> Entry | None:
        """See :class:`DiskManifest`."""
        found = self._manifest.entry(index)
        return found and Entry(*found, self.chunk_size, "plain")

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """See :class:`DiskManifest`."""
        for index in range(self.chunk_count):
            entry = self.entry(index)
            if entry is not None:
                yield index, entry

    def entries_between(self, first: int, end: int) -> list[tuple[int, Entry]]:
        """See :class:`DiskManifest`."""
        places = ((index, self.entry(index)) for index in range(first, end))
        return [(index, entry) for index, entry in places if entry is not None]

    def runs(self) -> Iterator[tuple[int, int]]:
        """See :class:`DiskManifest`."""
        first = self._manifest.next_data(0)
        while first is not None:
            end = first + 1
            while end < self.chunk_count and self._manifest.entry(end) is not None:
                end += 1
            yield first, end
            first = self._manifest.next_data(end) if end < self.chunk_count else None

    def has_data(self, first: int, end: int) -> bool:
        """See :class:`DiskManifest`."""
        found = self._manifest.next_data(first)
        return found is not None and found < end

    def is_as_scanned(self, first: int, scan: native.Scan) -> bool:
        """See :class:`DiskManifest`."""
        return self._manifest.first_difference(first, scan) is None

    def check(self) -> None:
        """Do nothing: the bytes were compared with the name."""

    def unsound(self, sound: ChunkIndexes) -> list[int]:
        """See :class:`DiskManifest`."""
        return self._manifest.unsound(sound.plain.digests)

    def account(self, space: native.SpaceAccount, owner: int) -> None:
        """See :class:`DiskManifest`."""
        space.add_whole(owner, self._manifest)


class PagedManifest:
    """A manifest of version 2, on those that it is a delta of.

    :param base: of a delta, its base.
    :raises CorruptError: when its header is not that of its name.
    """

    def __init__(
        self, digest: str, length: int, read: Read, base: "PagedManifest | None" = None
    ) -> None:
        self.digest = digest
        self.names: list[str] = [digest, *(base.names if base else [])]
        """Names of the manifests that a reading may look into, this one first."""
        self._manifest: native.PagedManifest
        with self._mapped():
            self._manifest = native.PagedManifest.open(
                digest, length, read, base._manifest if base else None
            )
        self.disk_id = self._manifest.disk_id
        self.size_bytes = self._manifest.size_bytes
        self.chunk_size = self._manifest.chunk_size
        self.chunk_count = self._manifest.chunk_count

    def _mapped(self) -> contextlib.AbstractContextManager[None]:
        return native.map_errors(f"reading manifest {self.digest}")

    @property
    def zero_count(self) -> int:
        """See :class:`DiskManifest`."""
        with self._mapped():
            return self.chunk_count - self._manifest.data_count()

    def usage(self) -> list[tuple[bytes, int, int, int]]:
        """Return (id, class, stored bytes, bytes of these that are used) of each pack."""
        with self._mapped():
            return self._manifest.usage()

    def packs(self) -> list[bytes]:
        """See :class:`DiskManifest`."""
        return list(dict.fromkeys(pack for pack, *_ in self.usage()))

    def references(self) -> dict[bytes, str]:
        """See :class:`DiskManifest`."""
        return _keys_of(self.names, self.packs())

    def content_name(self) -> str:
        """See :class:`DiskManifest`.

        :raises InvalidError: of a delta, which has none.
        """
        name = self._manifest.content_name
        if name is None:
            raise exception.InvalidError(f"manifest {self.digest} is a delta, which names nothing")
        return name

    def entry(self, index: int) -> Entry | None:
        """See :class:`DiskManifest`."""
        with self._mapped():
            found = self._manifest.entry(index)
        return found and Entry(*found)

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """See :class:`DiskManifest`."""
        for found in self._batches():
            for index, entry in found:
                yield index, Entry(*entry)

    def entries_between(self, first: int, end: int) -> list[tuple[int, Entry]]:
        """See :class:`DiskManifest`."""
        if first >= end or not self.has_data(first, end):
            return []
        with self._mapped():
            found = self._manifest.entries(first, end - first)
        return [(index, Entry(*entry)) for index, entry in found if index < end]

    def runs(self) -> Iterator[tuple[int, int]]:
        """See :class:`DiskManifest`."""
        yield from _runs_of(index for found in self._batches() for index, _ in found)

    def _batches(self) -> Iterator[list[tuple[int, tuple[bytes, bytes, int, int, str]]]]:
        """Yield index and place of all chunks with content, many at once."""
        first = 0
        while True:
            with self._mapped():
                found = self._manifest.entries(first, _ENTRIES)
            if not found:
                return
            yield found
            first = found[-1][0] + 1

    def has_data(self, first: int, end: int) -> bool:
        """See :class:`DiskManifest`."""
        with self._mapped():
            found = self._manifest.next_data(first)
        return found is not None and found < end

    def is_as_scanned(self, first: int, scan: native.Scan) -> bool:
        """See :class:`DiskManifest`."""
        with self._mapped():
            return self._manifest.first_difference(first, scan) is None

    def next_data(self, first: int) -> int | None:
        """Return the index of the first chunk with content at or after ``first``, None: no more."""
        with self._mapped():
            return self._manifest.next_data(first)

    def check(self) -> None:
        """Read all pages of this manifest and its bases; see :class:`DiskManifest`."""
        with self._mapped():
            self._manifest.check()

    def unsound(self, sound: ChunkIndexes) -> list[int]:
        """See :class:`DiskManifest`."""
        with self._mapped():
            return self._manifest.unsound(sound.stored.chunks, sound.plain.digests)

    def account(self, space: native.SpaceAccount, owner: int) -> None:
        """See :class:`DiskManifest`; summaries are read."""
        with self._mapped():
            space.add_paged(owner, self._manifest)


def _runs_of(indexes: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of successive numbers."""
    first = end = -1
    for index in indexes:
        if index != end:
            if first >= 0:
                yield first, end
            first = index
        end = index + 1
    if first >= 0:
        yield first, end


def _keys_of(manifests: list[str], packs: list[bytes]) -> dict[bytes, str]:
    keys = {bytes.fromhex(name): layout.manifest_key(name) for name in manifests}
    keys.update((pack, layout.pack_key(pack.hex())) for pack in packs)
    return keys


def load_manifest(objects: base.ObjectStore, digest: str) -> DiskManifest:
    """Return the manifest with that name.

    :raises NotFoundError: when it is not there, or one of its bases.
    :raises CorruptError: when its bytes are not what the name says.
    :raises UnsupportedError: when a newer release wrote it.
    """
    return _load(objects, digest, DEPTH_MAX)


def _load(objects: base.ObjectStore, digest: str, depth_max: int) -> DiskManifest:
    key = layout.manifest_key(digest)
    length = objects.size(key)
    # Of version 2 too: summaries are read whole, and whoever stores objects may make one up.
    if length > SIZE_MAX:
        raise exception.CorruptError(f"manifest {digest} has {length} bytes, more than any has")
    front = objects.get_range(key, 0, min(length, _FRONT_SIZE))
    if not is_paged(front):
        return _load_whole(objects, digest, front, length)

    def read(offset: int, size: int) -> bytes:
        if offset + size <= len(front):
            return front[offset : offset + size]
        return objects.get_range(key, offset, size)

    below = base_of(digest, front[:_PAGE_SIZE], length)
    if below is None:
        return PagedManifest(digest, length, read)
    lower = _load(objects, below, depth_max - 1) if depth_max > 1 else None
    return _delta(digest, length, read, lower)


def _delta(digest: str, length: int, read: Read, base: DiskManifest | None) -> PagedManifest:
    if not isinstance(base, PagedManifest):
        raise exception.CorruptError(f"manifest {digest} is a delta of what is no base")
    return PagedManifest(digest, length, read, base)


def base_of(digest: str, front: bytes, length: int) -> str | None:
    """Return the manifest that one is a delta of; None: it is whole, or of version 1.

    :param front: its first 4,096 bytes, or all.
    :raises CorruptError: when they are malformed.
    """
    if not is_paged(front):
        return None
    with native.map_errors(f"reading manifest {digest}"):
        return native.PagedManifest.base_of(front, length)


def is_paged(front: bytes) -> bool:
    """Return whether a manifest that begins so is one of version 2."""
    return len(front) >= _VERSION.size and _VERSION.unpack_from(front) == (_MAGIC, PAGED_VERSION)


def _load_whole(objects: base.ObjectStore, digest: str, front: bytes, length: int) -> WholeManifest:
    content = front
    if length > len(front):
        key = layout.manifest_key(digest)
        content += objects.get_range(key, len(front), length - len(front))
    return _parse_whole(digest, content)


def parse_manifest(digest: str, content: bytes) -> DiskManifest:
    """Return the manifest with that name, which is no delta, from its bytes.

    :raises CorruptError: when these are not its bytes; of version 2 the header only is looked at.
    :raises UnsupportedError: when a newer release wrote it.
    """
    if not is_paged(content):
        return _parse_whole(digest, content)
    return PagedManifest(digest, len(content), _reader_of(content))


def parse_levels(levels: Mapping[str, bytes]) -> DiskManifest:
    """Return a manifest on those that it is a delta of, from their bytes, the topmost first.

    :raises CorruptError: when these are not the bytes of the names, or no levels.
    """
    (name, content), *rest = reversed(list(levels.items()))
    found = parse_manifest(name, content)
    for name, content in rest:
        found = _delta(name, len(content), _reader_of(content), found)
    return found


def _reader_of(content: bytes) -> Read:
    return lambda offset, size: content[offset : offset + size]


def _parse_whole(digest: str, content: bytes) -> WholeManifest:
    if native.digest(content).hex() != digest:
        raise exception.CorruptError(f"manifest {digest} is damaged in the origin")
    with native.map_errors(f"reading manifest {digest}"):
        return WholeManifest(native.Manifest.parse(content))
