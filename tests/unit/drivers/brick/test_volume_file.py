import io
import os
import pathlib
import socket
import struct
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acstor.drivers.brick.volume_file import VolumeFile, nbd_uri
from acstor.nbd_connection import REQUEST_BYTES_MAX, ConnectionLostError
from testbed.doubles.memory_nbd_server import HangupError, MemoryNbdServer
from testbed.fixtures.conditions import PATIENCE
from tests.unit.drivers.conftest import SIZE, VOLUME

READ, WRITE, FLUSH, WRITE_ZEROES = 0, 1, 3, 6
WRITE_ZEROES_FLAG = 1 << 6


def opened(server: MemoryNbdServer, **options: object) -> VolumeFile:
    defaults: dict[str, object] = {"io_timeout": 10.0, "io_deadline": 20.0}
    return VolumeFile(server._path, server.export, **(defaults | options))  # type: ignore[arg-type]


def test_reads_what_was_written_and_knows_its_size(nbd: MemoryNbdServer) -> None:
    content = os.urandom(SIZE)
    with opened(nbd) as file:
        assert file.size_bytes == SIZE
        assert file.write(content) == SIZE
        assert file.tell() == SIZE
        assert file.seek(0) == 0
        assert file.read() == content
        assert file.read(1) == b""
    assert bytes(nbd.content) == content


def test_large_requests_are_cut(nbd: MemoryNbdServer) -> None:
    with opened(nbd) as file:
        file.write(bytes(SIZE))
        file.seek(0)
        file.read()
    lengths = {length for command, _, length in nbd.requests if command != FLUSH}
    assert lengths == {REQUEST_BYTES_MAX}


def test_zeroes_are_not_sent_where_the_server_can_do_without(nbd: MemoryNbdServer) -> None:
    content = bytearray(os.urandom(SIZE))
    nbd.content[:] = content
    holes = slice(REQUEST_BYTES_MAX, 3 * REQUEST_BYTES_MAX)
    content[holes] = bytes(2 * REQUEST_BYTES_MAX)
    for flags in (nbd.flags, nbd.flags | WRITE_ZEROES_FLAG):
        nbd.flags = flags
        nbd.requests.clear()
        with opened(nbd) as file:
            file.write(content)
        zeroed = [offset for command, offset, _ in nbd.requests if command == WRITE_ZEROES]
        assert len(zeroed) == (2 if flags & WRITE_ZEROES_FLAG else 0)
        assert bytes(nbd.content) == content
        nbd.content[holes] = os.urandom(2 * REQUEST_BYTES_MAX)


def test_closing_flushes_what_was_written_and_only_then(nbd: MemoryNbdServer) -> None:
    with opened(nbd) as file:
        file.read(10)
    assert all(command != FLUSH for command, _, _ in nbd.requests)
    with opened(nbd) as file:
        file.write(b"x")
        file.flush()
        file.flush()
    assert [command for command, _, _ in nbd.requests].count(FLUSH) == 1


def test_position_is_set_from_start_here_and_end(nbd: MemoryNbdServer) -> None:
    with opened(nbd) as file:
        assert file.seek(100) == 100
        assert file.seek(5, os.SEEK_CUR) == 105
        assert file.seek(-1, os.SEEK_END) == SIZE - 1
        assert file.read(10) == b"\0"
        assert file.seek(SIZE + 5) == SIZE + 5
        assert file.read(10) == b""
        with pytest.raises(ValueError, match="negative"):
            file.seek(-1)
        with pytest.raises(ValueError, match="whence"):
            file.seek(0, 9)


def test_nothing_is_written_beyond_the_end(nbd: MemoryNbdServer) -> None:
    with opened(nbd) as file:
        file.seek(-4, os.SEEK_END)
        with pytest.raises(OSError, match="No space"):
            file.write(b"12345")
    assert not any(nbd.content)


def test_it_has_no_descriptor_and_is_not_truncated(nbd: MemoryNbdServer) -> None:
    with opened(nbd) as file:
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
        with pytest.raises(io.UnsupportedOperation):
            file.truncate(1)
        assert file.readable()
        assert file.seekable()
        assert file.writable()
        assert not file.isatty()


def test_buffered_reader_and_writer_work_on_it(nbd: MemoryNbdServer) -> None:
    with io.BufferedWriter(opened(nbd)) as writer:
        writer.write(b"abc" * 1000)
    with io.BufferedReader(opened(nbd)) as reader:
        assert reader.read(6) == b"abcabc"


def test_closed_file_refuses(nbd: MemoryNbdServer) -> None:
    file = opened(nbd)
    file.close()
    file.close()
    for call in (file.read, file.tell, file.flush, lambda: file.seek(0), lambda: file.write(b"")):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_read_only_volume_is_not_written(nbd: MemoryNbdServer) -> None:
    nbd.flags |= 2
    with opened(nbd) as file:
        assert not file.writable()
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    nbd.flags &= ~2
    with opened(nbd, is_read_only=True) as file, pytest.raises(io.UnsupportedOperation):
        file.write(b"x")


def test_error_of_the_server_is_raised_and_the_connection_stays(nbd: MemoryNbdServer) -> None:
    with opened(nbd) as file:
        nbd.on_request = lambda command: 5 if command == READ else 0
        with pytest.raises(OSError, match="Input/output") as caught:
            file.read(3 * REQUEST_BYTES_MAX)
        assert not isinstance(caught.value, ConnectionLostError)
        nbd.on_request = lambda command: 0
        file.seek(0)
        assert file.read(4) == bytes(4)
    assert nbd.connections == 1


@pytest.mark.parametrize("command", [READ, WRITE, FLUSH])
def test_lost_connection_is_made_again_and_the_request_repeated(
    nbd: MemoryNbdServer, command: int
) -> None:
    lost: list[int] = []

    def hang_up_once(found: int) -> int:
        if found == command and not lost:
            lost.append(found)
            raise HangupError
        return 0

    nbd.on_request = hang_up_once
    content = os.urandom(3 * REQUEST_BYTES_MAX)
    with opened(nbd) as file:
        file.write(content)
        file.flush()
        file.seek(0)
        assert file.read(len(content)) == content
    assert nbd.connections == 2


def test_server_that_shuts_down_is_asked_again(nbd: MemoryNbdServer) -> None:
    answers = [108, 0]
    nbd.on_request = lambda command: answers.pop(0) if command == READ and answers else 0
    with opened(nbd) as file:
        assert file.read(4) == bytes(4)
    assert nbd.connections == 2


def test_data_plane_that_is_restarted_is_waited_for(nbd: MemoryNbdServer) -> None:
    file = opened(nbd)
    file.write(b"before")
    nbd.stop()
    timer = threading.Timer(0.3, nbd.start)
    timer.start()
    file.seek(0)
    assert file.read(6) == b"before"
    timer.join()
    file.close()


def test_server_that_stays_away_is_an_error_in_time(nbd: MemoryNbdServer) -> None:
    file = opened(nbd, io_deadline=0.5)
    nbd.stop()
    begun = time.monotonic()
    with pytest.raises(ConnectionLostError):
        file.read(1)
    assert time.monotonic() - begun < 60 * PATIENCE
    file.close()


def test_server_that_says_nothing_is_an_error_in_time(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "silent.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(8)
        with pytest.raises(ConnectionLostError, match="in time"):
            VolumeFile(path, VOLUME, io_timeout=0.1, io_deadline=0.2)


def test_unknown_export_is_not_found_at_once(nbd: MemoryNbdServer) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        VolumeFile(nbd._path, "5ecre7")
    assert "5ecre7" not in f"{caught.value!r} {caught.value}", "Cinder logs it"
    assert nbd.connections == 1


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.0 400 Bad Request\r\n\r\n",
        struct.pack(">QQH", 0x4E42444D41474943, 0x00420281861253, 0),
        struct.pack(">QQH", 0x4E42444D41474943, 0x49484156454F5054, 0),
        struct.pack(">QQH", 0x4E42444D41474943, 0x49484156454F5054, 3)
        + struct.pack(">QIII", 0x3E889045565A9, 7, 3, 1 << 31),
        struct.pack(">QQH", 0x4E42444D41474943, 0x49484156454F5054, 3)
        + struct.pack(">QIIIHIII", 0x3E889045565A9, 7, 3, 14, 3, 3, 4096, 1 << 20),
        struct.pack(">QQH", 0x4E42444D41474943, 0x49484156454F5054, 3)
        + struct.pack(">QIII", 0x3E889045565A9, 7, 2, 0) * 100,
        b"short",
    ],
    ids=["no NBD", "oldstyle", "no fixed newstyle", "huge reply", "odd block", "endless", "short"],
)
def test_server_that_speaks_something_else_is_left(nbd: MemoryNbdServer, greeting: bytes) -> None:
    nbd.greeting = greeting
    with pytest.raises(ConnectionLostError):
        opened(nbd, io_deadline=0.2)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> MemoryNbdServer:
    path = str(tmp_path_factory.mktemp("blocks") / "nbd.sock")
    return MemoryNbdServer(path, VOLUME, 64 << 10, block_size=4096)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.integers(0, 64 << 10), st.integers(0, 20_000)), max_size=8
    )
)
def test_any_range_works_where_requests_are_whole_blocks(
    blocks: MemoryNbdServer, steps: list[tuple[bool, int, int]]
) -> None:
    blocks.content[:] = os.urandom(len(blocks.content))
    model = io.BytesIO(bytes(blocks.content))
    blocks.start()
    try:
        with opened(blocks) as file:
            for is_write, offset, length in steps:
                file.seek(offset)
                model.seek(offset)
                if is_write:
                    data = os.urandom(min(length, len(blocks.content) - offset))
                    assert file.write(data) == model.write(data)
                else:
                    assert file.read(length) == model.read(length)
    finally:
        blocks.stop()
    assert bytes(blocks.content) == model.getvalue()


def test_uri_is_what_qemu_takes() -> None:
    assert nbd_uri("/run/a b.sock", "x/y") == "nbd+unix:///x%2Fy?socket=/run/a%20b.sock"
