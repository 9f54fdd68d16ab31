"""The reserve: how much of it a write is worth, and when its space is there."""

import errno
import os
import pathlib
from collections.abc import Callable
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import posix, posix_reserve
from acstor.origin.posix_reserve import FILE_COUNT, FILES_PER_WRITE_MAX, Reserve, freeing


class FullStore:
    """A store whose space is there some time after a file was removed, as on CephFS."""

    def __init__(self, folder: pathlib.Path, delay: float) -> None:
        self.folder = folder
        self.delay = delay
        self.waited = 0.0

    def sleep(self, seconds: float) -> None:
        self.waited += seconds

    def write(self) -> str:
        given_up = FILE_COUNT - len(os.listdir(self.folder))
        if not given_up or self.waited < self.delay:
            raise OSError(errno.ENOSPC, "full")
        return "written"


@pytest.fixture
def make(tmp_path: pathlib.Path) -> Callable[[float], tuple[FullStore, Reserve]]:
    def made(delay: float) -> tuple[FullStore, Reserve]:
        folder = tmp_path / "reserve"
        store = FullStore(folder, delay)
        reserve = Reserve(str(folder), store.sleep)
        reserve.fill(os.mkdir)
        return store, reserve

    return made


@pytest.mark.parametrize(("delay", "left"), [(0.0, FILE_COUNT - 1), (0.4, FILE_COUNT - 1)])
def test_space_of_one_file_is_waited_for(
    make: Callable[[float], tuple[FullStore, Reserve]], delay: float, left: int
) -> None:
    store, reserve = make(delay)
    with freeing():
        assert reserve.spend_on(store.write) == "written"
    assert len(os.listdir(store.folder)) == left
    assert bool(store.waited) == bool(delay)


def test_no_write_takes_all(make: Callable[[float], tuple[FullStore, Reserve]]) -> None:
    store, reserve = make(3600.0)
    with freeing(), pytest.raises(OSError, match="full"):
        reserve.spend_on(store.write)
    assert len(os.listdir(store.folder)) == FILE_COUNT - FILES_PER_WRITE_MAX
    assert 0 < store.waited <= 1.5 * FILES_PER_WRITE_MAX * posix_reserve.WAIT_SECONDS


def test_others_neither_wait_nor_get_any(
    make: Callable[[float], tuple[FullStore, Reserve]],
) -> None:
    store, reserve = make(0.0)
    with pytest.raises(OSError, match="full"):
        reserve.spend_on(store.write)
    assert len(os.listdir(store.folder)) == FILE_COUNT
    assert not store.waited


@pytest.mark.parametrize("present", [FILE_COUNT, FILE_COUNT // 2 - 1])
def test_sweep_leaves_half_to_what_removes(tmp_path: pathlib.Path, present: int) -> None:
    origin = posix.PosixOrigin(str(tmp_path))
    origin.swap_ref("ring", None, b"x")
    origin.sweep()
    for number in range(present, FILE_COUNT):
        (tmp_path / ".reserve" / str(number)).unlink()
    full = OSError(errno.ENOSPC, "full")
    with (
        mock.patch.object(origin._tree.reserve, "_sleep"),
        mock.patch.object(os, "fsync", side_effect=full),
    ):
        for _ in range(FILE_COUNT):
            with pytest.raises(exception.ExhaustedError):
                origin.sweep()
    assert len(os.listdir(tmp_path / ".reserve")) == min(present, FILE_COUNT // 2)
