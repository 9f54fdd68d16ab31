"""The suite of origins: objects and refs side by side in one place."""

import pathlib
from collections.abc import Iterator
from importlib import metadata

import pytest

from acstor.origin import base, memory, posix
from acstor.origin.http.driver import HttpOrigin
from acstor.origin.rados.origin import RadosOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from tests.compliance import origins


@pytest.fixture(params=origins.ALL)
def origin(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[base.Origin]:
    with origins.opened(origins.factory_of(request.param, request), tmp_path) as opened:
        yield opened


def test_objects_and_refs_of_one_name_are_two(origin: base.Origin) -> None:
    origin.put_if_absent("images/object", [b"x"])
    origin.swap_ref("images/one", None, b"x")
    token = origin.swap_ref("format", None, b"ref")
    origin.put_if_absent("format", [b"object"])
    assert sorted(origin.list()) == ["format", "images/object"]
    assert sorted(origin.list_refs()) == ["format", "images/one"]
    assert sorted(origin.list_refs("images/")) == ["images/one"]
    assert origin.delete("format")
    assert origin.get_ref("format") == base.Ref(str(token), b"ref")
    assert not origin.exists("images/one")
    assert origin.get_ref("images/object") is None


def test_sweep_leaves_what_is_published(origin: base.Origin) -> None:
    origin.put_if_absent("packs/object", [b"abc"])
    origin.swap_ref("ring", None, b"ring")
    origin.sweep()
    assert origin.get("packs/object", 3) == b"abc"
    assert origin.get_ref("ring") is not None


def test_every_registered_driver_is_in_this_suite() -> None:
    classes = {entry.load() for entry in metadata.entry_points(group="acstor.origin")}
    assert classes, "the package is not installed"
    tried = {memory.MemoryOrigin, posix.PosixOrigin, HttpOrigin, RadosOrigin, ReplicatedOrigin}
    assert classes <= tried
