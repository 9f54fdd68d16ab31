"""Opening disks, where there is room for the copy of a log and where there is none."""

import contextlib
import os

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.repository.reading.opened_disk import open_disk
from acstor.repository.repository import Repository
from acstor.repository.volumes.record import DiskState
from tests.unit.repository.images import CHUNK_SIZE
from tests.unit.repository.volumes import log_objects

SIZE = 1 << 20


@pytest.fixture
def repository() -> Repository:
    """Return a repository in memory."""
    return Repository.init(MemoryOrigin(), CHUNK_SIZE)


def pushed(repository: Repository) -> DiskState:
    """Return the content of a volume that was pushed and never folded."""
    return DiskState(None, log_objects.pushed(repository.origin))


def test_log_lies_over_the_manifest(repository: Repository) -> None:
    with contextlib.closing(open_disk(repository, pushed(repository), SIZE)) as disk:
        assert disk.read(0, 4096) == bytes(4096)
        assert any(disk.read(4096, 512))


def test_full_temporary_directory_is_told_and_leaves_nothing_open(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    (content, opened) = pushed(repository), log_objects.fill_temporary_directory(monkeypatch)
    with pytest.raises(exception.ExhaustedError, match="copy of a volume's log") as caught:
        open_disk(repository, content, SIZE)
    assert "temporary directory" in caught.value.hint
    assert "quota_bytes" not in caught.value.message
    assert [file.closed for file in opened] == [True]
    assert "/dev/full" not in open_paths()


def open_paths() -> set[str]:
    """Return what this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found
