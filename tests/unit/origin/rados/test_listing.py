"""Listings by the functions of librados: ends and errors told apart, everything freed."""

import collections
import concurrent.futures
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from acstor.origin.rados.connection import Connection
from acstor.origin.rados.listing import BATCH, Listed, ListingError, PoolLister

POOL_ID = 7
END = -errno.ENOENT


class Library:
    """In the place of librados: lists what it is told to, and counts what is made and freed.

    :param names: of objects.
    :param result: of the call after the last name.
    """

    def __init__(self, names: list[str], result: int = END) -> None:
        self.names = names
        self.result = result
        self.results: dict[str, int] = {"rados_pool_lookup": POOL_ID}
        self.calls: collections.Counter[str] = collections.Counter()
        self.options: dict[bytes, bytes] = {}
        self.before_next: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*_: Any) -> int:
            self.calls[name] += 1
            return self.results.get(name, 0)

        return call

    def rados_conf_set(self, _: Any, option: bytes, value: bytes) -> int:
        self.options[option] = value
        return 0

    def rados_ioctx_get_id(self, _: Any) -> int:
        return POOL_ID

    def rados_nobjects_list_next(self, _: Any, key: Any, locator: Any, nspace: Any) -> int:
        self.before_next()
        if not self.names:
            return self.result
        key._obj.value, nspace._obj.value = self.names.pop(0).encode(), b"namespace"
        return 0

    @property
    def is_freed(self) -> bool:
        """True if every listing and context that was made is freed."""
        calls = self.calls
        return (
            calls["rados_ioctx_create"] == calls["rados_ioctx_destroy"]
            and calls["rados_nobjects_list_open"] == calls["rados_nobjects_list_close"]
        )


def lister(library: Library, seconds: float = 60.0) -> PoolLister:
    return PoolLister(Connection("ceph.conf", "acstor", seconds), library)


@pytest.mark.parametrize("count", [0, 1, BATCH, 2 * BATCH + 1])
def test_listing_is_whole_and_frees_what_it_holds(count: int) -> None:
    names = [f"name-{number}" for number in range(count)]
    library = Library(list(names))
    one = lister(library)
    assert list(one.entries("pool", "namespace")) == [Listed("namespace", name) for name in names]
    assert library.is_freed
    assert library.options[b"rados_osd_op_timeout"] == b"60"
    one.close()
    assert library.calls["rados_shutdown"] == 1


@pytest.mark.parametrize("count", [0, 1, BATCH + 1])
@pytest.mark.parametrize("code", [errno.EPERM, errno.ETIMEDOUT, errno.ESHUTDOWN, errno.EIO])
def test_any_error_is_no_end(code: int, count: int) -> None:
    library = Library(["name"] * count, -code)
    with pytest.raises(ListingError) as caught:
        list(lister(library).entries("pool", "namespace"))
    assert caught.value.code == code
    assert library.is_freed


@pytest.mark.parametrize("present", [END, POOL_ID + 1], ids=["removed", "made anew"])
def test_end_of_the_pool_is_no_end_of_the_listing(present: int) -> None:
    library = Library([])
    library.results["rados_pool_lookup"] = present
    with pytest.raises(ListingError) as caught:
        list(lister(library).entries("pool", "namespace"))
    assert caught.value.code == errno.ENOENT


@pytest.mark.parametrize("step", ["rados_conf_read_file", "rados_connect"])
def test_connection_that_failed_is_ended_and_tried_anew(step: str) -> None:
    library = Library(["name"])
    one = lister(library)
    library.results[step] = -errno.ETIMEDOUT
    with pytest.raises(ListingError):
        list(one.entries("pool", "namespace"))
    assert library.calls["rados_shutdown"] == 1
    library.results.clear()
    library.results["rados_pool_lookup"] = POOL_ID
    assert len(list(one.entries("pool", "namespace"))) == 1


def test_connection_that_is_not_permitted_may_be_one_to_a_slow_monitor() -> None:
    library = Library([])
    library.results["rados_connect"] = -errno.EPERM
    with pytest.raises(ListingError) as caught:
        list(lister(library).entries("pool", "namespace"))
    assert caught.value.code == errno.ENOTCONN


@pytest.mark.parametrize("step", ["rados_ioctx_create", "rados_nobjects_list_open"])
def test_listing_that_cannot_begin_fails(step: str) -> None:
    library = Library([])
    library.results[step] = -errno.ENOENT
    with pytest.raises(ListingError) as caught:
        list(lister(library).entries("pool", "namespace"))
    assert caught.value.code == errno.ENOENT
    assert library.calls["rados_ioctx_create"] - library.calls["rados_ioctx_destroy"] == (
        step == "rados_ioctx_create"
    )


def test_listing_that_nobody_reads_on_is_freed() -> None:
    library = Library(["name"] * (2 * BATCH))
    found = lister(library).entries("pool", "namespace")
    next(found)
    assert not library.is_freed
    del found
    assert library.is_freed


def test_listing_under_way_fails_when_the_lister_is_closed() -> None:
    library = Library(["name"] * (2 * BATCH))
    one = lister(library)
    found = one.entries("pool", "namespace")
    next(found)
    one.close()
    assert library.is_freed
    with pytest.raises(ListingError) as caught:
        collections.deque(found, maxlen=0)
    assert caught.value.code == errno.ESHUTDOWN
    assert library.is_freed


def test_listing_waits_for_another_one_no_longer_than_the_deadline() -> None:
    library = Library(["name"])
    one = lister(library, 0.1)
    is_asking, may_answer = threading.Event(), threading.Event()

    def asking() -> None:
        is_asking.set()
        may_answer.wait()

    library.before_next = asking
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: list(one.entries("pool", "namespace")))
        is_asking.wait()
        with pytest.raises(ListingError) as caught:
            list(one.entries("pool", "namespace"))
        assert caught.value.code == errno.ETIMEDOUT
        may_answer.set()
        assert len(first.result()) == 1


class LibraryWithBytes(Library):
    """Has a name that is no text before those that are."""

    def rados_nobjects_list_next(self, cursor: Any, key: Any, locator: Any, nspace: Any) -> int:
        if self.names and self.names[0] == "no text":
            self.names.pop(0)
            key._obj.value = b"packs/\xff"
            return 0
        return super().rados_nobjects_list_next(cursor, key, locator, nspace)


def test_name_that_is_no_text_ends_no_listing() -> None:
    library = LibraryWithBytes(["no text", "b"])
    found = PoolLister(Connection("ceph.conf", "acstor", 1.0), library).entries("pool", "x")
    assert [one.key for one in found] == ["packs/\ufffd", "b"]
