"""Reads of guests from their disk, as QEMU logs them above the overlay.

This is the measure for what leaves the origin: caches, page caches and read-ahead are all below it.
"""

import hashlib
import pathlib
import re
from collections.abc import Iterable, Iterator

CHUNK_SIZE = 64 << 10
_READ = re.compile(r"blk_co_preadv .*offset (\d+) bytes (\d+)")
_DIGEST_BYTES = 16


def reads(log: pathlib.Path) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of each read, bytes."""
    if not log.exists():
        return
    with log.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            if (match := _READ.search(line)) is not None and int(match[2]):
                yield int(match[1]), int(match[2])


def union_bytes(logs: Iterable[pathlib.Path], disk: pathlib.Path) -> int:
    """Return the bytes of the distinct chunks that the reads of several guests touched.

    Chunks of zeros count nothing and chunks of the same content count once: neither need leave an
    origin. Reads of what a guest wrote before are counted as if they were of the disk below the
    overlay; a boot has few of them.

    :param logs: of :attr:`GuestMachine.read_log`.
    :param disk: the raw disk below all overlays.
    """
    touched: set[int] = set()
    for log in logs:
        for offset, length in reads(log):
            touched.update(range(offset // CHUNK_SIZE, (offset + length - 1) // CHUNK_SIZE + 1))
    contents: set[bytes] = set()
    zeros = bytes(CHUNK_SIZE)
    with disk.open("rb") as file:
        for index in sorted(touched):
            file.seek(index * CHUNK_SIZE)
            content = file.read(CHUNK_SIZE).ljust(CHUNK_SIZE, b"\0")
            if content != zeros:
                contents.add(hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest())
    return CHUNK_SIZE * len(contents)
