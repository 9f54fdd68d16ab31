"""A store whose opening and whose calls end in time."""

import threading
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.member_calls.store import open_in_time


class HangingStore(MemoryOrigin):
    """A store that answers nothing until it is let go."""

    def __init__(self, is_over: threading.Event) -> None:
        super().__init__()
        self._is_over = is_over

    def size(self, key: str) -> int:
        self._is_over.wait(60)
        return super().size(key)

    def get_ref(self, name: str) -> base.Ref | None:
        self._is_over.wait(60)
        return super().get_ref(name)

    def list(self, prefix: str = "") -> Iterator[str]:
        self._is_over.wait(60)
        return super().list(prefix)


@pytest.fixture
def is_over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_store_that_hangs_as_it_is_opened_is_given_up(is_over: threading.Event) -> None:
    def hang(url: str) -> base.Origin:
        is_over.wait(60)
        return MemoryOrigin()

    with pytest.raises(exception.DeadlineError, match=r"member near did not answer within 0\.1 s"):
        open_in_time("near", "nfs", open_store=hang, seconds=0.1)


def test_calls_of_a_store_that_hangs_are_given_up(is_over: threading.Event) -> None:
    store = open_in_time(
        "near", "nfs", open_store=lambda url: HangingStore(is_over), call_seconds=0.1
    )
    with pytest.raises(exception.DeadlineError, match="member near"):
        store.size("key")
    with pytest.raises(exception.DeadlineError, match="member near"):
        store.get_ref("name")
    store.close()


def test_store_that_cannot_be_opened_says_why() -> None:
    def refuse(url: str) -> base.Origin:
        raise exception.ConfigurationError("no such directory")

    with pytest.raises(exception.ConfigurationError, match="no such directory"):
        open_in_time("near", "posix", open_store=refuse)


def test_store_is_as_the_one_below() -> None:
    below = MemoryOrigin()
    store = open_in_time("near", "memory", open_store=lambda url: below)
    assert store.put_if_absent("packs/a", [b"one", b"two"])
    assert not store.put_if_absent("packs/a", [b"other"])
    assert store.get("packs/a", 100) == b"onetwo"
    token = store.swap_ref("name", None, b"content")
    assert store.get_ref("name") == base.Ref(token or "", b"content")
    assert list(store.list("packs/")) == list(store.list_protected("packs/")) == ["packs/a"]
    assert list(store.list_refs()) == ["name"]
    assert store.is_protected("packs/a")
    assert store.space() == below.space()
    assert store.delete("packs/a")
    assert not below.exists("packs/a")
