"""Files of a disk whose guest had a power cut: its journal is full of what nobody wrote back."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from acstor.browsing.disk_files import DiskFiles
from acstor.browsing.session import Session
from testbed.doubles.readable_disk import ReadableDiskInMemory

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

SIZE = 64 << 20
ENVIRONMENT = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}


def run(*command: str) -> str:
    """Run a command; return what it prints."""
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60, env=ENVIRONMENT
    )
    return done.stdout


@pytest.fixture
def mounted(tmp_path: pathlib.Path) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """Yield the image of an ext4 file system, and where it is mounted."""
    image, place = tmp_path / "image", tmp_path / "mnt"
    place.mkdir()
    image.write_bytes(b"")
    os.truncate(image, SIZE)
    run("mkfs.ext4", "-q", "-F", str(image))
    run("mount", "-o", "loop,commit=300", str(image), str(place))
    try:
        yield image, place
    finally:
        run("umount", str(place))


def test_file_that_only_the_journal_has_is_there(
    mounted: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    image, place = mounted
    (place / "etc").mkdir()
    path = place / "etc" / "flushed"
    with path.open("wb") as file:
        file.write(b"flushed before the cut\n" * 1000)
        file.flush()
        os.fsync(file.fileno())
    cut = image.read_bytes()
    copy = tmp_path / "cut"
    copy.write_bytes(cut)
    assert "needs_recovery" in run("dumpe2fs", "-h", str(copy))

    with contextlib.closing(Session(ReadableDiskInMemory(cut), 120)) as session:
        files = DiskFiles(session)
        assert [one.name for one in files.listing(0, "/etc")] == ["flushed"]
        size = files.entry(0, "/etc/flushed").size_bytes
        content = b"".join(files.content(0, "/etc/flushed", 0, size))
    assert content == b"flushed before the cut\n" * 1000
