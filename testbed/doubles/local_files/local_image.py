"""An image of known content with its manifest, and a reader of it."""

from dataclasses import dataclass

from acstor import exception
from acstor.agent.reconcilers.local_files.content import ImageContent
from acstor.native import DigestIndex, ImageBuilder, scan_buffer
from acstor.repository.disk_manifest import WholeManifest

CHUNK_SIZE = 65536
TAIL_BYTES = 512
"""Bytes of the last chunk."""


@dataclass(frozen=True)
class LocalImage:
    """One image."""

    id: str
    disk: bytes
    content: ImageContent


def make_local_image(
    image_id: str, chunks: str = "data zero data data data", salt: int = 0
) -> LocalImage:
    """Return an image of chunks with and without content; the last one is cut.

    :param chunks: ``data`` or ``zero`` of each.
    :param salt: differs in manifests of the same content.
    """
    builder = ImageBuilder(DigestIndex(CHUNK_SIZE))
    disk = bytearray()
    kinds = chunks.split()
    for number, kind in enumerate(kinds):
        part = bytearray()
        if kind == "data":
            part += f"{image_id} {number} ".encode().ljust(TAIL_BYTES, b".")
            if number < len(kinds) - 1:
                part += part * (CHUNK_SIZE // TAIL_BYTES - 1)
        chunk = part.ljust(CHUNK_SIZE, b"\0")
        disk += chunk
        if kind == "data":
            builder.absorb(scan_buffer(chunk, CHUNK_SIZE), chunk)
        else:
            builder.push_zeros(1)
    if "data" in kinds:
        builder.seal_pack(bytes(16))
    size = len(disk) - CHUNK_SIZE + TAIL_BYTES
    manifest = WholeManifest(builder.finish(image_id, size, salt))
    return LocalImage(image_id, bytes(disk[:size]), ImageContent(manifest))


class MemoryReader:
    """Reads an image from memory; an ``ImageReader``."""

    group: int | None = None

    def __init__(self, disk: bytes) -> None:
        self.disk = bytearray(disk)
        self.size_bytes = len(disk)
        self.is_closed = False
        self.fails_at: int | None = None

    def read(self, offset: int, size: int) -> memoryview:
        """Return a part of the image."""
        if self.fails_at is not None and offset + size > self.fails_at:
            raise exception.UnavailableError("the data plane does not answer")
        return memoryview(self.disk)[offset : offset + size]

    def close(self) -> None:
        """Read no more."""
        self.is_closed = True
