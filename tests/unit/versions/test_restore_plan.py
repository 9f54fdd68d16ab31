"""Plans of in-place restores: the way with fewest bytes, and that the plan gives the content."""

import dataclasses
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from acstor.origin import memory
from acstor.versions.restore_plan import (
    CurrentDisk,
    Extent,
    Method,
    RestorePlan,
    Supply,
    plan_restore,
)
from tests.unit.repository.images import CHUNK_SIZE, disk, image_id, open_repository, register

CHUNK = 1024


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A chunk of a disk of these tests."""

    digest: bytes
    stored_size: int = 100


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk whose chunks have a letter each, a dot for zeros."""

    text: str
    chunk_size: int = CHUNK

    @property
    def size_bytes(self) -> int:
        return len(self.text) * self.chunk_size

    def entries(self) -> Iterator[tuple[int, Chunk]]:
        for index, letter in enumerate(self.text):
            if letter != ".":
                yield index, Chunk(letter.encode())


def nothing(digest: bytes) -> bool:
    return False


def moved(plan: RestorePlan) -> dict[Method, int]:
    return {way: cost.fetched_bytes for way, cost in plan.costs.items()}


def test_reverse_delta_is_taken_where_little_has_changed() -> None:
    base, target, current = Disk("abcdef"), Disk("ABCDef"), Disk("ABCxef")
    plan = plan_restore(target, CurrentDisk(current), base, nothing)
    assert moved(plan) == {Method.REVERSE: 100, Method.DIFFERENTIAL: 400}
    assert plan.method is Method.REVERSE
    assert plan.extents == (Extent(3 * CHUNK, CHUNK, Supply.FETCH),)
    assert plan.cost.written_bytes == CHUNK


def test_differential_delta_is_taken_where_much_has_changed_since() -> None:
    base, target, current = Disk("abcdef"), Disk("aBcdef"), Disk("uBvwxy")
    plan = plan_restore(target, CurrentDisk(current), base, nothing)
    assert moved(plan) == {Method.REVERSE: 500, Method.DIFFERENTIAL: 100}
    assert plan.method is Method.DIFFERENTIAL
    assert plan.extents == (Extent(CHUNK, CHUNK, Supply.FETCH),)


def test_chunks_that_the_host_has_are_not_moved() -> None:
    base, target, current = Disk("abcdef"), Disk("aBCDef"), Disk("abcdef")
    plan = plan_restore(target, CurrentDisk(current), base, lambda digest: digest in b"BC")
    assert (plan.cost.fetched_bytes, plan.cost.local_bytes) == (100, 200)
    assert plan.extents == (
        Extent(CHUNK, 2 * CHUNK, Supply.LOCAL),
        Extent(3 * CHUNK, CHUNK, Supply.FETCH),
    )


def test_chunks_of_unknown_content_are_moved() -> None:
    """The paper's working VM sends offsets of modified chunks, not their content."""
    disk = Disk("abcdef")
    plan = plan_restore(disk, CurrentDisk(disk, {1, 4, 99}), Disk("......"), nothing)
    assert plan.method is Method.REVERSE
    assert plan.extents == (
        Extent(CHUNK, CHUNK, Supply.FETCH),
        Extent(4 * CHUNK, CHUNK, Supply.FETCH),
    )


def test_zeros_are_written_and_not_moved() -> None:
    target, current = Disk("a..d"), Disk("abcd")
    plan = plan_restore(target, CurrentDisk(current, {3}), None, lambda digest: digest == b"d")
    assert plan.extents == (
        Extent(CHUNK, 2 * CHUNK, Supply.ZERO),
        Extent(3 * CHUNK, CHUNK, Supply.LOCAL),
    )
    assert plan.cost.fetched_bytes == 0


def test_the_same_content_is_moved_once() -> None:
    plan = plan_restore(Disk("aaba"), None, None, nothing)
    assert plan.cost.fetched_bytes == 200
    assert [extent.supply for extent in plan.extents] == [
        Supply.FETCH,
        Supply.LOCAL,
        Supply.FETCH,
        Supply.LOCAL,
    ]


def test_a_disk_that_has_grown_is_written_to_the_end_of_the_version() -> None:
    target, current = Disk("ab"), Disk("xbcd")
    plan = plan_restore(target, CurrentDisk(current), None, nothing)
    assert plan.extents == (Extent(0, CHUNK, Supply.FETCH),)


def test_a_lost_disk_leaves_the_differential_delta() -> None:
    plan = plan_restore(Disk("aB"), None, Disk("ab"), nothing)
    assert set(plan.costs) == {Method.DIFFERENTIAL}
    other = CurrentDisk(Disk("aB", 2 * CHUNK))
    assert set(plan_restore(Disk("aB"), other, Disk("ab"), nothing).costs) == set(plan.costs)


def test_lazy_way_is_taken_where_a_boot_reads_little() -> None:
    base, target, current = Disk("abcdef"), Disk("ABCDEF"), Disk("uvwxyz")
    plan = plan_restore(
        target, CurrentDisk(current), base, nothing, working_set={0, 5}, is_lazy_allowed=True
    )
    assert moved(plan) == {Method.REVERSE: 600, Method.DIFFERENTIAL: 600, Method.LAZY: 200}
    assert (plan.method, plan.extents) == (Method.LAZY, ())
    assert "lazy moves fewest bytes: reverse moves 600" in plan.reason


def test_without_a_working_set_the_lazy_way_may_read_all() -> None:
    plan = plan_restore(Disk("AB"), None, Disk("ab"), nothing, is_lazy_allowed=True)
    assert moved(plan) == {Method.DIFFERENTIAL: 200, Method.LAZY: 200}
    assert plan.method is Method.DIFFERENTIAL


disks = st.text("abcd.", max_size=12)


def written(start: str, plan: RestorePlan, target: str) -> str:
    """Return a disk once the extents of a plan are written over it."""
    result = list(start.ljust(len(target), ".")[: len(target)])
    for offset, length, supply in plan.extents:
        for index in range(offset // CHUNK, (offset + length) // CHUNK):
            assert (target[index] == ".") == (supply is Supply.ZERO)
            result[index] = target[index]
    return "".join(result)


@given(disks, disks, disks, st.sets(st.integers(0, 15)), st.sets(st.sampled_from("abcd")))
def test_plans_give_the_content_and_move_the_least(
    target: str, current: str, base: str, changed: set[int], local: set[str]
) -> None:
    def is_local(digest: bytes) -> bool:
        return digest.decode() in local

    plan = plan_restore(Disk(target), CurrentDisk(Disk(current), changed), Disk(base), is_local)
    assert plan.cost.fetched_bytes == min(moved(plan).values())
    real = [
        "?" if index in changed and index < len(current) else letter
        for index, letter in enumerate(current)
    ]
    start = base if plan.method is Method.DIFFERENTIAL else "".join(real)
    assert written(start, plan, target) == target
    fetched = {
        target[index]
        for offset, length, supply in plan.extents
        if supply is Supply.FETCH
        for index in range(offset // CHUNK, (offset + length) // CHUNK)
    }
    assert 100 * len(fetched) == plan.cost.fetched_bytes
    ends = [extent.offset + extent.length for extent in plan.extents]
    assert all(end <= extent.offset for end, extent in zip(ends, plan.extents[1:], strict=False))


def test_manifests_of_the_repository_are_planned_with() -> None:
    repository = open_repository(memory.MemoryOrigin())
    disks = ((1, 2, 3, 4), (1, 20, 3, 0), (1, 20, 30, 4))
    for number, numbers in enumerate(disks):
        register(repository, number, disk(*numbers))
    manifests = (repository.get_image(image_id(number)).record.manifest for number in range(3))
    base, target, current = map(repository.load_manifest, manifests)
    plan = plan_restore(target, CurrentDisk(current), base, nothing)
    assert plan.method is Method.REVERSE
    assert plan.cost.fetched_bytes == CHUNK_SIZE
    assert plan.costs[Method.DIFFERENTIAL].fetched_bytes == CHUNK_SIZE
    assert plan.extents == (
        Extent(2 * CHUNK_SIZE, CHUNK_SIZE, Supply.FETCH),
        Extent(3 * CHUNK_SIZE, CHUNK_SIZE, Supply.ZERO),
    )
