"""Image files: extents on the chunk grid, raw and qcow2 sources, checksums."""

import hashlib
import itertools
import os
import pathlib
import random
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.nbd_connection import ConnectionLostError, NbdConnection
from acstor.origin import memory
from acstor.repository.checksum import Checksum
from acstor.repository.images import inspection, registration
from acstor.repository.source import base, raw
from tests.unit.repository.images import CHUNK_SIZE, SETTINGS, image_id, open_repository, read_back

needs_qemu = pytest.mark.skipif(not shutil.which("qemu-nbd"), reason="qemu-utils is missing")
TIMEOUT = 30.0


def make_extents(lengths: list[tuple[int, bool]]) -> list[base.Extent]:
    position, found = 0, []
    for length, is_zero in lengths:
        found.append(base.Extent(position, position + length, is_zero))
        position += length
    return found


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=30))
def test_grid_covers_the_disk_and_calls_nothing_zero_that_is_not(
    lengths: list[tuple[int, bool]],
) -> None:
    chunk = 16
    extents = make_extents(lengths)
    size = extents[-1].end
    zero = [all(e.is_zero for e in extents if e.start < at + chunk and e.end > at)
            for at in range(0, size, chunk)]  # fmt: skip
    found = list(base.on_chunk_grid(extents, chunk, size))
    position = 0
    for extent in found:
        assert extent.start == position
        assert extent.start < extent.end
        assert extent.end % chunk == 0
        position = extent.end
        if extent.is_zero:
            assert all(zero[extent.start // chunk : extent.end // chunk])
    assert position == -(-size // chunk) * chunk
    assert all(a.is_zero != b.is_zero for a, b in itertools.pairwise(found))


def test_grid_refuses_a_gap() -> None:
    with pytest.raises(exception.InternalError):
        list(base.on_chunk_grid([base.Extent(0, 5, False), base.Extent(6, 10, True)], 16, 10))
    with pytest.raises(exception.InternalError):
        list(base.on_chunk_grid([base.Extent(0, 5, False)], 16, 10))


def sparse_file(path: pathlib.Path, size: int, pieces: dict[int, bytes]) -> bytes:
    """Write pieces at offsets into an otherwise unwritten file; return its content."""
    content = bytearray(size)
    with path.open("wb") as file:
        file.truncate(size)
        for offset, piece in pieces.items():
            file.seek(offset)
            file.write(piece)
            content[offset : offset + len(piece)] = piece
    return bytes(content)


def register_file(path: pathlib.Path, declared: str, checksum: str | None = None) -> bytes:
    """Register a file in a new repository and return what hosts would read."""
    repository = open_repository(memory.MemoryOrigin())
    source = inspection.open_source(str(path), declared, TIMEOUT)
    try:
        declared_checksum = Checksum.parse(checksum) if checksum else None
        request = registration.Request(image_id(0), "x", source, declared, declared_checksum)
        registration.Registrar(repository, SETTINGS).register(request)
    finally:
        source.close()
    return read_back(repository, 0)


PIECES = {
    0: b"\x33" * 5000,
    200_000: random.Random(1).randbytes(300_000),
    900_000: b"end" * 10_000,
}


def test_raw_holes_are_extents(tmp_path: pathlib.Path) -> None:
    content = sparse_file(tmp_path / "image", 1_000_100, PIECES)
    source = raw.RawSource(base.SourceFile(str(tmp_path / "image")))
    extents = list(source.extents())
    assert source.size_bytes == 1_000_448
    assert extents[-1].end == source.size_bytes
    assert any(extent.is_zero for extent in extents)
    for extent in extents:
        if extent.is_zero:
            assert not any(content[extent.start : extent.end])
    source.close()


@needs_qemu
def test_raw_file_reads_back(tmp_path: pathlib.Path) -> None:
    content = sparse_file(tmp_path / "image", 1_000_100, PIECES)
    assert register_file(tmp_path / "image", "raw") == content + bytes(1_000_448 - 1_000_100)


@needs_qemu
@pytest.mark.parametrize("options", [[], ["-c"], ["-o", "cluster_size=4096"], ["-S", "0"]])
def test_qcow2_reads_back_as_qemu_converts_it(tmp_path: pathlib.Path, options: list[str]) -> None:
    content = sparse_file(tmp_path / "raw", 1_000_448, PIECES)
    command = ["qemu-img", "convert", "-O", "qcow2", *options, "raw", "image"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert register_file(tmp_path / "image", "qcow2") == content


@needs_qemu
def test_qcow2_holes_are_not_read(tmp_path: pathlib.Path) -> None:
    subprocess.run(
        ["qemu-img", "create", "-f", "qcow2", "image", "1T"],
        cwd=tmp_path, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    source = inspection.open_source(str(tmp_path / "image"), "qcow2", TIMEOUT)
    assert source.size_bytes == 1 << 40
    assert all(extent.is_zero for extent in source.extents())
    source.close()


@needs_qemu
def test_closing_a_qcow2_source_leaves_no_server(tmp_path: pathlib.Path) -> None:
    sparse_file(tmp_path / "raw", 1_000_448, PIECES)
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", "raw", "image"], cwd=tmp_path, check=True)
    source = inspection.open_source(str(tmp_path / "image"), "qcow2", TIMEOUT)
    server = source._server  # type: ignore[attr-defined]
    path = source.socket_path  # type: ignore[attr-defined]
    source.close()
    assert server.poll() is not None
    with pytest.raises(ConnectionLostError):
        NbdConnection(path, "", 1.0)


@pytest.mark.parametrize("change", ["append", "write", "truncate"])
def test_changed_file_is_refused(tmp_path: pathlib.Path, change: str) -> None:
    path = tmp_path / "image"
    path.write_bytes(b"x" * 100_000)
    source = raw.RawSource(base.SourceFile(str(path)))
    source.check_unchanged()
    with path.open("r+b") as file:
        if change == "truncate":
            file.truncate(50_000)
        else:
            file.seek(0, os.SEEK_END if change == "append" else os.SEEK_SET)
            file.write(b"y")
    with pytest.raises(exception.ImageRefusedError, match="changed"):
        source.check_unchanged()
    source.close()


def test_truncated_file_is_an_error_not_a_crash(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(b"x" * 10 * CHUNK_SIZE)
    source = raw.RawSource(base.SourceFile(str(path)))
    os.truncate(path, 3 * CHUNK_SIZE)
    with pytest.raises(exception.InvalidError, match="ends before"):
        source.scan(0, memoryview(bytearray(10 * CHUNK_SIZE)), CHUNK_SIZE)
    source.close()


@needs_qemu
@pytest.mark.parametrize("algorithm", ["md5", "sha256", "sha512"])
def test_declared_checksum_is_verified(tmp_path: pathlib.Path, algorithm: str) -> None:
    content = sparse_file(tmp_path / "image", 1_000_448, PIECES)
    value = hashlib.new(algorithm, content).hexdigest()
    assert register_file(tmp_path / "image", "raw", f"{algorithm}:{value}") == content
    wrong = ("0" if value[0] != "0" else "1") + value[1:]
    with pytest.raises(exception.ImageRefusedError, match=algorithm):
        register_file(tmp_path / "image", "raw", f"{algorithm}:{wrong}")


@pytest.mark.parametrize("text", ["", "md5", "md5:", "md5:xyz", "sha1:" + "0" * 40, "sha256:00"])
def test_malformed_checksum_is_refused(text: str) -> None:
    with pytest.raises(exception.InvalidError):
        Checksum.parse(text)


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo"])
def test_what_is_no_regular_file_is_refused(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "image"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(exception.InvalidError):
        base.SourceFile(str(path))
