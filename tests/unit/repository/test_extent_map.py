"""Maps of images: parsed as they come, bounded, whatever an image makes QEMU say."""

import itertools
import json
import pathlib
import shutil
import struct
import subprocess
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.repository.source import base, extent_map, qemu

RANGES = st.lists(st.tuples(st.integers(1, 1 << 40), st.booleans()), max_size=30)


def qemu_text(lengths: list[tuple[int, bool]]) -> bytes:
    """Return what qemu-img map says of ranges, in its layout."""
    position, items = 0, []
    for length, is_zero in lengths:
        items.append({"start": position, "length": length, "depth": 0, "zero": is_zero})
        position += length
    return b"[" + b",\n".join(json.dumps(item).encode() for item in items) + b"]\n"


def read(text: bytes, size: int) -> list[base.Extent]:
    reader = extent_map.MapReader()
    for start in range(0, len(text), size):
        reader.take(text[start : start + size])
    return list(reader.finish())


@given(RANGES, st.integers(1, 200))
def test_map_is_the_same_wherever_its_text_is_cut(
    lengths: list[tuple[int, bool]], size: int
) -> None:
    found = read(qemu_text(lengths), size)
    position = 0
    for extent in found:
        assert extent.start == position
        position = extent.end
    assert position == sum(length for length, _ in lengths)
    assert all(a.is_zero != b.is_zero for a, b in itertools.pairwise(found))
    borders = {extent.end for extent in found}
    position = 0
    for (length, is_zero), following in zip(lengths, [*lengths[1:], None], strict=False):
        position += length
        assert (position in borders) == (following is None or following[1] != is_zero)
    assert not lengths or found[0].is_zero == lengths[0][1]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[",
        b"]",
        b"{}",
        b'{"start": 0, "length": 1, "zero": true}',
        b'[{"start": 0, "length": 1, "zero": true}',
        b'[{"start": 0, "length": 1, "zero": true}]]',
        b'[{"start": 0, "length": 1, "zero": true} {"start": 1, "length": 1, "zero": true}]',
        b'[{"start": 5, "length": 1, "zero": true}]',
        b'[{"start": 0, "length": 0, "zero": true}]',
        b'[{"start": 0, "length": -1, "zero": true}]',
        b'[{"start": 0, "length": 1e400, "zero": true}]',
        b'[{"start": 0, "length": 1}]',
        b"[1]",
        b"[" * 100_000,
        b'[{"start": "' + b"9" * 100_000,
    ],
)
def test_what_is_no_map_is_refused(text: bytes) -> None:
    with pytest.raises(exception.UnsupportedError, match="unknown map"):
        read(text, 1 << 16)


def test_number_of_ranges_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extent_map, "EXTENTS_MAX", 10)
    assert len(read(qemu_text([(1, number % 2 == 0) for number in range(10)]), 64)) == 10
    with pytest.raises(exception.DiskTooLargeError, match="more than 10 pieces"):
        read(qemu_text([(1, True)] * 11), 64)


def alternating_image(path: pathlib.Path, clusters: int) -> None:
    """Write a qcow2 file in which every other cluster is data, all the same one on the disk.

    Source: docs/interop/qcow2.rst of QEMU: header, refcount table and block, L1 and L2 tables.
    """
    size, entries = 4096, 512
    tables = -(-clusters // entries)
    first_table = 1 + -(-tables * 8 // size)
    data = (first_table + tables) * size
    head = struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        *(b"QFI\xfb", 3, 0, 0, 12, clusters * size, 0),
        *(tables, size, data + size, 1, 0, 0),  # no refcounts: it is only read
        *(0, 0, 0, 4, 104),
    )
    table = b"".join(struct.pack(">Q", data if n % 2 else 0) for n in range(entries))
    with path.open("wb") as file:
        file.write(head)
        file.seek(size)
        for number in range(tables):
            file.write(struct.pack(">Q", (first_table + number) * size))
        file.seek(first_table * size)
        for _ in range(tables):
            file.write(table)
        file.seek(data)
        file.write(b"x" * size + bytes(size))


@pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")
def test_image_that_alternates_takes_little_memory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QEMU says 30 MB of it, which were more than 100 MB of objects."""
    clusters = 200 * 1024
    alternating_image(tmp_path / "image", clusters)
    file = base.SourceFile(str(tmp_path / "image"))
    tracemalloc.start()
    try:
        found = qemu.extents(file, "qcow2", 120.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in found) == clusters
    assert peak < 8 << 20
    monkeypatch.setattr(extent_map, "EXTENTS_MAX", clusters - 1)
    with pytest.raises(exception.DiskTooLargeError, match="pieces of data and zeros"):
        qemu.extents(file, "qcow2", 120.0)
    file.close()


@pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")
def test_map_that_takes_too_long_leaves_no_process(tmp_path: pathlib.Path) -> None:
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", str(tmp_path / "image"), "1M"],
        check=True, timeout=60,
    )  # fmt: skip
    file = base.SourceFile(str(tmp_path / "image"))
    with pytest.raises(exception.DeadlineError, match="qemu-img map took longer than 0 s"):
        qemu.extents(file, "qcow2", 0.0)
    file.close()
