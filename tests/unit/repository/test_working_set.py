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
from acstor.origin.memory import MemoryOrigin
from acstor.repository.gc.garbage import Collector
from acstor.repository.images import working_set
from acstor.repository.images.working_set import (
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
from testbed.doubles.memory_preloads import decode_bitmap, encode_bitmap

GOLDEN = pathlib.Path(__file__).parents[3] / "tests" / "golden"
IMAGE = str(uuid.UUID(int=1))
CHUNKS = 20


def report(chunks: set[int], *, boots: int = 1, is_new_reporter: bool = True) -> Report:
    return Report(CHUNKS, encode_bitmap(chunks, CHUNKS), boots, is_new_reporter)


def test_working_set_version_requires_update() -> None:
    assert VERSION == 1
    golden = (GOLDEN / "working-set-v1.json").read_bytes()
    found = WorkingSet.parse(golden, IMAGE)
    assert decode_bitmap(found.once) == {0, 1, 2, 9, 19}
    assert decode_bitmap(found.twice) == {0, 1, 9}
    assert (found.boots, found.reporters, found.chunk_count) == (5, 3, CHUNKS)
    # Not compared byte by byte: how zlib compresses is not ours to promise.
    assert json.loads(found.encode()).keys() == json.loads(golden).keys()
    assert WorkingSet.parse(found.encode(), IMAGE) == found


def test_every_chunk_that_a_boot_read_counts_at_first() -> None:
    origin = MemoryOrigin()
    add(origin, IMAGE, report({0, 1}))
    merged = add(origin, IMAGE, report({5}, is_new_reporter=False))
    assert read(origin, IMAGE) == merged
    assert decode_bitmap(merged.wanted) == {0, 1, 5}
    assert (merged.boots, merged.reporters) == (2, 1)


def test_what_one_host_alone_read_no_longer_counts_when_enough_have_reported() -> None:
    origin = MemoryOrigin()
    add(origin, IMAGE, report(set(range(CHUNKS))))  # something on this one read the whole disk
    for _ in range(REPORTERS_FOR_TWO - 1):
        merged = add(origin, IMAGE, report({3, 4}))
    assert decode_bitmap(merged.wanted) == {3, 4}
    assert merged.wanted_count == 2


@given(st.lists(st.tuples(st.sets(st.integers(0, CHUNKS - 1)), st.booleans()), max_size=8))
def test_order_of_reports_changes_nothing(reports: list[tuple[set[int], bool]]) -> None:
    sets = []
    for ordered in (reports, reports[::-1]):
        merged = WorkingSet.empty(CHUNKS)
        for chunks, is_new in ordered:
            merged = merged.merged(encode_bitmap(chunks, CHUNKS), 1, is_new_reporter=is_new)
        sets.append(merged)
        assert decode_bitmap(merged.twice) <= decode_bitmap(merged.once)
        counts = [sum(chunk in chunks for chunks, _ in reports) for chunk in range(CHUNKS)]
        assert decode_bitmap(merged.twice) == {i for i, count in enumerate(counts) if count > 1}
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
    assert decode_bitmap(found.once) == {*range(8), 19}
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
    assert decode_bitmap(add(origin, IMAGE, report({1})).wanted) == {1}
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
    origin.swap_ref(working_set_ref(IMAGE), None, b'{"version": 2}')
    with pytest.raises(exception.UnsupportedError):
        add(origin, IMAGE, report({1}))
    ref = origin.get_ref(working_set_ref(IMAGE))
    assert ref is not None
    assert ref.content == b'{"version": 2}'


def test_set_of_a_disk_of_another_length_is_replaced() -> None:
    origin = MemoryOrigin()
    longer = WorkingSet.empty(2 * CHUNKS).merged(b"\xff" * 5, 1, is_new_reporter=True)
    origin.swap_ref(working_set_ref(IMAGE), None, longer.encode())
    assert decode_bitmap(add(origin, IMAGE, report({1})).once) == {1}


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
