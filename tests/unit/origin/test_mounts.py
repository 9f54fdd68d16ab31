"""Warnings about the mount that an origin is on."""

import logging
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from acstor import exception
from acstor.origin import mounts, posix
from acstor.origin.posix_former_refs import FormerRefs
from acstor.origin.posix_tree import PosixTree

LINES = """\
22 1 259:1 / / rw,relatime - ext4 /dev/root rw
31 22 0:40 / /srv rw - tmpfs tmpfs rw
32 22 0:41 / /srv/acstor {mount} - nfs4 server:/export rw,vers=4.2,{options},addr=10.0.0.9
33 22 0:42 / /srv/with\\040space rw - nfs4 server:/export rw,vers=3
34 22 0:43 / /srv/with\rreturn rw - nfs4 server:/export rw,vers=3
"""
GOOD = "lookupcache=none,acdirmin=0,acdirmax=0,hard"


Find = Callable[..., mounts.Mount | None]


@pytest.fixture
def find(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    def found(path: str, options: str = GOOD, mount: str = "rw") -> mounts.Mount | None:
        file = tmp_path / "mountinfo"
        file.write_text(LINES.format(options=options, mount=mount), newline="\n")
        monkeypatch.setattr(mounts, "MOUNTS", str(file))
        return mounts.find_mount(path)

    return found


def test_the_nearest_mount_counts(find: Find) -> None:
    for path, kind in (
        ("/srv/acstor", "nfs4"),
        ("/srv/acstor/a/../b", "nfs4"),
        ("/srv/acstor-2", "tmpfs"),
        ("/srv/with space/x", "nfs4"),
        ("/srv/with\rreturn/x", "nfs4"),
        ("/elsewhere", "ext4"),
    ):
        mount = find(path)
        assert mount is not None
        assert mount.kind == kind, path


def test_link_to_a_mount_is_followed(find: Find, tmp_path: pathlib.Path) -> None:
    link = tmp_path / "origin"
    link.symlink_to("/srv/acstor")
    for path in (link, link / "below"):
        mount = find(str(path))
        assert mount is not None
        assert mount.kind == "nfs4"


@pytest.mark.parametrize(
    ("options", "mount", "problems", "problems_with_locks"),
    [
        (GOOD, "rw", [], []),
        ("noac,lookupcache=none", "rw", [], []),
        ("actimeo=0", "rw", ["lookupcache=none,acdirmin=0,acdirmax=0"], None),
        ("lookupcache=pos,acdirmin=0,acdirmax=0", "rw", ["without lookupcache=none:"], None),
        (f"{GOOD},soft", "rw", ["soft"], None),
        (f"{GOOD},nolock", "rw", [], ["nolock"]),
        (f"{GOOD},local_lock=all", "rw", [], ["local_lock=all"]),
        (f"{GOOD},local_lock=none", "rw", [], []),
        (GOOD, "ro", ["ro"], None),
    ],
)
def test_options_of_nfs(
    find: Find,
    options: str,
    mount: str,
    problems: list[str],
    problems_with_locks: list[str] | None,
) -> None:
    found = find("/srv/acstor", options, mount)
    assert found is not None
    for needs_locks in (False, True):
        wanted = problems if problems_with_locks is None or not needs_locks else problems_with_locks
        texts = found.problems(needs_locks=needs_locks)
        assert len(texts) == len(wanted)
        for text, part in zip(texts, wanted, strict=True):
            assert part in text


def test_opening_warns(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(f"32 22 0:41 / {tmp_path} rw - nfs4 server:/export rw,soft\n")
    monkeypatch.setattr(mounts, "MOUNTS", str(file))
    with caplog.at_level(logging.WARNING):
        posix.PosixOrigin(str(tmp_path))
    assert "soft" in caplog.text
    assert "lookupcache=none" in caplog.text
    monkeypatch.setattr(mounts, "MOUNTS", str(tmp_path / "missing"))
    posix.PosixOrigin(str(tmp_path))


REMOTE = """\
1 0 259:1 / / rw - ext4 /dev/vda1 rw
2 1 0:40 / /srv/acstor rw - nfs4 server:/export rw
3 2 0:41 / /srv/acstor/local rw - xfs /dev/vdb rw
4 1 0:42 / /srv/with\\040space rw - ceph mon:/ rw
"""


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://origin:8080/", True),
        ("https://origin/", True),
        ("memory://", False),
        ("posix:///var/lib/acstor/origin", False),
        ("posix:///srv/acstor", True),
        ("posix:///srv/acstor/origin?x=y", True),
        ("posix:///srv/acstor-other", False),
        ("posix:///srv/acstor/local/origin", False),
        ("file:///srv/with space/origin", True),
        ("file:///srv/with%20space/origin", True),
    ],
)
def test_origin_is_remote_when_its_reads_go_over_the_network(
    url: str, expected: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(REMOTE)
    monkeypatch.setattr(mounts, "MOUNTS", str(file))
    assert mounts.is_remote(url) is expected


def test_what_is_mounted_on_demand_is_judged_when_it_is_mounted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its first use there is autofs only, of which nothing could be said."""
    file, root = tmp_path / "mountinfo", tmp_path / "origin"
    root.mkdir()
    file.write_text(f"31 22 0:40 / {root} rw - autofs systemd-1 rw,direct\n")
    monkeypatch.setattr(mounts, "MOUNTS", str(file))
    real = os.open

    def used(path: Any, *arguments: Any, **more: Any) -> int:
        if path == str(root):
            with file.open("a") as table:
                table.write(f"32 31 0:41 / {root} rw - nfs4 server:/export rw,{GOOD},nolock\n")
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", used)
    found = mounts.find_mount(str(root))
    assert found is not None
    assert found.is_network
    assert found.has_local_locks


def test_mount_on_demand_that_fails_is_told_and_takes_no_refs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, root = tmp_path / "mountinfo", tmp_path / "origin"
    root.mkdir()
    file.write_text(f"31 22 0:40 / {root} rw - autofs systemd-1 rw,direct\n")
    monkeypatch.setattr(mounts, "MOUNTS", str(file))
    found = mounts.find_mount(str(root))
    assert found is not None
    assert found.is_pending
    assert "fails" in found.problems(needs_locks=False)[0]
    refs = FormerRefs(PosixTree(str(root)), str(root / "refs-2"))
    with pytest.raises(exception.UnavailableError, match="mounted on demand"):
        refs.swap("images/a", None, b"{}")
    assert not list(root.iterdir())
