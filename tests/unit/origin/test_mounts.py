"""Warnings about the mount that an origin is on."""

import logging
import pathlib
from collections.abc import Callable

import pytest

from acstor.origin import mounts, posix

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
