"""Versions written into disks: the content, the bytes that move, and faults."""

import dataclasses
import pathlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.agent.captures.parents import Comparison, find_comparison
from acstor.agent.captures.reading import Pace
from acstor.agent.restores.supply import BaseFile, ChunkSupply, PlacedChunks
from acstor.agent.restores.writing import VersionWriter, Written
from acstor.origin import memory
from acstor.rate_limit import RateLimit
from acstor.repository.images.usage import base_name
from acstor.repository.reading.chunk_reader import ChunkReader
from acstor.repository.repository import Repository
from acstor.repository.versions.store import VersionStore
from testbed.doubles.memory_target import MemoryTarget
from tests.unit.repository.images import (
    CHUNK_SIZE,
    chunk,
    disk,
    image_id,
    open_repository,
    register,
)
from tests.unit.repository.versions.captures import store_of
from tests.unit.repository.versions.records import committed, version_id

COUNT = 8
BASE = (1, 2, 3, 4, 5, 6, 0, 0)
WANTED = (1, 20, 0, 4, 21, 6, 0, 22)
ONE = version_id(1)
NO_PACE = Pace(RateLimit(0), RateLimit(0))


class Place:
    """A repository with a base image and one version, and the base file of a host."""

    def __init__(self, folder: pathlib.Path, wanted: tuple[int, ...] = WANTED) -> None:
        self.repository: Repository = open_repository(memory.MemoryOrigin())
        self.store: VersionStore = store_of(self.repository)
        register(self.repository, 0, disk(*BASE))
        report = register(self.repository, 1, disk(*wanted))
        record = committed(size_bytes=COUNT * CHUNK_SIZE, manifest=report.manifest)
        self.store.publish(ONE, record)
        self.manifest = self.repository.load_manifest(report.manifest)
        self.backing = folder / base_name(image_id(0))
        self.backing.write_bytes(disk(*BASE))
        self.touches = 0

    def comparison(self) -> Comparison | None:
        size = COUNT * CHUNK_SIZE
        found = find_comparison(self.store, size, ONE, image_id(0), str(self.backing))
        return found if found is not None and found.version == ONE else None

    def touch(self) -> None:
        self.touches += 1

    def write(
        self, target: MemoryTarget, pace: Pace = NO_PACE, *, has_base: bool = True
    ) -> Written:
        image = image_id(0) if has_base else None
        base = BaseFile.open(self.repository, image, str(self.backing))
        reader = ChunkReader(self.repository.origin, CHUNK_SIZE)
        supply = ChunkSupply(reader, CHUNK_SIZE, base, PlacedChunks(target))
        try:
            return VersionWriter(
                target, self.manifest, self.comparison(), CHUNK_SIZE, supply, pace, self.touch
            ).write()
        finally:
            base.close()


def target_of(own: Mapping[int, int], **fields: int) -> MemoryTarget:
    """Return a disk that has some chunks of its own, 0: zeros of its own."""
    return MemoryTarget(
        COUNT,
        {index: chunk(number) if number else None for index, number in own.items()},
        {index: chunk(number) for index, number in enumerate(BASE) if number},
        block_size=CHUNK_SIZE,
        writes_before=fields.get("writes_before"),
    )


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    return Place(tmp_path)


def test_only_what_is_otherwise_is_written(place: Place) -> None:
    target = target_of({0: 9, 1: 20, 2: 0, 3: 4})
    written = place.write(target)
    assert target.content() == disk(*WANTED)
    assert target.written == [0, 4, 7]
    assert (written.written_bytes, place.touches) == (3 * CHUNK_SIZE, 1)
    assert (written.fetched_bytes, written.local_bytes) == (2 * CHUNK_SIZE, CHUNK_SIZE)


def test_writing_again_writes_nothing(place: Place) -> None:
    target = target_of({0: 9})
    place.write(target)
    target.written.clear()
    place.touches = 0
    written = place.write(target)
    assert (target.written, place.touches) == ([], 0)
    assert dataclasses.replace(written, read_bytes=0) == Written()


def test_zeros_are_written_where_the_version_has_some(place: Place) -> None:
    target = target_of(dict.fromkeys(range(COUNT), 9))
    written = place.write(target)
    assert target.content() == disk(*WANTED)
    assert written.written_bytes == COUNT * CHUNK_SIZE


def test_what_comes_twice_is_moved_once(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path, (30, 30, 30, 4, 5, 6, 0, 30))
    written = place.write(target_of({}))
    assert written.fetched_bytes == CHUNK_SIZE


def test_base_file_that_is_cut_off_or_another_is_not_believed(place: Place) -> None:
    place.backing.write_bytes(disk(1, 2)[: CHUNK_SIZE // 2])
    target = target_of(dict.fromkeys(range(COUNT), 9))
    written = place.write(target)
    assert target.content() == disk(*WANTED)
    assert written.local_bytes == 0


@pytest.mark.parametrize("is_there", [False, True])
def test_base_file_that_is_none_is_not_read(place: Place, is_there: bool) -> None:
    place.backing.unlink()
    if is_there:
        place.backing.mkdir()
    target = target_of({0: 9, 3: 9})
    assert place.write(target).local_bytes == 0
    assert target.content() == disk(*WANTED)


def test_it_goes_on_where_it_failed(place: Place) -> None:
    whole = target_of({0: 9, 3: 9})
    place.write(whole)
    for at in range(len(whole.written)):
        target = target_of({0: 9, 3: 9}, writes_before=at)
        with pytest.raises(exception.UnavailableError):
            place.write(target)
        assert target.written == whole.written[:at]
        target.writes_before = None
        place.write(target)
        assert target.content() == disk(*WANTED)
        assert target.written == whole.written


def test_rates_are_of_what_is_read_and_what_is_written(place: Place) -> None:
    waited: list[float] = []
    pace = Pace(RateLimit(0), RateLimit(CHUNK_SIZE, lambda: 0.0), wait=waited.append)
    place.write(target_of({0: 9}), pace)
    assert waited
    waited.clear()
    pace = Pace(RateLimit(CHUNK_SIZE, lambda: 0.0), RateLimit(0), wait=waited.append)
    place.write(target_of({0: 9}), pace)
    assert waited


def test_one_that_is_ended_writes_no_more(place: Place) -> None:
    def check() -> None:
        raise exception.UnavailableError("ended")

    target = target_of({0: 9})
    with pytest.raises(exception.UnavailableError, match="ended"):
        place.write(target, Pace(RateLimit(0), RateLimit(0), check))
    assert (target.written, place.touches) == ([], 0)


numbers = st.lists(st.sampled_from([0, 1, 2, 3, 7, 8]), min_size=COUNT, max_size=COUNT)


@given(
    wanted=numbers,
    own=st.dictionaries(st.integers(0, COUNT - 1), st.sampled_from([0, 1, 2, 8, 9])),
)
def test_it_moves_no_more_than_either_delta(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[int], own: dict[int, int]
) -> None:
    place = Place(tmp_path_factory.mktemp("host"), tuple(wanted))
    target = target_of(own)
    before = [own.get(index, number) for index, number in enumerate(BASE)]
    reverse = {new for old, new in zip(before, wanted, strict=True) if old != new and new}
    differential = {new for old, new in zip(BASE, wanted, strict=True) if old != new and new}
    written = place.write(target)
    assert target.content() == disk(*wanted)
    least = min(len(reverse), len(differential)) * CHUNK_SIZE
    assert written.fetched_bytes <= least
    assert sorted(target.written) == [
        index for index in range(COUNT) if before[index] != wanted[index]
    ]
