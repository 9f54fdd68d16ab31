"""Processes that a disk has taken over, and what they have and may do."""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from acstor import exception
from acstor.browsing import frames
from acstor.browsing.disk_files import DiskFiles
from acstor.browsing.session import Session
from testbed.doubles.readable_disk import ReadableDiskInMemory

PARTITION = (
    b'[{"number":1,"start":0,"size_bytes":512,"name":"","file_system":"ext","label":"",'
    b'"is_readable":true,"reason":null}]'
)


class Said:
    """A process that says the same whatever it is asked."""

    def __init__(self, *parts: tuple[bytes, bytes], times: int = 1) -> None:
        """Keep what it says."""
        self._parts = list(parts) * times

    def ask(self, question: Mapping[str, object]) -> Iterator[tuple[bytes, bytes]]:
        """Say it."""
        return iter(self._parts)


def test_partitions_without_end_are_refused() -> None:
    files = DiskFiles(Said((frames.ITEM, PARTITION), times=20_000))
    with pytest.raises(exception.InternalError, match="more than"):
        files.partitions()


def test_more_content_than_was_asked_for_is_refused() -> None:
    content = DiskFiles(Said((frames.BYTES, b"abc"), (frames.BYTES, b"def"))).content(0, "/a", 0, 5)
    with pytest.raises(exception.InternalError, match="more than"):
        list(content)


def test_less_content_than_was_asked_for_is_damage() -> None:
    content = DiskFiles(Said((frames.BYTES, b"abc"))).content(0, "/a", 0, 5)
    with pytest.raises(exception.UnsupportedError, match="3 of 5 bytes"):
        list(content)


def test_archive_without_end_is_refused() -> None:
    archive = DiskFiles(Said((frames.BYTES, bytes(1 << 20)), times=20_000)).archive(0, "/", 1)
    with pytest.raises(exception.InternalError, match="more than"):
        for _ in archive:
            pass


@pytest.mark.parametrize("error", [OSError(5, "no such host"), ValueError("half a record")])
def test_origin_that_fails_unexpectedly_is_not_blamed_on_the_disk(
    ext4_disk: bytes, error: Exception
) -> None:
    class Faulty(ReadableDiskInMemory):
        def read(self, offset: int, size: int) -> bytes:
            raise error

    with (
        contextlib.closing(Session(Faulty(ext4_disk), 120)) as session,
        pytest.raises(exception.AcstorError) as caught,
    ):
        DiskFiles(session).partitions()
    assert not isinstance(caught.value, exception.UnsupportedError)
    assert "process" not in str(caught.value)


def test_process_has_no_secrets_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, ext4_disk: bytes
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-api")
    with contextlib.closing(Session(ReadableDiskInMemory(ext4_disk), 120)) as session:
        environment = pathlib.Path(f"/proc/{session._process.pid}/environ").read_bytes()
    assert b"a-secret" not in environment


def test_interpreter_is_found_in_a_server_that_is_none(
    monkeypatch: pytest.MonkeyPatch, ext4_disk: bytes
) -> None:
    # uWSGI says that it is the interpreter: sys.executable is its own program.
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with contextlib.closing(Session(ReadableDiskInMemory(ext4_disk), 120)) as session:
        assert DiskFiles(session).partitions()[0].is_readable


def test_process_lets_others_go_first(ext4_disk: bytes) -> None:
    with contextlib.closing(Session(ReadableDiskInMemory(ext4_disk), 120)) as session:
        DiskFiles(session).partitions()
        found = os.getpriority(os.PRIO_PROCESS, session._process.pid)
    assert found > min(os.getpriority(os.PRIO_PROCESS, 0), 18)


FAILING = """
import sys
from acstor import native
from acstor.browsing import child
native.serve_files = lambda *_: 1 / 0
sys.argv = ["child", "512", "0"]
child.main()
"""
"""A process that fails where it is confined already."""


def test_process_that_fails_is_not_taken_for_one_that_breaks_out() -> None:
    # To show a traceback it would open files of Python, for which the kernel kills it.
    found = subprocess.run(
        [sys.executable, "-P", "-c", FAILING], capture_output=True, timeout=120, check=False
    )
    assert (found.returncode, found.stderr) == (1, b"")
