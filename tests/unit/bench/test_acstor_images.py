"""Images of the evaluation: others by content, the same by layout, every read known."""

import pathlib

import pytest

from bench.acstor import images
from bench.acstor.images import CHUNK_SIZE
from bench.acstor.settings import FIRST_READ, TRACE
from testbed import boot_trace
from testbed.boot_trace import BootTrace, TraceRead
from testbed.exception import TestbedError

DISK_CHUNKS = 8


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    """A disk whose chunk 2 is zero."""
    path = tmp_path / "guest.raw"
    chunks = [bytes([number + 1]) * CHUNK_SIZE for number in range(DISK_CHUNKS)]
    chunks[2] = bytes(CHUNK_SIZE)
    path.write_bytes(b"".join(chunks))
    return path


def trace_of(disk: pathlib.Path, *ranges: tuple[int, int]) -> BootTrace:
    content = disk.read_bytes()
    reads = [
        TraceRead(offset, length, 7, boot_trace.content_digest(content[offset : offset + length]))
        for offset, length in ranges
    ]
    return BootTrace(len(content), "test", reads)


def check_every_read(made: images.Images) -> None:
    with made.image.disk.open("rb") as file:
        for path in made.traces:
            trace = boot_trace.load(path)
            assert trace.disk_size_bytes == made.image.disk_size_bytes
            for read in trace.reads:
                file.seek(read.offset)
                assert boot_trace.content_digest(file.read(read.length)) == read.digest


def test_images_differ_in_every_chunk_that_is_read(
    tmp_path: pathlib.Path, disk: pathlib.Path
) -> None:
    trace = trace_of(disk, (0, 4096), (CHUNK_SIZE - 512, 1024), (2 * CHUNK_SIZE, 4096))
    made = images.make(tmp_path, trace, 3, disk)
    check_every_read(made)
    assert made.chunk_bytes == 2 * CHUNK_SIZE
    content = made.image.disk.read_bytes()
    size = trace.disk_size_bytes
    firsts = [content[base : base + CHUNK_SIZE] for base in range(0, 3 * size, size)]
    assert firsts[0] == disk.read_bytes()[:CHUNK_SIZE]
    assert len(set(firsts)) == 3
    for base in range(0, 3 * size, size):
        assert not any(content[base + 2 * CHUNK_SIZE : base + size]), "zeros, and what none reads"


def test_generated_content_leaves_zeros_zero(tmp_path: pathlib.Path, disk: pathlib.Path) -> None:
    trace = trace_of(disk, (0, 4096), (2 * CHUNK_SIZE, 4096))
    made = images.make(tmp_path, trace, 2, None)
    check_every_read(made)
    zeros = boot_trace.content_digest(bytes(4096))
    for path in made.traces:
        first, second = boot_trace.load(path).reads
        assert (first.digest != zeros, second.digest) == (True, zeros)


def test_simulators_trace_is_the_first_image_on_a_disk_of_its_own(
    tmp_path: pathlib.Path, disk: pathlib.Path
) -> None:
    trace = trace_of(disk, (0, 4096), (3 * CHUNK_SIZE, 65536))
    made = images.make(tmp_path, trace, 2, disk)
    assert boot_trace.load(made.first_trace) == trace


def test_cut_begins_without_a_thought() -> None:
    recorded = boot_trace.load(TRACE)
    trace = images.cut(recorded, FIRST_READ, 10)
    assert [read.offset for read in trace.reads] == [
        read.offset for read in recorded.reads[FIRST_READ : FIRST_READ + 10]
    ]
    assert trace.reads[0].think_us == 0
    assert trace.reads[1] == recorded.reads[FIRST_READ + 1]
    with pytest.raises(TestbedError, match="1067 reads"):
        images.cut(recorded, 2000, 10)
