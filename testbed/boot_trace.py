"""Boot traces: what a guest read of its disk, in order, with the time it thought in between.

The format has a page, ``reference/formats/boot-trace``. A trace holds a digest of what each read
returned, so that a replay checks every byte without the image.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from testbed.exception import TraceFormatError

FORMAT = "acstor-boot-trace"
FORMAT_VERSION = 1
DIGEST_ALGORITHM = "blake2b-128"
_DIGEST_BYTES = 16

READ_LENGTH_MAX = 64 << 20
READ_COUNT_MAX = 10_000_000
DISK_SIZE_MAX = 1 << 50
THINK_US_MAX = 3_600_000_000
SECTOR = 512


@dataclasses.dataclass(frozen=True, slots=True)
class TraceRead:
    """One read of the disk."""

    offset: int  #: bytes from the start of the disk
    length: int  #: bytes
    think_us: int  #: microseconds from the end of all reads before to the start of this one
    digest: str  #: of the bytes read, hex


@dataclasses.dataclass(frozen=True)
class BootTrace:
    """The reads of one boot."""

    disk_size_bytes: int
    source: str  #: how it was recorded, for people
    reads: Sequence[TraceRead]

    @property
    def bytes_read(self) -> int:
        """Return the sum of the lengths of all reads."""
        return sum(read.length for read in self.reads)

    def chunks(self, chunk_size: int) -> set[int]:
        """Return the indexes of the chunks that the reads touch.

        :param chunk_size: bytes.
        """
        touched: set[int] = set()
        for read in self.reads:
            first = read.offset // chunk_size
            last = (read.offset + read.length - 1) // chunk_size
            touched.update(range(first, last + 1))
        return touched


def content_digest(content: bytes | bytearray | memoryview) -> str:
    """Return the digest that a trace holds of a read."""
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def save(trace: BootTrace, path: pathlib.Path) -> None:
    """Write a trace; the file appears with all its lines or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in dump(trace))
    temporary.rename(path)


def dump(trace: BootTrace) -> Iterable[str]:
    """Yield the lines of a trace."""
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "digest": DIGEST_ALGORITHM,
        "disk_size_bytes": trace.disk_size_bytes,
        "read_count": len(trace.reads),
        "source": trace.source,
    }
    yield json.dumps(header)
    for read in trace.reads:
        yield json.dumps([read.offset, read.length, read.think_us, read.digest])


def load(path: pathlib.Path) -> BootTrace:
    """Read a trace.

    :raises TraceFormatError: when the file is no trace, is cut short, is of a newer version, or
        holds a value out of range; names the line.
    """
    try:
        with path.open(encoding="ascii") as file:
            return parse(file, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceFormatError(f"{path} cannot be read as a boot trace: {error}") from error


def parse(lines: Iterable[str], name: str) -> BootTrace:
    """Return the trace that the lines hold.

    :param name: what error messages call it.
    :raises TraceFormatError: as :func:`load`.
    """
    iterator = iter(lines)
    header = _header(next(iterator, ""), name)
    disk_size = _number(header.get("disk_size_bytes"), DISK_SIZE_MAX, f"{name}:1: disk_size_bytes")
    count = _number(header.get("read_count"), READ_COUNT_MAX, f"{name}:1: read_count")
    reads: list[TraceRead] = []
    for number, line in enumerate(iterator, 2):
        if len(reads) == count:
            raise TraceFormatError(f"{name}:{number}: more than the {count} reads of the header")
        reads.append(_read(line, disk_size, f"{name}:{number}"))
    if len(reads) != count:
        raise TraceFormatError(f"{name} is cut short: {len(reads)} of {count} reads")
    return BootTrace(disk_size, str(header.get("source", "")), reads)


def _header(line: str, name: str) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceFormatError(f"{name}:1: no boot trace: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise TraceFormatError(f"{name}:1: no boot trace")
    if header.get("version") != FORMAT_VERSION:
        raise TraceFormatError(
            f"{name}: version {header.get('version')}; this release reads {FORMAT_VERSION}"
        )
    if header.get("digest") != DIGEST_ALGORITHM:
        raise TraceFormatError(f"{name}:1: digest {header.get('digest')!r} is not known")
    return header


def _read(line: str, disk_size: int, place: str) -> TraceRead:
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceFormatError(f"{place}: {error}") from error
    if not isinstance(values, list) or len(values) != 4:
        raise TraceFormatError(f"{place}: not [offset, length, think time, digest]")
    offset = _number(values[0], disk_size, f"{place}: offset")
    length = _number(values[1], READ_LENGTH_MAX, f"{place}: length")
    think_us = _number(values[2], THINK_US_MAX, f"{place}: think time")
    digest = values[3]
    if length == 0 or length % SECTOR or offset % SECTOR or offset + length > disk_size:
        raise TraceFormatError(f"{place}: {length} bytes at {offset} are no read of this disk")
    if not isinstance(digest, str) or len(digest) != 2 * _DIGEST_BYTES:
        raise TraceFormatError(f"{place}: digest {digest!r}")
    return TraceRead(offset, length, think_us, digest)


def _number(value: object, maximum: int, what: str) -> int:
    if type(value) is not int or not 0 <= value <= maximum:
        raise TraceFormatError(f"{what}: {value!r} is not in 0..{maximum}")
    return value
