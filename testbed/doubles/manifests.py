"""Manifests of disks that nobody registered."""

from acstor.native import DigestIndex, ImageBuilder, Manifest, scan_buffer

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
