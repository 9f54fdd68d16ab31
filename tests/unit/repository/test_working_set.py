"""Working sets of boots, merged in the origin."""

import base64
import json
import pathlib
import threading
import uuid
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acstor import exception
from acstor.control.chunk_set import BITMAP_CHUNKS_MAX, CHUNK_COUNT_MAX, ChunkSet
from acstor.origin.memory import MemoryOrigin
from acstor.repository.gc.garbage import Collector
from acstor.repository.images import working_set
from acstor.repository.images.working_set import (
    BITMAP_VERSION,
    CONTENT_SIZE_MAX,
    REPORTERS_FOR_TWO,
    VERSION,
    Report,
    WorkingSet,
    add,
    forget,
    read,
    working_set_ref,
)
from acstor.repository.repository import Repository

GOLDEN = pathlib.Path(__file__).parents[3] / "tests" / "golden"
IMAGE = str(uuid.UUID(int=1))
CHUNKS = 20


def report(chunks: set[int], *, boots: int = 1, is_new_reporter: bool = True) -> Report:
    return Report(CHUNKS, ChunkSet.of(chunks, CHUNKS), boots, is_new_reporter)


def test_working_set_version_requires_update() -> None:
    assert BITMAP_VERSION == 1
    golden = (GOLDEN / "working-set-v1.json").read_bytes()
    found = WorkingSet.parse(golden, IMAGE)
    assert set(found.once) == {0, 1, 2, 9, 19}
    assert set(found.twice) == {0, 1, 9}
    assert (found.boots, found.reporters, found.chunk_count) == (5, 3, CHUNKS)
    # Not compared byte by byte: how zlib compresses is not ours to promise.
    assert json.loads(found.encode()).keys() == json.loads(golden).keys()
    assert WorkingSet.parse(found.encode(), IMAGE) == found


def test_version_of_large_disks_requires_update() -> None:
    assert VERSION == 2
    golden = (GOLDEN / "working-set-v2.json").read_bytes()
    found = WorkingSet.parse(golden, IMAGE)
    assert set(found.once) == {0, 1, 9, 1 << 28, CHUNK_COUNT_MAX - 1}
    assert set(found.twice) == {0, CHUNK_COUNT_MAX - 1}
    assert (found.boots, found.reporters, found.chunk_count) == (5, 3, CHUNK_COUNT_MAX)
    assert json.loads(found.encode()).keys() == json.loads(golden).keys()
    assert WorkingSet.parse(found.encode(), IMAGE) == found


def test_disk_keeps_the_version_that_older_releases_read_as_long_as_it_can() -> None:
    versions = [
        json.loads(WorkingSet.empty(count).encode())["version"]
        for count in (CHUNKS, BITMAP_CHUNKS_MAX, BITMAP_CHUNKS_MAX + 1, CHUNK_COUNT_MAX)
    ]
    assert versions == [1, 1, 2, 2]


def test_reports_of_the_largest_disk_are_merged_at_the_cost_of_what_was_read() -> None:
    origin = MemoryOrigin()
    chunks = {number * 250_001 for number in range(4000)}
    boots = [chunks | {CHUNK_COUNT_MAX - 1}, chunks - {0}, chunks | {5}]
    for read_chunks in boots:
        fresh = ChunkSet.of(read_chunks, CHUNK_COUNT_MAX)
        merged = add(origin, IMAGE, Report(CHUNK_COUNT_MAX, fresh, 1, True))
    assert set(merged.wanted) == chunks
    assert read(origin, IMAGE) == merged
    ref = origin.get_ref(working_set_ref(IMAGE))
    assert ref is not None
    assert len(ref.content) < 1 << 20


def test_every_chunk_that_a_boot_read_counts_at_first() -> None:
    origin = MemoryOrigin()
    add(origin, IMAGE, report({0, 1}))
    merged = add(origin, IMAGE, report({5}, is_new_reporter=False))
    assert read(origin, IMAGE) == merged
    assert set(merged.wanted) == {0, 1, 5}
    assert (merged.boots, merged.reporters) == (2, 1)


def test_what_one_host_alone_read_no_longer_counts_when_enough_have_reported() -> None:
    origin = MemoryOrigin()
    add(origin, IMAGE, report(set(range(CHUNKS))))  # something on this one read the whole disk
    for _ in range(REPORTERS_FOR_TWO - 1):
        merged = add(origin, IMAGE, report({3, 4}))
    assert set(merged.wanted) == {3, 4}
    assert merged.wanted_count == 2


@given(st.lists(st.tuples(st.sets(st.integers(0, CHUNKS - 1)), st.booleans()), max_size=8))
def test_order_of_reports_changes_nothing(reports: list[tuple[set[int], bool]]) -> None:
    sets = []
    for ordered in (reports, reports[::-1]):
        merged = WorkingSet.empty(CHUNKS)
        for chunks, is_new in ordered:
            merged = merged.merged(ChunkSet.of(chunks, CHUNKS), 1, is_new_reporter=is_new)
        sets.append(merged)
        assert set(merged.twice) <= set(merged.once)
        counts = [sum(chunk in chunks for chunks, _ in reports) for chunk in range(CHUNKS)]
        assert set(merged.twice) == {i for i, count in enumerate(counts) if count > 1}
        assert WorkingSet.parse(merged.encode(), IMAGE) == merged
    assert sets[0] == sets[1]


def test_hosts_that_report_at_once_lose_nothing() -> None:
    origin = MemoryOrigin()
    threads = [
        threading.Thread(target=add, args=(origin, IMAGE, report({number, 19})))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found = read(origin, IMAGE)
    assert found is not None
    assert set(found.once) == {*range(8), 19}
    assert (found.boots, found.reporters) == (8, 8)


def _bomb() -> str:
    return base64.b64encode(zlib.compress(bytes(64 << 20))).decode()


@pytest.mark.parametrize(
    "fields",
    [
        {"chunk_count": -1},
        {"chunk_count": True},
        {"chunk_count": "20"},
        {"chunk_count": (1 << 26) + 1},
        {"chunk_count": (1 << 26) + 1, "version": 2},
        {"chunk_count": CHUNK_COUNT_MAX, "version": 2, "once": _bomb()},
        {"chunk_count": CHUNK_COUNT_MAX + 1, "version": 2},
        {"version": 2},
        {"chunk_count": 21, "once": "", "twice": ""},
        {"boots": None},
        {"reporters": 1.5},
        {"once": None},
        {"once": "!"},
        {"once": _bomb()},
        {"once": base64.b64encode(zlib.compress(b"\0\0\xff")).decode()},  # chunks past the last
        {"twice": base64.b64encode(zlib.compress(b"\xff\0\0")).decode()},  # not in once
    ],
)
def test_malformed_content_is_corrupt_and_learnt_again(fields: dict[str, object]) -> None:
    origin = MemoryOrigin()
    content = json.loads(WorkingSet.empty(CHUNKS).encode()) | fields
    origin.swap_ref(working_set_ref(IMAGE), None, json.dumps(content).encode())
    with pytest.raises(exception.CorruptError):
        read(origin, IMAGE)
    assert set(add(origin, IMAGE, report({1})).wanted) == {1}
    assert read(origin, IMAGE) is not None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null", b"[" * 5000, b"\xff"])
def test_content_that_is_no_working_set_is_corrupt(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        WorkingSet.parse(content, IMAGE)


def test_content_that_is_too_long_is_not_looked_at() -> None:
    with pytest.raises(exception.CorruptError):
        WorkingSet.parse(b" " * (CONTENT_SIZE_MAX + 1), IMAGE)


def test_set_of_a_newer_release_stays() -> None:
    origin = MemoryOrigin()
    origin.swap_ref(working_set_ref(IMAGE), None, b'{"version": 3}')
    with pytest.raises(exception.UnsupportedError):
        add(origin, IMAGE, report({1}))
    ref = origin.get_ref(working_set_ref(IMAGE))
    assert ref is not None
    assert ref.content == b'{"version": 3}'


def test_set_of_a_disk_of_another_length_is_replaced() -> None:
    origin = MemoryOrigin()
    longer = WorkingSet.empty(2 * CHUNKS).merged(
        ChunkSet.of(range(40), 40), 1, is_new_reporter=True
    )
    origin.swap_ref(working_set_ref(IMAGE), None, longer.encode())
    assert set(add(origin, IMAGE, report({1})).once) == {1}


def test_removed_image_takes_its_working_set_along() -> None:
    origin = MemoryOrigin()
    repository = Repository.init(origin)
    add(origin, IMAGE, report({1}))
    origin.swap_ref(f"images/{IMAGE}", None, b"{}")
    repository.remove_image(IMAGE)
    assert read(origin, IMAGE) is None
    assert not forget(origin, IMAGE)


def test_garbage_collection_removes_sets_of_images_that_are_gone() -> None:
    origin = MemoryOrigin()
    repository = Repository.init(origin)
    add(origin, IMAGE, report({1}))
    origin.swap_ref(f"{working_set.PREFIX}not-ours", None, b"{}")
    assert Collector(repository, "h1", 0.0).collect().working_sets == 1
    assert list(origin.list_refs(working_set.PREFIX)) == [f"{working_set.PREFIX}not-ours"]
