"""Reading an image in a child process, which may hang."""

import os
import pathlib
import stat
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.agent.reconcilers.local_files.reading import ChildReader

CONTENT = os.urandom(64 << 10) + bytes(4096) + b"end".ljust(512, b".")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "image.raw"
    path.write_bytes(CONTENT)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("the file system of the tests has no direct reads")
    return path


@pytest.fixture
def reader(path: pathlib.Path) -> Iterator[ChildReader]:
    path.chmod(0o444)
    reader = ChildReader(str(path), 60)
    yield reader
    reader.close()


def test_bytes_come_as_they_are(reader: ChildReader) -> None:
    assert reader.size_bytes == len(CONTENT)
    assert bytes(reader.read(0, 4096)) == CONTENT[:4096]
    assert bytes(reader.read(4096, 512)) == CONTENT[4096:4608]
    assert bytes(reader.read(0, len(CONTENT))) == CONTENT


def test_group_is_told_where_others_may_not_read(reader: ChildReader, path: pathlib.Path) -> None:
    assert reader.group is None
    path.chmod(stat.S_IRUSR | stat.S_IRGRP)
    other = ChildReader(str(path), 60)
    assert other.group == path.stat().st_gid
    other.close()


def test_end_of_the_file_is_an_error(reader: ChildReader) -> None:
    with pytest.raises(exception.UnavailableError, match="ends early"):
        reader.read(len(CONTENT) // 4096 * 4096, 1 << 20)
    assert bytes(reader.read(0, 4096)) == CONTENT[:4096], "the child goes on"


def test_file_that_is_not_there_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(exception.UnavailableError, match="No such file"):
        ChildReader(str(tmp_path / "none"), 60)


def test_child_that_ends_is_an_error(reader: ChildReader) -> None:
    reader._process.kill()
    reader._process.wait(60)
    with pytest.raises(exception.UnavailableError, match="has ended"):
        reader.read(0, 4096)


def test_child_that_hangs_is_left_behind(path: pathlib.Path) -> None:
    reader = ChildReader(str(path), 60)
    os.kill(reader._process.pid, 19)  # SIGSTOP
    reader._timeout = 0.2
    with pytest.raises(exception.DeadlineError):
        reader.read(0, 4096)
    reader.close()
    assert reader._process.poll() is not None
