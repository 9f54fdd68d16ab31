"""Checking log objects: as much of their layout as tells a whole one from a damaged one.

The layout is owned by the data plane (``crates/overlay/src/push/origin_log.rs``) and described in
``doc/source/reference/formats/volume-log.rst``; the golden file holds the two together.
"""

import struct
import uuid
import zlib

from acstor import exception, native
from acstor.repository import layout

LOG_VERSION = 1
HEADER_SIZE = 128
LOG_OBJECT_SIZE_MAX = 16 << 20
"""No log object is longer, bytes; crates/overlay has the exact limit."""

_MAGIC = b"ACSTVLOG"
_HEADER = struct.Struct("<8sII16sIIQ16sQQQ32s4sI")


def check_log_object(key: str, content: bytes) -> None:
    """Compare a log object with its checksums and with the key that it lies under.

    The payload of each record has a checksum of its own, which the digest of the body implies.

    :raises CorruptError: when it is damaged, or another one than the key says.
    :raises UnsupportedError: when a newer release wrote it.
    """
    named = layout.parse_log_key(key)
    if named is None or len(content) < HEADER_SIZE or content[:8] != _MAGIC:
        raise exception.CorruptError(f"{key} is no log object")
    fields = _HEADER.unpack(content[:HEADER_SIZE])
    if zlib.crc32(content[: HEADER_SIZE - 4]) != fields[-1]:
        raise exception.CorruptError(f"the header of log object {key} is damaged")
    version, volume, epoch, sequence = fields[1], fields[3], fields[4], fields[6]
    if version != LOG_VERSION:
        raise exception.UnsupportedError(
            f"log object {key} has version {version}, this release reads {LOG_VERSION}"
        )
    if (str(uuid.UUID(bytes=volume)), epoch, sequence) != named:
        raise exception.CorruptError(
            f"log object {key} is number {sequence} of epoch {epoch} of {uuid.UUID(bytes=volume)}"
        )
    body_size, body_digest = fields[10], fields[11]
    body = content[HEADER_SIZE:]
    if len(body) != body_size or bytes(native.digest(body)) != body_digest:
        raise exception.CorruptError(f"the content of log object {key} is damaged")


def log_created_at(content: bytes) -> float | None:
    """Return when a log object was made, seconds since 1970; None: it does not say."""
    if len(content) < HEADER_SIZE or content[:8] != _MAGIC:
        return None
    created_ms: int = _HEADER.unpack(content[:HEADER_SIZE])[9]
    return created_ms / 1000 if created_ms else None
