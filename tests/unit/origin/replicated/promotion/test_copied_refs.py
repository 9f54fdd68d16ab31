"""Copies of refs that are read as refs, and the steps of a promotion on its page."""

import re

import pytest

from acstor import exception
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.promotion.copied_refs import CopiedRefs, read_copies
from acstor.origin.replicated.promotion.new_home import TRANSITIONS
from acstor.origin.replicated.ref_copy import RefCopy, copy_name
from testbed.fixtures.documents import SOURCE

PAGE = SOURCE / "reference" / "state-machines" / "promotion.rst"


def test_page_has_all_transitions() -> None:
    rows = re.findall(r"^\| ``(.+?)`` +\| ``(.+?)`` +\| ``(.+?)`` +\|$", PAGE.read_text(), re.M)
    assert rows == [
        (state.value, event.value, after.value) for (state, event), after in TRANSITIONS.items()
    ]


def test_copies_are_refs_that_nobody_changes() -> None:
    refs = CopiedRefs({"images/1": b"one", "images/2": b"two", "ring": b"three"})
    found = refs.get_ref("images/1")
    assert found is not None
    assert found.content == b"one"
    assert refs.refresh_ref("images/1", found) is found
    assert refs.get_ref("images/3") is None
    assert list(refs.list_refs("images/")) == ["images/1", "images/2"]
    with pytest.raises(exception.UnsupportedError):
        refs.swap_ref("images/1", found.token, b"other")


def test_damaged_and_misplaced_copies_are_no_refs() -> None:
    member = MemoryOrigin()
    for name in ("ring", "decision", "members"):
        member.swap_ref(copy_name(name), None, RefCopy(name, b"content").encode())
    damaged = member.get_ref(copy_name("ring"))
    moved = member.get_ref(copy_name("decision"))
    assert damaged is not None
    assert moved is not None
    member.swap_ref(copy_name("ring"), damaged.token, damaged.content[:-1])
    member.swap_ref(copy_name("other"), None, moved.content)
    member.swap_ref("not-a-copy", None, b"content")
    assert read_copies(member) == ({"decision": b"content", "members": b"content"}, 2)
