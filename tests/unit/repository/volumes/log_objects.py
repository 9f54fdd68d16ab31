"""Log objects as the data plane stores them, for tests."""

import struct
import uuid
import zlib

from acstor import native


def log_object(
    volume_id: str,
    epoch: int,
    sequence: int,
    body: bytes = b"",
    version: int = 1,
    created_ms: int = 0,
) -> bytes:
    """Return a log object without records, or with what ``body`` has."""
    header = struct.pack(
        "<8sII16sIIQ16sQQQ32s4s",
        b"ACSTVLOG",
        version,
        0,
        uuid.UUID(volume_id).bytes,
        epoch,
        0,
        sequence,
        bytes(16),
        0,
        created_ms,
        len(body),
        native.digest(body),
        bytes(4),
    )
    return header + zlib.crc32(header).to_bytes(4, "little") + body
