"""The suite that every store of objects passes: see acstor/origin/base.py, ObjectStore."""

import concurrent.futures
import pathlib
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.rados.origin import RadosOrigin
from tests.compliance import origins
from tests.compliance.origins import Shared


@pytest.fixture(params=origins.OBJECTS)
def objects(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[base.ObjectStore]:
    with origins.opened(origins.factory_of(request.param, request), tmp_path) as origin:
        yield origin


@pytest.fixture(params=origins.SHARED)
def store(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Shared]:
    with origins.shared(request.param, tmp_path, request) as opened:
        yield opened


def filled(key: str, offset: int, size: int) -> base.ReadRange:
    """Return a range whose buffer holds something else than what is read."""
    return base.ReadRange(key, offset, memoryview(bytearray(b"?" * size)))


def test_put_many_buffers_stores_every_one(objects: base.ObjectStore) -> None:
    buffers = [number.to_bytes(3, "big") for number in range(3000)]
    assert objects.put_if_absent("many", buffers)
    assert objects.get("many", 9000) == b"".join(buffers)


LARGE = 9 << 20
"""More than two stripes of a store that divides objects."""


def test_large_object_is_stored_read_and_deleted_whole(objects: base.ObjectStore) -> None:
    content = random.Random(1).randbytes(LARGE + 12_345)
    parts = [content[start : start + (1 << 20)] for start in range(0, len(content), 1 << 20)]
    assert objects.put_if_absent("packs/aa/large", parts)
    assert not objects.put_if_absent("packs/aa/large", [b"other"])
    assert not objects.put_if_absent("packs/aa/large", [bytes(LARGE)])
    assert objects.size("packs/aa/large") == len(content)
    assert objects.get("packs/aa/large", 1 << 30) == content
    for offset, size in ((4 << 20, 1), ((4 << 20) - 1, 2), (5, LARGE), (LARGE, 12_345)):
        assert objects.get_range("packs/aa/large", offset, size) == content[offset : offset + size]
    with pytest.raises(exception.CorruptError):
        objects.get_range("packs/aa/large", LARGE, 12_346)
    assert list(objects.list("packs/")) == ["packs/aa/large"]
    assert objects.delete("packs/aa/large")
    assert not objects.delete("packs/aa/large")
    with pytest.raises(exception.NotFoundError):
        objects.get_range("packs/aa/large", 0, 1)
    assert list(objects.list("packs/")) == []
    assert objects.put_if_absent("packs/aa/large", [content[::-1]])
    assert objects.get_range("packs/aa/large", 4 << 20, 100) == content[::-1][4 << 20 :][:100]
    assert objects.delete("packs/aa/large")
    assert objects.put_if_absent("packs/aa/large", [b"small"])
    assert objects.get_range("packs/aa/large", 1, 4) == b"mall"


def test_put_of_nothing_stores_an_empty_object(objects: base.ObjectStore) -> None:
    assert objects.put_if_absent("empty", [])
    assert objects.size("empty") == 0
    assert objects.get("empty", 0) == b""


def test_put_again_keeps_the_first_object(objects: base.ObjectStore) -> None:
    assert objects.put_if_absent("object", [b"first"])
    assert not objects.put_if_absent("object", [b"second"])
    assert objects.get("object", 100) == b"first"


def test_put_by_many_threads_stores_exactly_one(objects: base.ObjectStore) -> None:
    start = threading.Barrier(8)

    def put(number: int) -> bool:
        start.wait()
        return objects.put_if_absent("contended", [bytes([number]) * 10_000])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(8))) == 1
    assert len(set(objects.get("contended", 10_000))) == 1


def test_get_after_put_returns_the_buffers_joined(store: Shared) -> None:
    buffers: list[base.Buffer] = [b"one", bytearray(b"two"), memoryview(b"three"), b""]
    assert store.writer.put_if_absent("packs/aa/object", buffers)
    assert store.reader.get("packs/aa/object", 100) == b"onetwothree"
    assert store.reader.size("packs/aa/object") == 11
    assert store.reader.exists("packs/aa/object")


def test_get_range_returns_the_bytes_in_it(store: Shared) -> None:
    store.writer.put_if_absent("object", [bytes(range(256)) * 16])
    assert store.reader.get_range("object", 1000, 600) == (bytes(range(256)) * 16)[1000:1600]
    assert store.reader.get_range("object", 4096, 0) == b""


def test_readinto_at_the_end_reads_nothing(store: Shared) -> None:
    store.writer.put_if_absent("object", [b"abc"])
    buffer = bytearray(8)
    assert store.reader.readinto("object", 3, memoryview(buffer)) == 0
    assert store.reader.readinto("object", 1000, memoryview(buffer)) == 0


def test_get_range_past_the_end_is_corrupt(store: Shared) -> None:
    store.writer.put_if_absent("object", [b"abc"])
    with pytest.raises(exception.CorruptError):
        store.reader.get_range("object", 1, 3)


def test_get_larger_than_allowed_is_invalid(store: Shared) -> None:
    store.writer.put_if_absent("object", [b"abc"])
    with pytest.raises(exception.InvalidError):
        store.reader.get("object", 2)


def test_negative_offset_is_invalid(store: Shared) -> None:
    store.writer.put_if_absent("object", [b"abc"])
    with pytest.raises(exception.InvalidError):
        store.reader.readinto("object", -1, memoryview(bytearray(1)))


def test_missing_object_is_not_found(store: Shared) -> None:
    assert not store.reader.exists("packs/missing")
    with pytest.raises(exception.NotFoundError):
        store.reader.size("packs/missing")
    with pytest.raises(exception.NotFoundError):
        store.reader.readinto("packs/missing", 0, memoryview(bytearray(1)))


def test_ranges_are_read_each_with_its_own_outcome(store: Shared) -> None:
    content = bytes(range(256)) * 64
    store.writer.put_if_absent("packs/aa/one", [content])
    store.writer.put_if_absent("packs/ab/two", [b"abc"])
    ranges = [
        filled("packs/aa/one", 5000, 3000),
        filled("packs/aa/none", 0, 1),
        filled("packs/ab/two", 1, 2),
        filled("packs/aa/one", 0, 0),
        filled("packs/ab/two", 1, 3),
        filled("packs/aa/one", 100, 4000),
    ]
    outcomes = store.reader.read_many(ranges, 60.0)
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        exception.NotFoundError,
        type(None),
        type(None),
        exception.CorruptError,
        type(None),
    ]
    for one, outcome in zip(ranges, outcomes, strict=True):
        if outcome is None:
            whole = content if one.key == "packs/aa/one" else b"abc"
            assert bytes(one.buffer) == whole[one.offset : one.offset + len(one.buffer)]
    assert list(store.reader.read_many([])) == []


def test_ranges_for_which_there_is_no_time_are_given_up(store: Shared) -> None:
    store.writer.put_if_absent("object", [b"abc"])
    outcomes = store.reader.read_many([filled("object", 0, 3), filled("object", 1, 1)], 0.0)
    assert len(outcomes) == 2
    assert all(isinstance(outcome, exception.DeadlineError) for outcome in outcomes)
    assert [bool(one) for one in store.reader.read_many([filled("object", 0, 3)])] == [False]


def test_delete_removes_the_object_once(objects: base.ObjectStore) -> None:
    objects.put_if_absent("packs/object", [b"abc"])
    assert objects.delete("packs/object")
    assert not objects.delete("packs/object")
    assert not objects.exists("packs/object")
    assert objects.put_if_absent("packs/object", [b"new"])


def test_only_an_empty_folder_is_removed_and_comes_back(objects: base.ObjectStore) -> None:
    logs = objects.of_member(None)
    logs.put_if_absent("volume-log/a/1", [b"abc"])
    logs.put_if_absent("volume-log/b/2", [b"abc"])
    assert not objects.remove_folder("volume-log/a/")
    assert not objects.remove_folder("volume-log/")
    assert not objects.remove_folder("volume-log/c/")
    assert objects.get("volume-log/a/1", 3) == b"abc"
    objects.delete("volume-log/a/1")
    objects.remove_folder("volume-log/a/")
    assert not objects.remove_folder("volume-log/a/")
    assert sorted(objects.list("volume-log/")) == ["volume-log/b/2"]
    assert logs.put_if_absent("volume-log/a/1", [b"new"])
    assert objects.get("volume-log/a/1", 3) == b"new"
    for prefix in ("volume-log", "../", "/"):
        with pytest.raises(exception.InvalidError):
            objects.remove_folder(prefix)


def test_key_in_the_folder_of_refs_is_invalid(objects: base.ObjectStore) -> None:
    with pytest.raises(exception.InvalidError):
        objects.put_if_absent("refs/images/one", [b""])


def test_list_returns_the_folder_only(store: Shared) -> None:
    for key in ("packs/aa/1", "packs/ab/2", "manifests/aa/3", "format"):
        store.writer.put_if_absent(key, [b"x"])
    assert sorted(store.reader.list("packs/")) == ["packs/aa/1", "packs/ab/2"]
    assert sorted(store.reader.list("packs/ab/")) == ["packs/ab/2"]
    assert list(store.reader.list("packs/zz/")) == []
    assert sorted(store.reader.list()) == ["format", "manifests/aa/3", "packs/aa/1", "packs/ab/2"]


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a/.b", "A", "a b", "a\n", "é",
     "a/b/c/d/e/f/g/h/i", "a" * 256, "a\0b"],
)  # fmt: skip
def test_malformed_keys_are_invalid(objects: base.ObjectStore, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: objects.put_if_absent(name, [b""]),
        lambda: objects.size(name),
        lambda: objects.delete(name),
    ]
    for call in calls:
        with pytest.raises(exception.InvalidError):
            call()


@pytest.mark.parametrize("prefix", ["packs", "../", "/", "a//"])
def test_malformed_prefixes_are_invalid(objects: base.ObjectStore, prefix: str) -> None:
    with pytest.raises(exception.InvalidError):
        list(objects.list(prefix))


def test_object_under_an_object_is_invalid(objects: base.ObjectStore) -> None:
    objects.put_if_absent("a", [b"x"])
    if isinstance(objects, RadosOrigin):  # it has no folders, so that both can be there
        assert objects.put_if_absent("a/b", [b"y"])
        assert objects.get("a", 1) == b"x"
        return
    with pytest.raises(exception.InvalidError):
        objects.put_if_absent("a/b", [b"x"])


def test_store_that_only_serves_reads_says_so(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> None:
    with origins.shared(origins.READ_ONLY, tmp_path, request) as store:
        store.writer.put_if_absent("object", [b"abc"])
        calls: list[Callable[[], object]] = [
            lambda: store.reader.put_if_absent("other", [b"x"]),
            lambda: store.reader.delete("object"),
        ]
        for call in calls:
            with pytest.raises(exception.UnsupportedError, match="read only"):
                call()
        assert list(store.reader.list()) == ["object"]
