"""Existence checks of an origin's tree, beside those who make it."""

import pathlib

import pytest

from acstor.origin import posix_presence, posix_tree
from acstor.origin.posix_tree import TEMPORARY, PosixTree


def test_tree_that_is_made_meanwhile_is_not_taken_for_gone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two store the first object of an origin: one finds no folder, and the other one makes it."""
    tree = PosixTree(str(tmp_path))
    is_folder = posix_presence.is_folder
    looks: list[str] = []

    def look(path: str) -> bool:
        looks.append(path)
        found = is_folder(path)
        if len(looks) == 1:
            tree.make_folder(tree.path(TEMPORARY))
            tree.check_there()
        return found

    monkeypatch.setattr(posix_tree, "is_folder", look)
    tree.check_there()
    assert looks[0] == tree.path(TEMPORARY)
