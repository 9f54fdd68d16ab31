"""Digests of chunks of packs, of either version of packs, in memory."""

from collections.abc import Sequence
from typing import Protocol

from acstor import native
from acstor.origin.base import Buffer

PACK_CLASS = "image"
"""Class of the packs of version 2 that images share."""


class ChunkIndex(Protocol):
    """Chunks of packs of one version, by their digests; safe to use from several threads."""

    @property
    def version(self) -> int:
        """Version of the packs."""

    def takes(self, header: bytes) -> bool:
        """Return whether a pack of the version is one of this index: of its chunk size and class.

        :param header: its first 64 bytes.
        :raises DataPlaneError: when it is damaged.
        """

    def add_pack(
        self, pack: bytes, header: bytes, table: Buffer, unsound: Sequence[int] = ()
    ) -> None:
        """Add a pack that is taken; where a digest is known already the first pack counts.

        :param header: its first 64 bytes.
        :param table: what follows its chunks.
        :param unsound: positions of chunks whose content is not what their digest says.
        :raises DataPlaneError: kind ``corrupt`` when header and table are not the pack's,
            ``exhausted`` at 2^32 chunks.
        """

    def forget_pack(self, pack: bytes) -> bool:
        """Let the pack's chunks no longer be found; return whether it was there."""

    def reserve(self, chunk_count: int) -> None:
        """Make room for that many more chunks at once."""


class PlainIndex:
    """Chunks of packs of version 1."""

    version = 1

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size
        self.digests = native.DigestIndex(chunk_size)

    def takes(self, header: bytes) -> bool:
        """See :class:`ChunkIndex`."""
        size, _count, _salt = native.parse_pack_header(header)
        return size == self.chunk_size

    def add_pack(
        self, pack: bytes, header: bytes, table: Buffer, unsound: Sequence[int] = ()
    ) -> None:
        """See :class:`ChunkIndex`."""
        _size, _count, salt = native.parse_pack_header(header)
        self.digests.add_pack(pack, salt, table, unsound)

    def forget_pack(self, pack: bytes) -> bool:
        """See :class:`ChunkIndex`."""
        return self.digests.forget_pack(pack)

    def reserve(self, chunk_count: int) -> None:
        """See :class:`ChunkIndex`."""
        self.digests.reserve(chunk_count)


class StoredIndex:
    """Chunks of packs of version 2, with their places.

    Chunks of packs of version 1 are not among them: there is no CRC of their stored bytes, which
    entries of manifests of version 2 have. What an image shares with such packs is stored again.

    :param pack_class: of the packs; None: any.
    """

    version = 2

    def __init__(self, chunk_size: int, pack_class: str | None = PACK_CLASS) -> None:
        self.chunk_size = chunk_size
        self._pack_class = pack_class
        self.chunks = native.StoredChunkIndex(chunk_size, pack_class)

    def takes(self, header: bytes) -> bool:
        """See :class:`ChunkIndex`."""
        parsed = native.PackHeader.parse(header)
        is_of_class = self._pack_class in (None, parsed.pack_class)
        return parsed.chunk_size == self.chunk_size and is_of_class

    def add_pack(
        self, pack: bytes, header: bytes, table: Buffer, unsound: Sequence[int] = ()
    ) -> None:
        """See :class:`ChunkIndex`."""
        parsed = native.PackHeader.parse(header)
        self.chunks.add_pack(pack, parsed, parsed.parse_table(pack, table), unsound)

    def forget_pack(self, pack: bytes) -> bool:
        """See :class:`ChunkIndex`."""
        return self.chunks.forget_pack(pack)

    def reserve(self, chunk_count: int) -> None:
        """See :class:`ChunkIndex`."""
        self.chunks.reserve(chunk_count)


class ChunkIndexes:
    """One index for each version of packs, those of images and of volumes."""

    def __init__(self, chunk_size: int) -> None:
        self.plain = PlainIndex(chunk_size)
        self.stored = StoredIndex(chunk_size, None)

    def of_version(self, version: int) -> ChunkIndex:
        """Return the index of packs of a version."""
        return self.plain if version == self.plain.version else self.stored
