"""The images of a storm: as many different ones as are asked for, read by one recorded boot.

Only one guest's boot is recorded. The others' images have the same layout and other content: of
every chunk that the trace reads, all bytes are exchanged by a table of the image's own, so that no
chunk of one image is one of another, and each is as compressible as the original. Chunks of zeros
stay such. The traces hold digests of what each read then returns: every byte is checked.

All images lie one behind the other on *one* disk (a hole wherever no boot reads), and the trace of
image k is moved by k disks: so every approach has one door per host, and a local cache is shared
by all guests of its host.
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Iterator, Sequence

from bench.acstor.mix_programs import MixProgram
from testbed import boot_trace, replay_storm
from testbed.boot_trace import BootTrace, TraceRead
from testbed.exception import TestbedError
from testbed.guest import build
from testbed.guest.build import GuestImage
from testbed.guest.recipe import GuestRecipe

CHUNK_SIZE = 64 << 10


@dataclasses.dataclass(frozen=True)
class Images:
    """The disk and what is read of it."""

    image: GuestImage
    """The disk, as approaches take it; it cannot be booted."""
    traces: Sequence[pathlib.Path]
    """Per image, the reads of its guests; of a mix several per image."""
    first_trace: pathlib.Path
    """The reads of the first image's guests on a disk of its own, for the simulator."""
    boot_bytes: int
    """Of one guest's reads."""
    chunk_bytes: int
    """Of the distinct chunks, not of zeros, that one guest reads."""
    served_bytes: Sequence[int] = ()
    """Per trace, what its guests read and write; empty: what they read."""


def make(
    directory: pathlib.Path,
    trace: BootTrace,
    count: int,
    guest_disk: pathlib.Path | None,
) -> Images:
    """Write the disk and the traces.

    :param directory: where; named after nothing that changes, as the image's id derives from it.
    :param trace: what each guest reads.
    :param guest_disk: of the guest that was recorded; None: random bytes stand in for its own.
    """
    chunks = dict(_contents(trace, guest_disk))
    disk = directory / "disk.raw"
    traces = []
    with disk.open("wb") as file:
        file.truncate(count * trace.disk_size_bytes)
        for number in range(count):
            base = number * trace.disk_size_bytes
            table = exchange(number)
            own = {index: content.translate(table) for index, content in chunks.items()}
            for index, content in own.items():
                file.seek(base + index * CHUNK_SIZE)
                file.write(content)
            path = directory / f"image-{number}.jsonl"
            boot_trace.save(_moved(trace, own, base, count), path)
            traces.append(path)
    first_trace = directory / "first.jsonl"
    boot_trace.save(_moved(trace, chunks, 0, 1), first_trace)
    return Images(
        GuestImage(directory, count * trace.disk_size_bytes, "", "", ""),
        traces,
        first_trace,
        trace.bytes_read,
        len(chunks) * CHUNK_SIZE,
    )


def make_mixes(directory: pathlib.Path, programs: Sequence[Sequence[MixProgram]]) -> Images:
    """Write a disk of random bytes wherever the programs of a mix read, and their traces.

    :param directory: as of :func:`make`.
    :param programs: by image; all of one disk size.
    """
    count, size = len(programs), programs[0][0].trace.disk_size_bytes
    disk, traces, served = directory / "disk.raw", [], []
    with disk.open("wb") as file:
        file.truncate(count * size)
        for image, own in enumerate(programs):
            reads = [read for program in own for read in program.trace.reads]
            table = exchange(image)
            chunks = {
                index: content.translate(table)
                for index, content in _contents(BootTrace(size, "", reads), None)
            }
            for index, content in chunks.items():
                file.seek(image * size + index * CHUNK_SIZE)
                file.write(content)
            for number, program in enumerate(own):
                path = directory / f"image-{image}-{number}.jsonl"
                boot_trace.save(_moved(program.trace, chunks, image * size, count), path)
                traces.append(path)
                served.append(program.served_bytes)
    first = programs[0][0].trace
    return Images(
        GuestImage(directory, count * size, "", "", ""),
        traces,
        traces[0],
        first.bytes_read,
        len(first.chunks(CHUNK_SIZE)) * CHUNK_SIZE,
        served,
    )


def cut(trace: BootTrace, first: int, count: int) -> BootTrace:
    """Return some reads of a trace; the first comes without a thought.

    :raises TestbedError: when the trace has no read from ``first`` on.
    """
    reads = list(trace.reads[first : first + count])
    if not reads:
        raise TestbedError(f"the trace has {len(trace.reads)} reads", hint="lower --reads")
    reads[0] = dataclasses.replace(reads[0], think_us=0)
    return dataclasses.replace(trace, reads=reads, source=f"{trace.source}, {len(reads)} reads")


def recorded_disk(trace: BootTrace, root: pathlib.Path) -> pathlib.Path:
    """Return the disk of the guest that was recorded, built where it is missing.

    :raises TraceFormatError: when the trace is of another guest.
    """
    image = build.build_guest(GuestRecipe(), root / "guests")
    replay_storm.check_belongs(trace, image)
    return image.disk


def exchange(number: int) -> bytes:
    """Return the table by which the bytes of image ``number`` differ from the first's."""
    return bytes((value + number) % 256 for value in range(256))


def _contents(trace: BootTrace, disk: pathlib.Path | None) -> Iterator[tuple[int, bytes]]:
    """Yield (index, content) of the chunks that are read and not zero."""
    zeros = bytes(CHUNK_SIZE)
    if disk is None:
        for index in sorted(_written(trace)):
            yield index, hashlib.shake_128(index.to_bytes(8, "little")).digest(CHUNK_SIZE)
        return
    with disk.open("rb") as file:
        for index in sorted(trace.chunks(CHUNK_SIZE)):
            file.seek(index * CHUNK_SIZE)
            content = file.read(CHUNK_SIZE).ljust(CHUNK_SIZE, b"\0")
            if content != zeros:
                yield index, content


def _written(trace: BootTrace) -> set[int]:
    """Return the chunks of which a read returned something else than zeros."""
    written: set[int] = set()
    zeros: dict[int, str] = {}
    for read in trace.reads:
        digest = zeros.setdefault(read.length, boot_trace.content_digest(bytes(read.length)))
        if read.digest != digest:
            last = (read.offset + read.length - 1) // CHUNK_SIZE
            written.update(range(read.offset // CHUNK_SIZE, last + 1))
    return written


def _moved(trace: BootTrace, chunks: dict[int, bytes], base: int, count: int) -> BootTrace:
    reads = [
        TraceRead(
            base + read.offset,
            read.length,
            read.think_us,
            boot_trace.content_digest(_bytes_at(chunks, read.offset, read.length)),
        )
        for read in trace.reads
    ]
    return BootTrace(count * trace.disk_size_bytes, trace.source, reads)


def _bytes_at(chunks: dict[int, bytes], offset: int, length: int) -> bytes:
    zeros = bytes(CHUNK_SIZE)
    first, last = offset // CHUNK_SIZE, (offset + length - 1) // CHUNK_SIZE
    content = b"".join(chunks.get(index, zeros) for index in range(first, last + 1))
    begin = offset - first * CHUNK_SIZE
    return content[begin : begin + length]
