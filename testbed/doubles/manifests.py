"""Manifests of disks that nobody registered."""

import tempfile

from acstor.native import (
    DigestIndex,
    DiskBuilder,
    ImageBuilder,
    Manifest,
    StoredChunkIndex,
    scan_buffer,
)

CHUNK_SIZE = 65536


def make_manifest(disk_id: str, chunks: int = 16, salt: int = 0, content: int = 0) -> Manifest:
    """Return the manifest of a disk of zeros, but for its first ``content`` chunks."""
    builder = ImageBuilder(DigestIndex(CHUNK_SIZE))
    if content:
        parts = (f"{disk_id} {number}".encode() for number in range(content))
        buffer = bytearray().join(part.ljust(CHUNK_SIZE, b".") for part in parts)
        builder.absorb(scan_buffer(buffer, CHUNK_SIZE), buffer)
        builder.seal_pack(bytes(16))
    builder.push_zeros(chunks - content)
    return builder.finish(disk_id, chunks * CHUNK_SIZE, salt)


def make_paged_manifest(disk_id: str, chunks: int = 16, salt: int = 0) -> bytes:
    """Return the bytes of a manifest of version 2, of a disk of zeros."""
    builder = DiskBuilder(StoredChunkIndex(CHUNK_SIZE))
    builder.push_zeros(chunks)
    with tempfile.TemporaryFile() as spool, tempfile.TemporaryFile() as file:
        salt_bytes = salt.to_bytes(16, "little")
        builder.finish(disk_id, chunks * CHUNK_SIZE, salt_bytes, spool.fileno(), file.fileno())
        file.seek(0)
        return file.read()
