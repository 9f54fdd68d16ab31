"""A file system without space: what leads to more space is done all the same."""

import dataclasses
import itertools
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.origin import base, posix, posix_reserve
from acstor.repository import layout
from acstor.repository.gc.garbage import Collector
from acstor.repository.gc.hold import LEASE_SECONDS, Hold, HoldKeeper
from acstor.repository.repository import Repository
from tests.unit.repository import images

COLLECTED = 12
PACK_BYTES = 50_000
FILLERS_MAX = 100_000


@pytest.fixture
def root(tmp_path: pathlib.Path) -> Iterator[str]:
    """A directory on a file system of 4 MiB."""
    path = tmp_path / "origin"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    yield str(path)
    subprocess.run(["umount", path], check=True)


def fill(origin: base.Origin) -> None:
    """Store objects until there is no space at all."""
    for size in (65536, 4096, 1):

        def store(number: int, size: int = size) -> None:
            origin.put_if_absent(f"filler/{size}/{number}", [os.urandom(size)])

        assert until_full(store) < FILLERS_MAX


def until_full(store: Callable[[int], object]) -> int:
    """Return how often ``store`` finds space; it gets the number of the call."""
    for number in range(FILLERS_MAX):
        try:
            store(number)
        except exception.ExhaustedError:
            return number
    return FILLERS_MAX


def repository_with_garbage(origin: base.Origin) -> Repository:
    repository = Repository.init(origin)
    for number in range(1, COLLECTED + 1):
        origin.put_if_absent(layout.pack_key(f"{number:064x}"), [os.urandom(PACK_BYTES)])
    return repository


def collector(repository: Repository) -> Collector:
    clock = iter(range(1, 1_000_000))
    return Collector(repository, "host", 0.0, clock=lambda: next(clock))


def test_full_origin_is_collected(root: str) -> None:
    origin = posix.PosixOrigin(root)
    repository = repository_with_garbage(origin)
    assert collector(repository).collect().condemned == COLLECTED
    fill(origin)
    report = collector(repository).collect()
    assert (report.deleted, report.postponed) == (COLLECTED, 0)
    assert len(os.listdir(os.path.join(root, ".reserve"))) == posix_reserve.FILE_COUNT


def test_origin_that_is_full_before_anything_was_condemned_is_collected(root: str) -> None:
    origin = posix.PosixOrigin(root)
    repository = repository_with_garbage(origin)
    origin.sweep()  # any collection before
    fill(origin)
    deleted = 0
    for _ in range(5):
        deleted += collector(repository).collect().deleted
    assert deleted == COLLECTED


def test_full_origin_is_collected_while_others_take_what_is_freed(root: str) -> None:
    origin = posix.PosixOrigin(root)
    repository = repository_with_garbage(origin)
    collector(repository).collect()

    class Greedy(posix.PosixOrigin):
        """Its objects' space is taken again as soon as it is there."""

        def delete(self, key: str) -> bool:
            is_deleted = super().delete(key)
            origin.put_if_absent(f"greedy/{key}", [os.urandom(PACK_BYTES)])
            return is_deleted

    fill(origin)
    report = collector(Repository(Greedy(root), repository.format)).collect()
    assert report.deleted == COLLECTED


def test_refs_are_removed_without_space_and_others_get_none_of_the_reserve(root: str) -> None:
    origin = posix.PosixOrigin(root)
    tokens = {name: origin.swap_ref(name, None, b"x") for name in ("images/a", "images/b")}
    origin.sweep()
    fill(origin)
    with pytest.raises(exception.ExhaustedError):
        origin.swap_ref("images/c", None, b"x" * 10_000)
    kept = os.listdir(os.path.join(root, ".reserve"))
    assert len(kept) == posix_reserve.FILE_COUNT
    for name, token in tokens.items():
        assert origin.swap_ref(name, token, None) is None
    assert list(origin.list_refs()) == []


def test_registrations_leave_room_to_volumes(root: str) -> None:
    """An image larger than the file system: its registration ends, and volumes go on."""
    origin = posix.PosixOrigin(root)
    repository = images.open_repository(origin)
    percent = 25
    settings = dataclasses.replace(images.SETTINGS, pack_size=256 << 10, reserve_percent=percent)
    with pytest.raises(exception.ExhaustedError, match=r"\[origin\] reserve_percent"):
        images.register(repository, 1, os.urandom(8 << 20), settings)
    assert list(repository.list_image_ids()) == []
    space = origin.space()
    reserve = space.total_bytes * percent // 100
    assert reserve <= space.free_bytes < reserve + (512 << 10), "it takes what it may"
    # What a volume pushes, and its refs, may have all of it.
    stored = until_full(lambda number: origin.put_if_absent(f"logs/{number}", [bytes(64 << 10)]))
    assert stored >= reserve // (96 << 10)
    with pytest.raises(exception.ExhaustedError, match="free, and images leave"):
        images.register(repository, 2, images.disk(1), settings)


def test_registration_goes_on_once_there_is_room(root: str) -> None:
    origin = posix.PosixOrigin(root)
    repository = images.open_repository(origin)
    settings = dataclasses.replace(images.SETTINGS, reserve_percent=5)
    ballast = until_full(lambda number: origin.put_if_absent(f"logs/{number}", [bytes(64 << 10)]))
    content = images.disk(1, 2, 3)
    with pytest.raises(exception.ExhaustedError):
        images.register(repository, 1, content, settings)
    for number in range(ballast // 2):
        origin.delete(f"logs/{number}")
    images.register(repository, 1, content, settings)
    assert images.read_back(repository, 1) == content


def test_full_origin_is_held_while_it_is_copied(root: str) -> None:
    origin = posix.PosixOrigin(root)
    repository = repository_with_garbage(origin)
    assert collector(repository).collect().condemned == COLLECTED
    fill(origin)
    with HoldKeeper(origin, "h1:7") as keeper:
        report = collector(repository).collect()
        assert (report.holds, report.deleted) == (1, 0)
        keeper.renew()
    assert collector(repository).collect().deleted == COLLECTED


def test_hold_of_a_copy_that_was_killed_ends_in_a_full_origin(root: str) -> None:
    origin = posix.PosixOrigin(root)
    repository = repository_with_garbage(origin)
    assert collector(repository).collect().condemned == COLLECTED
    origin.swap_ref(layout.condemned_ref("f" * 64), None, Hold("h1:7").encode())
    fill(origin)
    content = bytes(posix_reserve.FILE_BYTES // 2)
    with origin.freeing(is_beginning=True):
        until_full(lambda number: origin.swap_ref(f"gc/{number}", None, content))
    for _ in range(2):
        until_full(lambda number: origin.put_if_absent(f"filler/last/{number}", [b"1"]))
    for now, deleted in ((0.0, 0), (LEASE_SECONDS, COLLECTED)):
        report = Collector(repository, "host", 0.0, clock=itertools.repeat(now).__next__).collect()
        assert report.deleted == deleted


def test_beginnings_leave_half_of_the_reserve(root: str) -> None:
    origin = posix.PosixOrigin(root)
    origin.sweep()
    fill(origin)
    content = bytes(posix_reserve.FILE_BYTES // 2)
    with origin.freeing(is_beginning=True):
        made = until_full(lambda number: origin.swap_ref(f"gc/{number}", None, content))
    assert 1 < made < FILLERS_MAX
    left = len(os.listdir(os.path.join(root, ".reserve")))
    assert left == posix_reserve.FILE_COUNT // 2
    token = origin.get_ref("gc/0")
    assert token is not None
    origin.swap_ref("gc/0", token.token, None)
