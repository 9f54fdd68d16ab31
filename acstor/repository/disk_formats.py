"""The two forms in which disks are stored, each a version of manifests with one of packs.

Which one a new disk gets is decided in :func:`format_of_disks`, by the repository's version. Over
both hosts write, and fold what they have written into a manifest of the same version.
"""

import dataclasses
import mmap
import tempfile
from collections.abc import Callable
from typing import Protocol

from acstor import exception, native
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.chunk_indexes import ChunkIndex, PlainIndex, StoredIndex
from acstor.repository.compressed_filler import CompressedPackFiller
from acstor.repository.disk_manifest import (
    SIZE_MAX,
    DiskManifest,
    PagedManifest,
    WholeManifest,
)
from acstor.repository.pack_filler import PackFiller, PackStorer
from acstor.repository.repository import Repository

WHOLE_SALT_BITS = 64
"""Bits of a salt that a manifest of version 1 has room for."""
SALT_BITS = 128
"""Bits of a salt of a manifest of version 2."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredDisk:
    """A disk whose packs are stored, and whose manifest is not yet."""

    manifest: DiskManifest
    content: base.Buffer | mmap.mmap
    """The manifest's bytes."""
    chunks: int
    zero: int
    new: int
    """Chunks that the index did not have."""
    unique: int
    """Different chunks, zero chunks left out."""
    former_content_name: Callable[[], str | None] = lambda: None
    """Returns the content's name in manifests of another version."""

    def has_content(self, name: str) -> bool:
        """Return whether a name is that of the content, in manifests of either version."""
        return name in (self.manifest.content_name(), self.former_content_name())

    def store_manifest(self, objects: base.ObjectStore) -> None:
        """Store the manifest."""
        with memoryview(self.content) as content:
            objects.put_if_absent(layout.manifest_key(self.manifest.digest), [content])


class DiskFiller(Protocol):
    """Takes the chunks of one disk in its order, and stores those that are new."""

    @property
    def window_chunks(self) -> int:
        """Number of chunks that the next window may have, at least 1."""

    def push_zeros(self, count: int) -> None:
        """Take so many zero chunks."""

    def window(self, chunk_count: int) -> memoryview:
        """Return the place into which the next chunks are read; may wait for packs.

        :raises AcstorError: when a pack could not be stored.
        """

    def take(self, scan: native.Scan, window: memoryview) -> None:
        """Take the scanned chunks of the window that was handed out last.

        :raises AcstorError: when a pack could not be stored.
        """

    def finish(self, disk_id: str, size_bytes: int, salt: int) -> StoredDisk:
        """Store what is left, wait for all packs, and make the manifest.

        :raises AcstorError: when a pack could not be stored.
        """


class DiskFormat(Protocol):
    """One form in which disks are stored."""

    chunks_max: int
    """Most chunks of a disk."""
    size_max: int
    """Largest disk, bytes."""

    def new_index(self, chunk_size: int) -> ChunkIndex:
        """Return an empty index of the packs that this form can refer to."""

    def new_filler(self, index: ChunkIndex, pack_size: int, storer: PackStorer) -> DiskFiller:
        """Return what stores one disk.

        :param index: made by :meth:`new_index`, of the chunk size of the disk.
        :param pack_size: bytes at which a pack is closed.
        """


class _Filler:
    """Parts that both forms of storing a disk share."""

    _builder: native.ImageBuilder | native.DiskBuilder
    _packs: PackFiller | CompressedPackFiller

    @property
    def window_chunks(self) -> int:
        """See :class:`DiskFiller`."""
        return self._packs.window_chunks

    def push_zeros(self, count: int) -> None:
        """See :class:`DiskFiller`."""
        self._builder.push_zeros(count)

    def window(self, chunk_count: int) -> memoryview:
        """See :class:`DiskFiller`."""
        return self._packs.window(chunk_count)

    def _stored(self, manifest: DiskManifest, content: base.Buffer | mmap.mmap) -> StoredDisk:
        builder = self._builder
        return StoredDisk(
            manifest,
            content,
            len(builder),
            builder.zero_count,
            builder.new_count,
            builder.unique_count(),
        )


class PlainFiller(_Filler):
    """Stores a disk in packs and a manifest of version 1."""

    _builder: native.ImageBuilder
    _packs: PackFiller

    def __init__(self, index: PlainIndex, pack_size: int, storer: PackStorer) -> None:
        self._builder = native.ImageBuilder(index.digests)
        self._packs = PackFiller(self._builder, index.chunk_size, pack_size, storer)

    def take(self, scan: native.Scan, window: memoryview) -> None:
        """See :class:`DiskFiller`."""
        self._packs.keep(self._builder.absorb(scan, window))

    def finish(self, disk_id: str, size_bytes: int, salt: int) -> StoredDisk:
        """See :class:`DiskFiller`."""
        self._packs.finish()
        salt &= (1 << WHOLE_SALT_BITS) - 1
        manifest = self._builder.finish(disk_id, size_bytes, salt)
        return self._stored(WholeManifest(manifest), manifest.to_bytes())


class CompressedFiller(_Filler):
    """Stores a disk in packs and a manifest of version 2."""

    _builder: native.DiskBuilder
    _packs: CompressedPackFiller

    def __init__(self, index: StoredIndex, pack_size: int, storer: PackStorer) -> None:
        self._builder = native.DiskBuilder(index.chunks)
        self._packs = CompressedPackFiller(self._builder, index.chunk_size, pack_size, storer)

    def take(self, scan: native.Scan, window: memoryview) -> None:
        """See :class:`DiskFiller`."""
        self._packs.take(scan, window)

    def finish(self, disk_id: str, size_bytes: int, salt: int) -> StoredDisk:
        """See :class:`DiskFiller`.

        The manifest is written to a temporary file: 48 bytes for each chunk with content.

        :raises DiskTooLargeError: when no host would take a manifest of its size.
        """
        self._packs.finish()
        builder = self._builder
        with (
            tempfile.TemporaryFile() as spool,
            tempfile.TemporaryFile() as file,
            native.map_errors("writing the manifest"),
        ):
            digest, length = builder.finish(
                disk_id,
                size_bytes,
                salt.to_bytes(SALT_BITS // 8, "little"),
                spool.fileno(),
                file.fileno(),
            )
            if length > SIZE_MAX:
                raise exception.DiskTooLargeError(
                    f"the disk has so much content that its manifest has {length} bytes, and hosts "
                    f"take {SIZE_MAX} at most"
                )
            content = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
        manifest = PagedManifest(
            digest, length, lambda offset, size: content[offset : offset + size]
        )
        return dataclasses.replace(
            self._stored(manifest, content),
            former_content_name=lambda: builder.former_content_name(size_bytes),
        )


class PlainFormat:
    """Manifests and packs of version 1."""

    chunks_max = layout.CHUNKS_MAX
    size_max = layout.DISK_SIZE_MAX

    def new_index(self, chunk_size: int) -> ChunkIndex:
        """See :class:`DiskFormat`."""
        return PlainIndex(chunk_size)

    def new_filler(self, index: ChunkIndex, pack_size: int, storer: PackStorer) -> DiskFiller:
        """See :class:`DiskFormat`."""
        if not isinstance(index, PlainIndex):
            raise exception.InternalError("the index is of packs of another version")
        return PlainFiller(index, pack_size, storer)


class CompressedFormat:
    """Manifests and packs of version 2."""

    chunks_max = layout.PAGED_CHUNKS_MAX
    size_max = layout.DISK_SIZE_MAX

    def new_index(self, chunk_size: int) -> ChunkIndex:
        """See :class:`DiskFormat`."""
        return StoredIndex(chunk_size)

    def new_filler(self, index: ChunkIndex, pack_size: int, storer: PackStorer) -> DiskFiller:
        """See :class:`DiskFormat`."""
        if not isinstance(index, StoredIndex):
            raise exception.InternalError("the index is of packs of another version")
        return CompressedFiller(index, pack_size, storer)


PLAIN = PlainFormat()
COMPRESSED = CompressedFormat()


def disk_size_max(repository: Repository) -> int:
    """Return the bytes of the largest disk that a repository can store."""
    form = format_of_disks(repository)
    return min(form.size_max, form.chunks_max * repository.chunk_size)


def format_of_disks(repository: Repository) -> DiskFormat:
    """Return the form in which a repository stores new images, and new content of volumes."""
    return COMPRESSED if repository.has_compressed_images else PLAIN
