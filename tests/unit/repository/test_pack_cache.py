"""The file of remembered packs between processes: who may append to it."""

import os
import pathlib

import pytest

from acstor.repository.pack_cache import PackCache

PACK, HEADER, TABLE = b"p" * 32, b"h" * 32, b"t" * 64


def copies_of(path: pathlib.Path) -> list[int]:
    """Return copies of this process' descriptors of a file, as a child has them before its exec."""
    found = [entry for entry in pathlib.Path("/proc/self/fd").iterdir() if entry.exists()]
    return [os.dup(int(entry.name)) for entry in found if entry.samefile(path)]


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "cache" / "packs"


def test_second_process_appends_after_the_first_has_closed(path: pathlib.Path) -> None:
    first = PackCache(str(path), 4096)
    second = PackCache(str(path), 4096)
    second.append(PACK, HEADER, TABLE)
    assert path.stat().st_size == 0
    first.close()
    second.close()
    third = PackCache(str(path), 4096)
    third.append(PACK, HEADER, TABLE)
    third.close()
    assert path.stat().st_size > 0


def test_child_that_is_being_started_keeps_nobody_from_appending(path: pathlib.Path) -> None:
    first = PackCache(str(path), 4096)
    copies = copies_of(path)
    assert len(copies) == 1
    first.close()
    second = PackCache(str(path), 4096)
    second.append(PACK, HEADER, TABLE)
    second.close()
    assert path.stat().st_size > 0
    os.close(copies[0])
