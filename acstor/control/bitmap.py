"""Bitmaps of chunks in JSON: zlib, then base64."""

import base64
import binascii
import zlib

from acstor import exception


def bitmap_len(chunk_count: int) -> int:
    """Return the length of the bitmap of that many chunks, bytes."""
    return (chunk_count + 7) // 8


def encode(bitmap: bytes) -> str:
    """Return a bitmap as text: some tens of bytes where it is sparse."""
    return base64.b64encode(zlib.compress(bitmap)).decode("ascii")


def decode(text: str, chunk_count: int) -> bytes:
    """Return the bitmap of ``chunk_count`` chunks that a text holds.

    :raises CorruptError: when it is no bitmap of that many chunks; no more than its length is
        ever decompressed.
    """
    length = bitmap_len(chunk_count)
    try:
        compressed = base64.b64decode(text, validate=True)
        inflater = zlib.decompressobj()
        bitmap = inflater.decompress(compressed, length + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise exception.CorruptError(f"no bitmap of chunks: {error}") from error
    if len(bitmap) != length or not inflater.eof or inflater.unused_data:
        raise exception.CorruptError(f"no bitmap of {chunk_count} chunks")
    if chunk_count % 8 and bitmap[-1] >> chunk_count % 8:
        raise exception.CorruptError(f"the bitmap has chunks past the last of {chunk_count}")
    return bitmap
