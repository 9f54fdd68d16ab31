"""Image files: of a length that is known, every part the same whenever and however it is read."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.origin import memory
from acstor.repository.reading import image_files, qcow2_file
from acstor.repository.reading.disk_reader import DataRun, DiskReader
from acstor.repository.reading.image_files import ImageFormat, image_file, pieces
from acstor.repository.reading.qcow2_file import CLUSTER, Qcow2File
from testbed.doubles.memory_overlay import MemoryOverlay

MIB = 1 << 20


def disk_of(size: int, *places: int) -> DiskReader:
    """Return a disk with a sector of content at each of some places."""
    writes = {place: f"at {place} ".encode().ljust(512, b".") for place in places}
    return DiskReader(memory.MemoryOrigin(), size, None, MemoryOverlay(writes))


def guest_view(file: Qcow2File) -> dict[int, bytes]:
    """Return the clusters of a qcow2 file by their offset on the disk, read by its tables."""
    header = file.read(0, 104)
    assert header[:4] == b"QFI\xfb"
    l1_size, l1_offset = struct.unpack_from(">IQ", header, 36)
    found = {}
    for table, (entry,) in enumerate(struct.iter_unpack(">Q", file.read(l1_offset, l1_size * 8))):
        if entry == 0:
            continue
        assert entry >> 63
        l2 = file.read(entry & ~(1 << 63), CLUSTER)
        for index, (place,) in enumerate(struct.iter_unpack(">Q", l2)):
            if place:
                assert place >> 63
                offset = (table * 8192 + index) * CLUSTER
                found[offset] = file.read(place & ~(1 << 63), CLUSTER)
    return found


def test_qcow2_has_what_is_not_zero() -> None:
    places = (0, 3 * CLUSTER + 512, 600 * MIB, 600 * MIB + CLUSTER, 3 << 30)
    file = image_file(disk_of((3 << 30) + 1024, *places), ImageFormat.QCOW2)
    assert isinstance(file, Qcow2File)
    found = guest_view(file)
    assert sorted(found) == [place // CLUSTER * CLUSTER for place in places]
    for place in places:
        begin = place % CLUSTER
        content = found[place - begin]
        assert content[begin : begin + 512].startswith(f"at {place} ".encode())
        assert content[:begin] + content[begin + 512 :] == bytes(CLUSTER - 512)
    # Header, refcounts, L1, three L2 tables, five clusters.
    assert file.size_bytes == (1 + 2 + 1 + 3 + 5) * CLUSTER


def test_every_cluster_of_the_file_has_one_reference() -> None:
    file = Qcow2File(disk_of(5 << 30), [DataRun(MIB, 4 << 30)])
    table, blocks = struct.unpack_from(">QI", file.read(48, 12))
    (first, *others) = struct.unpack_from(">8192Q", file.read(table, CLUSTER))
    counts = b"".join(file.read(block, CLUSTER) for block in (first, *filter(None, others)))
    used = file.size_bytes // CLUSTER
    assert blocks == 1
    assert counts == (b"\0\1" * used).ljust(len(counts), b"\0")
    assert len(counts) // 2 >= used


@given(
    st.lists(st.integers(0, 2047).map(lambda sector: sector * 512), unique=True, max_size=12),
    st.sampled_from(list(ImageFormat)),
    st.data(),
)
def test_parts_of_a_file_are_of_one_file(
    places: list[int], image_format: ImageFormat, data: st.DataObject
) -> None:
    file = image_file(disk_of(MIB, *places), image_format)
    whole = file.read(0, file.size_bytes)
    assert len(whole) == file.size_bytes
    assert b"".join(pieces(file)) == whole
    start, end = sorted(data.draw(st.integers(0, len(whole))) for _ in range(2))
    assert b"".join(pieces(file, start, end)) == whole[start:end]
    again = image_file(disk_of(MIB, *places), image_format)
    assert again.read(0, again.size_bytes) == whole


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 300)), max_size=10))
def test_runs_need_not_be_of_whole_clusters(parts: list[tuple[int, int]]) -> None:
    runs, end = [], 0
    for gap, length in parts:
        runs.append(DataRun(end + gap * 512, end + (gap + length) * 512))
        end = runs[-1].end
    file = Qcow2File(disk_of(end + 512), runs)
    expected = {
        cluster * CLUSTER
        for run in runs
        for cluster in range(run.start // CLUSTER, -(-run.end // CLUSTER))
    }
    assert set(guest_view(file)) == expected


def test_raw_is_the_disk() -> None:
    disk = disk_of(MIB, 512)
    file = image_file(disk, ImageFormat.RAW)
    assert file.size_bytes == MIB
    assert file.read(0, MIB) == disk.read(0, MIB)


def test_large_file_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "PIECE_SIZE", CLUSTER)
    file = image_file(disk_of(MIB, 0), ImageFormat.RAW)
    assert [len(piece) for piece in pieces(file, 512, 3 * CLUSTER)] == [
        CLUSTER - 512,
        CLUSTER,
        CLUSTER,
    ]


def test_what_is_past_the_end_is_refused() -> None:
    for image_format in ImageFormat:
        file = image_file(disk_of(MIB, 0), image_format)
        with pytest.raises(exception.InvalidError):
            file.read(file.size_bytes, 1)
        with pytest.raises(exception.InvalidError):
            list(pieces(file, 2, 1))
        with pytest.raises(exception.InvalidError):
            list(pieces(file, 0, file.size_bytes + 1))


def test_disk_in_too_many_pieces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qcow2_file, "RUNS_MAX", 2)
    with pytest.raises(exception.UnsupportedError, match="more than 2 pieces"):
        image_file(disk_of(MIB, 0, 2 * CLUSTER, 4 * CLUSTER), ImageFormat.QCOW2)
