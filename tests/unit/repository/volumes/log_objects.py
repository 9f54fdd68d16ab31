"""Log objects as the data plane stores them, for tests."""

import io
import pathlib
import struct
import uuid
import zlib

import pytest

from acstor import native
from acstor.origin.base import Origin
from acstor.repository import layout
from acstor.repository.reading import opened_disk
from acstor.repository.volumes.log_range import LogRange

GOLDEN = pathlib.Path(__file__).parents[3] / "golden" / "volume-log-v1.bin"
HEADER_LENGTH = 128


def log_object(
    volume_id: str,
    epoch: int,
    sequence: int,
    body: bytes = b"",
    version: int = 1,
    created_ms: int = 0,
    records: int = 0,
) -> bytes:
    """Return a log object without records, or with what ``body`` has.

    :param records: of the body.
    """
    header = struct.pack(
        "<8sII16sIIQ16sQQQ32s4s",
        b"ACSTVLOG",
        version,
        0,
        uuid.UUID(volume_id).bytes,
        epoch,
        records,
        sequence,
        bytes(16),
        0,
        created_ms,
        len(body),
        native.digest(body),
        bytes(4),
    )
    return header + zlib.crc32(header).to_bytes(4, "little") + body


def pushed(origin: Origin) -> tuple[LogRange, ...]:
    """Return the log of a volume that was pushed since its fold: a sector at 4 KiB, and zeros."""
    volume_id = str(uuid.UUID(int=90))
    body = GOLDEN.read_bytes()[HEADER_LENGTH:]
    content = log_object(volume_id, 1, 1, body, records=3)
    origin.put_if_absent(layout.log_key(volume_id, 1, 1), [content])
    return (LogRange(volume_id, 1, 1, 1),)


def fill_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> list[io.FileIO]:
    """Have copies of logs find no room; return the files, which are closed where none is left."""
    opened: list[io.FileIO] = []

    def full(**_: object) -> io.FileIO:
        opened.append(io.FileIO("/dev/full", "r+"))
        return opened[-1]

    monkeypatch.setattr(f"{opened_disk.__name__}.tempfile.TemporaryFile", full)
    return opened
