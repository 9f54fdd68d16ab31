"""The suite that every store of refs passes: see acstor/origin/base.py, RefStore."""

import concurrent.futures
import pathlib
import uuid
from collections.abc import Iterator

import pytest

from acstor import exception
from acstor.origin import base, faulty, retrying
from acstor.origin.rados.origin import RadosOrigin
from tests.compliance import origins


@pytest.fixture(params=origins.ALL)
def refs(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[base.RefStore]:
    with origins.opened(origins.factory_of(request.param, request), tmp_path) as origin:
        yield origin


def test_missing_ref_is_none(refs: base.RefStore) -> None:
    assert refs.get_ref("images/none") is None


def test_swapped_ref_has_the_new_content(refs: base.RefStore) -> None:
    first = refs.swap_ref("images/one", None, b"first")
    present = refs.get_ref("images/one")
    assert present == base.Ref(token=str(first), content=b"first")
    second = refs.swap_ref("images/one", first, b"second")
    assert first != second
    present = refs.get_ref("images/one")
    assert present is not None
    assert present.content == b"second"


def test_refreshed_ref_is_the_known_one_until_it_changes(refs: base.RefStore) -> None:
    assert refs.refresh_ref("ring", None) is None
    token = refs.swap_ref("ring", None, b"first")
    known = refs.refresh_ref("ring", None)
    assert known == base.Ref(str(token), b"first")
    assert refs.refresh_ref("ring", known) is known
    token = refs.swap_ref("ring", token, b"other")
    changed = refs.refresh_ref("ring", known)
    assert changed == base.Ref(str(token), b"other")
    refs.swap_ref("ring", token, b"first")  # as it was, and yet another state
    again = refs.refresh_ref("ring", changed)
    assert again is not None
    assert again.content == b"first"
    assert again != known
    refs.swap_ref("ring", again.token, None)
    assert refs.refresh_ref("ring", again) is None
    with pytest.raises(exception.InvalidError):
        refs.refresh_ref("../ring", None)


def test_swap_with_an_old_token_conflicts(refs: base.RefStore) -> None:
    first = refs.swap_ref("images/one", None, b"first")
    refs.swap_ref("images/one", first, b"second")
    for expected in (first, None, "no token"):
        with pytest.raises(exception.ConflictError):
            refs.swap_ref("images/one", expected, b"third")
    with pytest.raises(exception.ConflictError):
        refs.swap_ref("images/two", first, b"third")
    present = refs.get_ref("images/one")
    assert present is not None
    assert present.content == b"second"


def test_swap_to_none_removes_the_ref(refs: base.RefStore) -> None:
    token = refs.swap_ref("images/one", None, b"first")
    with pytest.raises(exception.ConflictError):
        refs.swap_ref("images/one", None, None)
    assert refs.swap_ref("images/one", token, None) is None
    assert refs.get_ref("images/one") is None
    assert refs.swap_ref("images/one", None, None) is None
    assert refs.swap_ref("images/one", None, b"again") is not None


def test_swap_too_long_is_invalid(refs: base.RefStore) -> None:
    with pytest.raises(exception.InvalidError):
        refs.swap_ref("ring", None, bytes(base.REF_SIZE_MAX + 1))


def test_list_refs_returns_the_folder_only(refs: base.RefStore) -> None:
    for name in ("images/one", "images/two", "gc/condemned/three", "ring"):
        refs.swap_ref(name, None, b"x")
    assert sorted(refs.list_refs("images/")) == ["images/one", "images/two"]
    assert sorted(refs.list_refs()) == ["gc/condemned/three", "images/one", "images/two", "ring"]


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a/.b", "A", "a b", "a\n", "é",
     "a/b/c/d/e/f/g/h/i", "a" * 256, "a\0b"],
)  # fmt: skip
def test_malformed_names_are_invalid(refs: base.RefStore, name: str) -> None:
    for call in (
        lambda: refs.get_ref(name),
        lambda: refs.refresh_ref(name, None),
        lambda: refs.swap_ref(name, None, b""),
    ):
        with pytest.raises(exception.InvalidError):
            call()


@pytest.mark.parametrize("prefix", ["packs", "../", "/", "a//"])
def test_malformed_prefixes_are_invalid(refs: base.RefStore, prefix: str) -> None:
    with pytest.raises(exception.InvalidError):
        list(refs.list_refs(prefix))


def test_ref_under_a_ref_is_invalid(refs: base.RefStore) -> None:
    token = refs.swap_ref("a", None, b"x")
    if isinstance(refs, RadosOrigin):  # it has no folders, so that both can be there
        assert refs.swap_ref("a/b", None, b"y")
        assert refs.get_ref("a") == base.Ref(str(token), b"x")
        return
    with pytest.raises(exception.InvalidError):
        refs.swap_ref("a/b", None, b"x")


def test_concurrent_swaps_lose_no_update(refs: base.RefStore) -> None:
    threads, rounds = 4, 25

    def count(_: int) -> None:
        for _ in range(rounds):
            while True:
                present = refs.get_ref("counter")
                number = int(present.content.split()[0]) if present else 0
                # Unique, so that a retry after a lost answer recognises its own work only.
                content = f"{number + 1} {uuid.uuid4()}"
                try:
                    refs.swap_ref("counter", present.token if present else None, content.encode())
                    break
                except exception.ConflictError:
                    continue

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(count, range(threads)))
    present = refs.get_ref("counter")
    assert present is not None
    total = int(present.content.split()[0])
    assert total >= threads * rounds
    if not loses_answers(refs):
        assert total == threads * rounds


def loses_answers(refs: base.RefStore) -> bool:
    """Return whether a swap that succeeded may be reported as a conflict, and so be done twice."""
    return isinstance(refs, retrying.RetryingOrigin) and isinstance(refs.inner, faulty.FaultyOrigin)


def test_refs_are_read_where_nothing_can_be_changed(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> None:
    with origins.shared(origins.READ_ONLY, tmp_path, request) as store:
        token = store.writer.swap_ref("images/one", None, b"x")
        known = store.reader.get_ref("images/one")
        assert known == base.Ref(str(token), b"x")
        assert store.reader.refresh_ref("images/one", known) is known
        assert store.reader.get_ref("images/two") is None
        assert list(store.reader.list_refs()) == ["images/one"]
        for content in (b"y", None):
            with pytest.raises(exception.UnsupportedError, match="read only"):
                store.reader.swap_ref("images/one", token, content)
        assert store.writer.get_ref("images/one") == known
