"""Bitmaps and other sets of chunks in JSON: zlib, then base64."""

import base64
import binascii
import zlib

from acstor import exception


def bitmap_len(chunk_count: int) -> int:
    """Return the length of the bitmap of that many chunks, bytes."""
    return (chunk_count + 7) // 8


def encode(content: bytes) -> str:
    """Return a set of chunks as text: some tens of bytes where it is sparse."""
    return base64.b64encode(zlib.compress(content)).decode("ascii")


def inflate(text: str, longest: int) -> bytes:
    """Return the bytes that a text holds.

    :raises CorruptError: when it holds none, or more than ``longest``; no more is ever
        decompressed.
    """
    try:
        compressed = base64.b64decode(text, validate=True)
        inflater = zlib.decompressobj()
        content = inflater.decompress(compressed, longest + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise exception.CorruptError(f"no set of chunks: {error}") from error
    if len(content) > longest or not inflater.eof or inflater.unused_data:
        raise exception.CorruptError(f"no set of chunks: more or less than {longest} bytes")
    return content
