"""Sessions with the process that reads files, honest and other ones."""

import contextlib
import pathlib
import struct
import time
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.browsing.disk_files import DiskFiles, FileKind
from acstor.browsing.session import Session
from testbed.doubles.readable_disk import ReadableDiskInMemory

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "browsing-v1.bin"


ROGUE = """
import os, signal, socket, sys
sent, behaviour, _size, descriptor = sys.argv[1:]
connection = socket.socket(fileno=int(descriptor))
connection.sendall(bytes.fromhex(sent))
if behaviour == "die":
    os.kill(os.getpid(), signal.SIGKILL)
while connection.recv(4096):
    pass
"""
"""A process that reads files as it should not."""


def rogue(sent: bytes, behaviour: str = "wait") -> tuple[str, ...]:
    """Return the command of a process that sends that."""
    return ("-c", ROGUE, sent.hex(), behaviour)


def frame(kind: bytes, content: bytes) -> bytes:
    """Return a frame."""
    return kind + struct.pack("<I", len(content)) + content


HELLO = frame(b"H", b'{"version":1,"size_bytes":512}')
QUESTION = {"op": "partitions"}


@contextlib.contextmanager
def session_with(sent: bytes, behaviour: str = "wait", seconds: float = 60) -> Iterator[Session]:
    """Return a session with such a process, on a disk of zeros."""
    session = Session(ReadableDiskInMemory(bytes(512)), seconds, rogue(sent, behaviour))
    with contextlib.closing(session):
        yield session


def test_golden_frames_are_understood() -> None:
    golden = GOLDEN.read_bytes()
    with session_with(golden) as session:
        files = DiskFiles(session)
        found = files.partitions()
        assert (found[0].number, found[0].file_system, found[0].is_readable) == (
            0,
            "unknown",
            False,
        )
        assert found[0].reason == "the disk has no file system that is known"
        with pytest.raises(exception.NotFoundError, match="no partition 3"):
            list(files.listing(3, "/"))


@pytest.mark.parametrize(
    "sent",
    [
        frame(b"H", b'{"version":2,"size_bytes":512}'),
        frame(b"H", b'{"version":1,"size_bytes":513}'),
        frame(b"H", b"no JSON"),
        frame(b".", b""),
        HELLO + frame(b"Z", b""),
        HELLO + frame(b"H", b""),
        HELLO + b"J" + struct.pack("<I", (1 << 20) + 1),
        HELLO + frame(b"R", b"short"),
        HELLO + frame(b"R", struct.pack("<QI", 0, (1 << 20) + 1)),
        HELLO + frame(b"E", b"[]"),
        HELLO + frame(b"E", b'{"kind":"invalid"}'),
    ],
)
def test_nonsense_is_an_error_of_ours(sent: bytes) -> None:
    with session_with(sent) as session, pytest.raises(exception.InternalError, match="understood"):
        list(session.ask(QUESTION))


@pytest.mark.parametrize(
    "item",
    [
        b"{}",
        b"[1]",
        b"[{}]",
        b'[{"name":"a","kind":"file","size_bytes":-1,"mode":0,"uid":0,"gid":0,'
        b'"modified_ns":"0","target":null}]',
        b'[{"name":"a","kind":"door","size_bytes":1,"mode":0,"uid":0,"gid":0,'
        b'"modified_ns":"0","target":null}]',
        b'[{"name":"a","kind":"file","size_bytes":1,"mode":0,"uid":0,"gid":0,'
        b'"modified_ns":"' + b"9" * 5000 + b'","target":null}]',
    ],
)
def test_files_that_are_none_are_an_error_of_ours(item: bytes) -> None:
    sent = HELLO + frame(b"J", item) + frame(b".", b"")
    with session_with(sent) as session, pytest.raises(exception.InternalError, match="understood"):
        list(DiskFiles(session).listing(0, "/"))


def test_bytes_among_files_are_an_error_of_ours() -> None:
    for kind, ask in ((b"B", DiskFiles.partitions), (b"J", _content)):
        sent = HELLO + frame(kind, b"[]") + frame(b".", b"")
        with session_with(sent) as session, pytest.raises(exception.InternalError):
            ask(DiskFiles(session))


def _content(files: DiskFiles) -> list[bytes]:
    return list(files.content(0, "/a", 0, 1))


def test_read_past_the_disk_is_refused() -> None:
    sent = HELLO + frame(b"R", struct.pack("<QI", 500, 100))
    with session_with(sent) as session, pytest.raises(exception.InvalidError):
        list(session.ask(QUESTION))


def test_death_is_told_with_what_to_do() -> None:
    with (
        session_with(HELLO, "die") as session,
        pytest.raises(exception.UnsupportedError, match="SIGKILL") as caught,
    ):
        list(session.ask(QUESTION))
    assert "export" in str(caught.value.hint)


def test_silence_ends() -> None:
    with session_with(HELLO) as session:
        session._frames._until = time.monotonic() + 0.1  # once the process has started
        with pytest.raises(exception.DeadlineError):
            list(session.ask(QUESTION))


def test_process_is_gone_after_closing() -> None:
    session = Session(ReadableDiskInMemory(bytes(512)), 60, rogue(HELLO))
    session.close()
    session.close()
    assert session._process.returncode is not None


def test_files_of_a_real_disk(ext4_disk: bytes) -> None:
    with contextlib.closing(Session(ReadableDiskInMemory(ext4_disk), 120)) as session:
        files = DiskFiles(session)
        [whole] = files.partitions()
        assert (whole.number, whole.file_system, whole.label) == (0, "ext", "system")
        names = [one.name for one in files.listing(0, "/")]
        assert names == ["etc", "lost+found", "many", "odd\\x5c\\xff"]
        link = files.entry(0, "/etc/link")
        assert (link.kind, link.target) == (FileKind.LINK, "hostname")
        assert b"".join(files.content(0, "/odd\\x5c\\xff", 0, 3)) == b"odd"
        large = b"".join(files.content(0, "/etc/deep/large", 1000, 300_000))
        assert large == (bytes(range(256)) * 2000)[1000:301_000]
        walked = [one.name for one in files.walk(0, "/etc")]
        assert walked == ["/etc/deep", "/etc/hostname", "/etc/link", "/etc/deep/large"]
        with pytest.raises(exception.NotFoundError):
            files.entry(0, "/none")
        with pytest.raises(exception.InvalidError):
            files.entry(0, "/a\\")


def test_error_of_the_disk_is_what_comes_out(ext4_disk: bytes) -> None:
    disk = ReadableDiskInMemory(ext4_disk)
    disk.error = exception.UnavailableError("the origin is away")
    with (
        contextlib.closing(Session(disk, 120)) as session,
        pytest.raises(exception.UnavailableError, match="the origin is away"),
    ):
        DiskFiles(session).partitions()


def test_damage_is_told(ext4_disk: bytes) -> None:
    damaged = bytearray(ext4_disk)
    # The table of inodes is somewhere in the first blocks: all of them but the superblock's.
    damaged[2048 : 1 << 20] = bytes([0xA5]) * ((1 << 20) - 2048)
    with contextlib.closing(Session(ReadableDiskInMemory(bytes(damaged)), 120)) as session:
        [whole] = DiskFiles(session).partitions()
        assert not whole.is_readable
        with pytest.raises(exception.UnsupportedError, match="damaged"):
            DiskFiles(session).entry(0, "/")
