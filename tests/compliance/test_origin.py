"""One suite that every origin passes: what callers may rely on, see acstor/origin/base.py."""

import concurrent.futures
import pathlib
import threading
import uuid
from collections.abc import Callable, Iterator
from importlib import metadata

import pytest

from acstor import exception
from acstor.drivers.cinder import native_threads
from acstor.origin import base, faulty, http, memory, posix, retrying
from testbed import origin_server


class ServedOrigin(http.HttpOrigin):
    """The HTTP driver with a server of its own over another origin."""

    def __init__(self, inner: base.Origin) -> None:
        self._server = origin_server.OriginServer(("127.0.0.1", 0), inner)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        super().__init__(f"http://127.0.0.1:{self._server.server_address[1]}/")

    def close(self) -> None:
        super().close()
        self._server.shutdown()
        self._server.server_close()


def posix_in_former_layout(path: pathlib.Path) -> base.Origin:
    """Return an origin that releases before repository version 3 may still be using."""
    (path / "refs").mkdir()
    origin = posix.PosixOrigin(str(path))
    assert origin.needs_locks
    return origin


FACTORIES: dict[str, Callable[[pathlib.Path], base.Origin]] = {
    "memory": lambda path: memory.MemoryOrigin(),
    "posix": lambda path: posix.PosixOrigin(str(path)),
    "posix, former layout": posix_in_former_layout,
    "http over memory": lambda path: ServedOrigin(memory.MemoryOrigin()),
    "http over posix": lambda path: ServedOrigin(posix.PosixOrigin(str(path))),
    "faulty": lambda path: faulty.FaultyOrigin(memory.MemoryOrigin()),
    "in native threads": lambda path: native_threads.NativeThreadOrigin(
        posix.PosixOrigin(str(path)), native_threads.DirectCaller()
    ),
    "retrying": lambda path: retrying.RetryingOrigin(posix.PosixOrigin(str(path)), 5.0),
    "retrying over lost answers": lambda path: retrying.RetryingOrigin(
        faulty.FaultyOrigin(
            memory.MemoryOrigin(),
            [
                faulty.Fault(operation, faulty.Effect.LOST_ANSWER, probability=0.3)
                for operation in (faulty.Operation.SWAP_REF, faulty.Operation.READ)
            ]
            + [faulty.Fault(faulty.Operation.READ, faulty.Effect.SHORT_READ, probability=0.5)],
        ),
        60.0,
        sleep=lambda seconds: None,
    ),
}


@pytest.fixture(params=sorted(FACTORIES))
def origin(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[base.Origin]:
    opened = FACTORIES[request.param](tmp_path)
    yield opened
    opened.close()


def test_get_after_put_returns_the_buffers_joined(origin: base.Origin) -> None:
    buffers: list[base.Buffer] = [b"one", bytearray(b"two"), memoryview(b"three"), b""]
    assert origin.put_if_absent("packs/aa/object", buffers)
    assert origin.get("packs/aa/object", 100) == b"onetwothree"
    assert origin.size("packs/aa/object") == 11
    assert origin.exists("packs/aa/object")


def test_put_many_buffers_stores_every_one(origin: base.Origin) -> None:
    buffers = [number.to_bytes(3, "big") for number in range(3000)]
    assert origin.put_if_absent("many", buffers)
    assert origin.get("many", 9000) == b"".join(buffers)


def test_put_of_nothing_stores_an_empty_object(origin: base.Origin) -> None:
    assert origin.put_if_absent("empty", [])
    assert origin.size("empty") == 0
    assert origin.get("empty", 0) == b""


def test_put_again_keeps_the_first_object(origin: base.Origin) -> None:
    assert origin.put_if_absent("object", [b"first"])
    assert not origin.put_if_absent("object", [b"second"])
    assert origin.get("object", 100) == b"first"


def test_put_by_many_threads_stores_exactly_one(origin: base.Origin) -> None:
    start = threading.Barrier(8)

    def put(number: int) -> bool:
        start.wait()
        return origin.put_if_absent("contended", [bytes([number]) * 10_000])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(8))) == 1
    assert len(set(origin.get("contended", 10_000))) == 1


def test_get_range_returns_the_bytes_in_it(origin: base.Origin) -> None:
    origin.put_if_absent("object", [bytes(range(256)) * 16])
    assert origin.get_range("object", 1000, 600) == (bytes(range(256)) * 16)[1000:1600]
    assert origin.get_range("object", 4096, 0) == b""


def test_readinto_at_the_end_reads_nothing(origin: base.Origin) -> None:
    origin.put_if_absent("object", [b"abc"])
    buffer = bytearray(8)
    assert origin.readinto("object", 3, memoryview(buffer)) == 0
    assert origin.readinto("object", 1000, memoryview(buffer)) == 0


def test_get_range_past_the_end_is_corrupt(origin: base.Origin) -> None:
    origin.put_if_absent("object", [b"abc"])
    with pytest.raises(exception.CorruptError):
        origin.get_range("object", 1, 3)


def test_get_larger_than_allowed_is_invalid(origin: base.Origin) -> None:
    origin.put_if_absent("object", [b"abc"])
    with pytest.raises(exception.InvalidError):
        origin.get("object", 2)


def test_negative_offset_is_invalid(origin: base.Origin) -> None:
    origin.put_if_absent("object", [b"abc"])
    with pytest.raises(exception.InvalidError):
        origin.readinto("object", -1, memoryview(bytearray(1)))


def test_missing_object_is_not_found(origin: base.Origin) -> None:
    assert not origin.exists("packs/missing")
    with pytest.raises(exception.NotFoundError):
        origin.size("packs/missing")
    with pytest.raises(exception.NotFoundError):
        origin.readinto("packs/missing", 0, memoryview(bytearray(1)))


def test_delete_removes_the_object_once(origin: base.Origin) -> None:
    origin.put_if_absent("packs/object", [b"abc"])
    assert origin.delete("packs/object")
    assert not origin.delete("packs/object")
    assert not origin.exists("packs/object")
    assert origin.put_if_absent("packs/object", [b"new"])


def test_list_returns_the_folder_only(origin: base.Origin) -> None:
    for key in ("packs/aa/1", "packs/ab/2", "manifests/aa/3", "format"):
        origin.put_if_absent(key, [b"x"])
    origin.swap_ref("images/one", None, b"x")
    assert sorted(origin.list("packs/")) == ["packs/aa/1", "packs/ab/2"]
    assert sorted(origin.list("packs/ab/")) == ["packs/ab/2"]
    assert list(origin.list("packs/zz/")) == []
    assert sorted(origin.list()) == ["format", "manifests/aa/3", "packs/aa/1", "packs/ab/2"]


def test_only_an_empty_folder_is_removed_and_comes_back(origin: base.Origin) -> None:
    origin.put_if_absent("volume-log/a/1", [b"abc"])
    origin.put_if_absent("volume-log/b/2", [b"abc"])
    assert not origin.remove_folder("volume-log/a/")
    assert not origin.remove_folder("volume-log/")
    assert not origin.remove_folder("volume-log/c/")
    assert origin.get("volume-log/a/1", 3) == b"abc"
    origin.delete("volume-log/a/1")
    origin.remove_folder("volume-log/a/")
    assert not origin.remove_folder("volume-log/a/")
    assert sorted(origin.list("volume-log/")) == ["volume-log/b/2"]
    assert origin.put_if_absent("volume-log/a/1", [b"new"])
    assert origin.get("volume-log/a/1", 3) == b"new"
    for prefix in ("volume-log", "../", "/"):
        with pytest.raises(exception.InvalidError):
            origin.remove_folder(prefix)


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a/.b", "A", "a b", "a\n", "é",
     "a/b/c/d/e/f/g/h/i", "a" * 256, "a\0b"],
)  # fmt: skip
def test_malformed_names_are_invalid(origin: base.Origin, name: str) -> None:
    for call in (
        lambda: origin.put_if_absent(name, [b""]),
        lambda: origin.size(name),
        lambda: origin.delete(name),
        lambda: origin.get_ref(name),
        lambda: origin.swap_ref(name, None, b""),
    ):
        with pytest.raises(exception.InvalidError):
            call()


def test_key_in_the_folder_of_refs_is_invalid(origin: base.Origin) -> None:
    with pytest.raises(exception.InvalidError):
        origin.put_if_absent("refs/images/one", [b""])


@pytest.mark.parametrize("prefix", ["packs", "../", "/", "a//"])
def test_malformed_prefixes_are_invalid(origin: base.Origin, prefix: str) -> None:
    with pytest.raises(exception.InvalidError):
        list(origin.list(prefix))
    with pytest.raises(exception.InvalidError):
        list(origin.list_refs(prefix))


def test_object_under_an_object_is_invalid(origin: base.Origin) -> None:
    origin.put_if_absent("a", [b"x"])
    with pytest.raises(exception.InvalidError):
        origin.put_if_absent("a/b", [b"x"])
    origin.swap_ref("a", None, b"x")
    with pytest.raises(exception.InvalidError):
        origin.swap_ref("a/b", None, b"x")


def test_missing_ref_is_none(origin: base.Origin) -> None:
    assert origin.get_ref("images/none") is None


def test_swapped_ref_has_the_new_content(origin: base.Origin) -> None:
    first = origin.swap_ref("images/one", None, b"first")
    present = origin.get_ref("images/one")
    assert present == base.Ref(token=str(first), content=b"first")
    second = origin.swap_ref("images/one", first, b"second")
    assert first != second
    present = origin.get_ref("images/one")
    assert present is not None
    assert present.content == b"second"


def test_refreshed_ref_is_the_known_one_until_it_changes(origin: base.Origin) -> None:
    assert origin.refresh_ref("ring", None) is None
    token = origin.swap_ref("ring", None, b"first")
    known = origin.refresh_ref("ring", None)
    assert known == base.Ref(str(token), b"first")
    assert origin.refresh_ref("ring", known) is known
    token = origin.swap_ref("ring", token, b"other")
    changed = origin.refresh_ref("ring", known)
    assert changed == base.Ref(str(token), b"other")
    origin.swap_ref("ring", token, b"first")  # as it was, and yet another state
    again = origin.refresh_ref("ring", changed)
    assert again is not None
    assert again.content == b"first"
    assert again != known
    origin.swap_ref("ring", again.token, None)
    assert origin.refresh_ref("ring", again) is None
    with pytest.raises(exception.InvalidError):
        origin.refresh_ref("../ring", None)


def test_swap_with_an_old_token_conflicts(origin: base.Origin) -> None:
    first = origin.swap_ref("images/one", None, b"first")
    origin.swap_ref("images/one", first, b"second")
    for expected in (first, None, "no token"):
        with pytest.raises(exception.ConflictError):
            origin.swap_ref("images/one", expected, b"third")
    with pytest.raises(exception.ConflictError):
        origin.swap_ref("images/two", first, b"third")
    present = origin.get_ref("images/one")
    assert present is not None
    assert present.content == b"second"


def test_swap_to_none_removes_the_ref(origin: base.Origin) -> None:
    token = origin.swap_ref("images/one", None, b"first")
    with pytest.raises(exception.ConflictError):
        origin.swap_ref("images/one", None, None)
    assert origin.swap_ref("images/one", token, None) is None
    assert origin.get_ref("images/one") is None
    assert origin.swap_ref("images/one", None, None) is None
    assert origin.swap_ref("images/one", None, b"again") is not None


def test_swap_too_long_is_invalid(origin: base.Origin) -> None:
    with pytest.raises(exception.InvalidError):
        origin.swap_ref("ring", None, bytes(base.REF_SIZE_MAX + 1))


def test_list_refs_returns_the_folder_only(origin: base.Origin) -> None:
    origin.put_if_absent("images/object", [b"x"])
    for name in ("images/one", "images/two", "gc/condemned/three", "ring"):
        origin.swap_ref(name, None, b"x")
    assert sorted(origin.list_refs("images/")) == ["images/one", "images/two"]
    assert sorted(origin.list_refs()) == ["gc/condemned/three", "images/one", "images/two", "ring"]


def test_concurrent_swaps_lose_no_update(origin: base.Origin) -> None:
    threads, rounds = 4, 25

    def count(_: int) -> None:
        for _ in range(rounds):
            while True:
                present = origin.get_ref("counter")
                number = int(present.content.split()[0]) if present else 0
                # Unique, so that a retry after a lost answer recognises its own work only.
                content = f"{number + 1} {uuid.uuid4()}"
                try:
                    origin.swap_ref("counter", present.token if present else None, content.encode())
                    break
                except exception.ConflictError:
                    continue

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(count, range(threads)))
    present = origin.get_ref("counter")
    assert present is not None
    total = int(present.content.split()[0])
    assert total >= threads * rounds
    if not loses_answers(origin):
        assert total == threads * rounds


def loses_answers(origin: base.Origin) -> bool:
    """Whether a swap that succeeded may be reported as a conflict, and so be done twice."""
    return isinstance(origin, retrying.RetryingOrigin) and isinstance(
        origin.inner, faulty.FaultyOrigin
    )


def test_sweep_leaves_what_is_published(origin: base.Origin) -> None:
    origin.put_if_absent("packs/object", [b"abc"])
    origin.swap_ref("ring", None, b"ring")
    origin.sweep()
    assert origin.get("packs/object", 3) == b"abc"
    assert origin.get_ref("ring") is not None


def test_every_registered_driver_is_in_this_suite() -> None:
    classes = {entry.load() for entry in metadata.entry_points(group="acstor.origin")}
    assert classes, "the package is not installed"
    assert classes <= {memory.MemoryOrigin, posix.PosixOrigin, http.HttpOrigin}
