"""Guests: the recipe's key, the digest of a tree, the states."""

import concurrent.futures
import contextlib
import dataclasses
import json
import pathlib
import subprocess
import threading

import pytest

from testbed.exception import TestbedError
from testbed.guest import build
from testbed.guest.machine import TRANSITIONS, GuestState
from testbed.guest.recipe import GuestRecipe


def test_key_differs_with_every_field() -> None:
    recipe = GuestRecipe()
    changed = [
        dataclasses.replace(recipe, suite="trixie"),
        dataclasses.replace(recipe, packages=("systemd-sysv",)),
        dataclasses.replace(recipe, disk_size_bytes=1 << 30),
        dataclasses.replace(recipe, content_tree="/usr/sbin"),
    ]
    keys = {recipe.key(), *(other.key() for other in changed)}
    assert len(keys) == 1 + len(changed)
    assert GuestRecipe().key() == recipe.key()


def test_tree_digest_is_what_the_guests_script_prints(tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "usr" / "bin"
    (tree / "sub").mkdir(parents=True)
    for name, content in (("b", b"two"), ("a.c", b""), ("[", b"three"), ("sub/x", b"four")):
        (tree / name).write_bytes(content)
    (tree / "link").symlink_to("b")
    # The pipeline of acstor-content-check, below another root.
    command = f"cd {tmp_path} && find usr/bin -xdev -type f -print0 | sort -z | xargs -0 sha256sum"
    listing = subprocess.run(
        ["sh", "-c", f"LC_ALL=C; export LC_ALL; {command} | sed 's|  usr|  /usr|' | sha256sum"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert build.tree_digest(tmp_path, "/usr/bin") == listing.stdout.split()[0]
    (tree / "b").write_bytes(b"tWo")
    assert build.tree_digest(tmp_path, "/usr/bin") != listing.stdout.split()[0]


def written_guest(recipe: GuestRecipe, work: pathlib.Path) -> pathlib.Path:
    """Write what a build leaves, but for its disk."""
    built = work / "guest"
    built.mkdir()
    description = {
        "version": build.GUEST_VERSION,
        "disk_size_bytes": recipe.disk_size_bytes,
        "content_tree": recipe.content_tree,
        "content_digest": "",
        "login_prompt": "",
    }
    (built / "guest.json").write_text(json.dumps(description))
    return built


def test_build_keeps_nobody_from_another_guest(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = GuestRecipe(), dataclasses.replace(GuestRecipe(), suite="trixie")
    is_building, may_end = threading.Event(), threading.Event()

    def built(recipe: GuestRecipe, work: pathlib.Path) -> pathlib.Path:
        if recipe == slow:
            is_building.set()
            assert may_end.wait(60)
        return written_guest(recipe, work)

    monkeypatch.setattr(build, "_build", built)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        building = pool.submit(build.build_guest, slow, tmp_path)
        try:
            assert is_building.wait(60)
            first = build.build_guest(quick, tmp_path)
            assert build.build_guest(quick, tmp_path) == first, "nor from one that is there"
        finally:
            may_end.set()
        assert building.result(60) != first


def test_guest_that_several_want_at_once_is_built_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders = threading.Barrier(2)
    started: list[pathlib.Path] = []

    def quick_build(recipe: GuestRecipe, work: pathlib.Path) -> pathlib.Path:
        started.append(work)
        with contextlib.suppress(threading.BrokenBarrierError):
            builders.wait(0.2)  # for another builder, that should not come
        return written_guest(recipe, work)

    monkeypatch.setattr(build, "_build", quick_build)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        guests = list(pool.map(lambda _: build.build_guest(GuestRecipe(), tmp_path), range(2)))
    assert len(started) == 1
    assert guests[0] == guests[1] == build.load_guest(tmp_path / GuestRecipe().key())


def test_load_of_what_is_no_guest_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TestbedError, match="no built guest"):
        build.load_guest(tmp_path)
    (tmp_path / "guest.json").write_text('{"version": 999}')
    with pytest.raises(TestbedError, match="another release"):
        build.load_guest(tmp_path)


def test_every_state_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(GuestState)
    reachable = {GuestState.REQUESTED}.union(*TRANSITIONS.values())
    assert reachable == set(GuestState)
    assert not TRANSITIONS[GuestState.FAILED]
