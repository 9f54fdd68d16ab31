"""Differences of two trees of files."""

import dataclasses

import pytest

from acstor import exception
from acstor.browsing.disk_files import FileFound, FileKind
from acstor.browsing.tree_differences import Change, differing_files


def file(path: str, kind: FileKind = FileKind.FILE, **fields: object) -> FileFound:
    """Return a file of a walk."""
    found = FileFound(path, kind, 10, 0o644, 0, 0, 1_000, None)
    return dataclasses.replace(found, **fields)  # type: ignore[arg-type]


def directory(path: str, **fields: object) -> FileFound:
    """Return a directory of a walk."""
    return file(path, FileKind.DIRECTORY, **fields)


def differing(before: list[FileFound], after: list[FileFound]) -> list[tuple[str, str]]:
    """Return path and change of each difference."""
    found = differing_files(iter(before), iter(after))
    return [(one.path, one.change.value) for one in found]


def test_same_trees_have_none() -> None:
    walk = [directory("/a"), file("/b"), file("/a/c")]
    assert differing(walk, walk) == []


def test_what_is_added_and_removed_is_told() -> None:
    before = [directory("/a"), file("/b"), file("/a/gone")]
    after = [directory("/a"), directory("/c"), file("/a/new"), file("/c/x")]
    assert differing(before, after) == [
        ("/b", "removed"),
        ("/c", "added"),
        ("/a/gone", "removed"),
        ("/a/new", "added"),
        ("/c/x", "added"),
    ]


def test_directory_below_comes_before_the_next_one() -> None:
    before = [directory("/a"), directory("/b"), directory("/a/c"), file("/a/c/x"), file("/b/y")]
    after = [directory("/a"), directory("/b"), directory("/a/c"), file("/b/y")]
    assert differing(before, after) == [("/a/c/x", "removed")]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"size_bytes": 11}, ("size_bytes",)),
        ({"modified_ns": 2_000}, ("modified_ns",)),
        ({"mode": 0o600, "uid": 5, "gid": 6}, ("mode", "uid", "gid")),
        ({"kind": FileKind.LINK, "target": "b"}, ("kind", "target")),
    ],
)
def test_what_changed_is_told(fields: dict[str, object], names: tuple[str, ...]) -> None:
    changed = dataclasses.replace(file("/a"), **fields)  # type: ignore[arg-type]
    [found] = differing_files(iter([file("/a")]), iter([changed]))
    assert (found.change, found.fields) == (Change.CHANGED, names)
    assert found.before is not None
    assert found.after is not None


def test_time_and_length_of_directories_do_not_count() -> None:
    changed = directory("/a", size_bytes=99, modified_ns=5)
    assert differing([directory("/a")], [changed]) == []


def test_order_is_that_of_bytes() -> None:
    # The byte 0xff is behind every text, though its text begins with a backslash.
    walk = [file("/a"), file("/ü"), file("/\\xff")]
    assert differing(walk, walk) == []


@pytest.mark.parametrize("second", ["/a", "/b"])
def test_walk_out_of_order_is_refused(second: str) -> None:
    with pytest.raises(exception.UnsupportedError, match="order"):
        differing([file("/b"), file(second)], [])
