"""Manifests of disks that nobody registered."""

import tempfile

from acstor.native import (
    DigestIndex,
    DiskBuilder,
    ImageBuilder,
    Manifest,
    PackWriter,
    StoredChunkIndex,
    compress_chunks,
    scan_buffer,
)
from acstor.origin.base import ObjectStore, Origin
from acstor.repository import layout
from acstor.repository.images.image_index import ImageIndexWriter
from acstor.repository.images.image_record import ImageRecord
from acstor.repository.repository import Repository

CHUNK_SIZE = 65536
_DENSE_CHUNKS = 1024


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


def store_dense_disk(
    objects: ObjectStore, disk_id: str, times: int, salt: int = 0
) -> tuple[str, int]:
    """Store the manifest of version 2 of a disk that has content everywhere, and its one pack.

    :param times: how often the same 1,024 chunks, each of them another, lie one after the other.
    :returns: name and length of the manifest, 49 bytes for each chunk of the disk.
    """
    marks = (b"chunk %d of a dense disk, " % number for number in range(_DENSE_CHUNKS))
    buffer = bytearray().join(mark.ljust(CHUNK_SIZE, b"-") for mark in marks)
    scan = scan_buffer(buffer, CHUNK_SIZE)
    builder = DiskBuilder(StoredChunkIndex(CHUNK_SIZE))
    new = builder.absorb(scan)
    pack_buffer = bytearray(1 << 20)
    writer = PackWriter(pack_buffer, CHUNK_SIZE, "image", bytes(16))
    assert writer.append(compress_chunks(scan, buffer, new)) == len(new)
    pack, size, table = writer.seal()
    builder.close_pack(pack, table)
    objects.put_if_absent(layout.pack_key(pack.hex()), [memoryview(pack_buffer)[:size]])
    for _ in range(times - 1):
        builder.absorb(scan)
    with tempfile.TemporaryFile() as spool, tempfile.TemporaryFile() as file:
        disk_size = times * _DENSE_CHUNKS * CHUNK_SIZE
        files = spool.fileno(), file.fileno()
        name, length = builder.finish(disk_id, disk_size, salt.to_bytes(16, "little"), *files)
        file.seek(0)
        objects.put_if_absent(layout.manifest_key(name), [file.read()])
    return name, length


def register_dense_disk(origin: Origin, disk_id: str, times: int, salt: int = 0) -> tuple[str, int]:
    """Store such a disk in a repository, and write its record as a registration does at its end."""
    name, length = store_dense_disk(origin, disk_id, times, salt)
    chunks = times * _DENSE_CHUNKS
    size = chunks * CHUNK_SIZE
    record = ImageRecord(
        name, "0" * 64, "dense", size, CHUNK_SIZE, chunks, _DENSE_CHUNKS, 0, "raw", "now"
    )
    is_kept = Repository.open(origin).has_image_index
    with ImageIndexWriter(origin, is_kept=is_kept).changing(disk_id):
        ref = origin.get_ref(layout.image_ref(disk_id))
        origin.swap_ref(layout.image_ref(disk_id), ref.token if ref else None, record.encode())
    return name, length


def dense_chunk(index: int) -> bytes:
    """Return the content of a chunk of such a disk."""
    return (b"chunk %d of a dense disk, " % (index % _DENSE_CHUNKS)).ljust(CHUNK_SIZE, b"-")
