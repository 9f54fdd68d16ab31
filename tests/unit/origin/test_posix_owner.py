"""Owner of what root makes in a user's directory: services go on after a command of root."""

import contextlib
import errno
import os
import pathlib
import stat
from collections.abc import Callable
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import posix

OWNER, GROUP = 4711, 4712
MODE = 0o2775

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "origin"
    path.mkdir()
    os.chown(path, OWNER, GROUP)
    path.chmod(MODE)
    return path


def foreign_folders(root: pathlib.Path) -> list[str]:
    """Return the folders to which the owner, or his group, cannot write."""
    found = []
    for path in root.rglob("*"):
        status = path.stat()
        expected = OWNER, GROUP, MODE
        if (
            path.is_dir()
            and (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) != expected
        ):
            found.append(str(path))
    return found


def test_folders_are_the_owners(root: pathlib.Path) -> None:
    origin = posix.PosixOrigin(str(root))
    origin.swap_ref("images/one", None, b"1")
    origin.put_if_absent("packs/aa/object", [b"x"])
    origin.sweep()
    assert foreign_folders(root) == []


def test_converted_refs_are_the_owners(root: pathlib.Path) -> None:
    (root / "refs").mkdir()
    os.chown(root / "refs", OWNER, GROUP)
    (root / "refs").chmod(MODE)
    origin = posix.PosixOrigin(str(root))
    origin.swap_ref("images/one", None, b"1")
    assert origin.convert_refs()
    assert foreign_folders(root) == []
    assert [path for path in (root / ".locks").iterdir() if path.stat().st_uid != OWNER] == []


def test_server_that_takes_root_for_another_is_obeyed(root: pathlib.Path) -> None:
    squashed = PermissionError(1, "root_squash")
    with (
        mock.patch.object(os, "fchown", side_effect=squashed) as chown,
        mock.patch.object(os, "fchmod", side_effect=squashed) as chmod,
    ):
        origin = posix.PosixOrigin(str(root))
        assert origin.swap_ref("images/one", None, b"1") is not None
    assert chown.called
    assert chmod.called


def test_folders_are_nobody_elses_where_the_root_is_not(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o755)
    posix.PosixOrigin(str(tmp_path)).swap_ref("images/one", None, b"1")
    folder = tmp_path / ".refs" / "images"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_lock_that_links_elsewhere_gives_nothing_away(
    root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A user who may write to the origin gets at no file of the machine where root runs a
    command."""
    secret = tmp_path_factory.mktemp("elsewhere") / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    (root / "refs").mkdir()
    origin = posix.PosixOrigin(str(root))
    origin.swap_ref("images/one", None, b"1")
    locks = list((root / ".locks").iterdir())
    assert locks
    for lock in locks:
        lock.unlink()
        lock.symlink_to(secret)
    with pytest.raises(exception.AcstorError):
        origin.swap_ref("images/one", None, b"2")
    with pytest.raises(exception.AcstorError):
        origin.convert_refs()
    status = secret.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o600)


def test_folder_that_became_a_link_is_not_given_away(
    root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("elsewhere")
    tree = posix.PosixOrigin(str(root))._tree
    (root / "link").symlink_to(other)
    with pytest.raises(OSError, match="link"):
        tree.give_to_owner(str(root / "link"))
    assert other.stat().st_uid == 0


@pytest.mark.parametrize(
    ("folder", "store"),
    [
        ("packs", lambda origin: origin.put_if_absent("packs/aa/object", [b"x"])),
        (".refs", lambda origin: origin.swap_ref("images/one", None, b"1")),
        (".temporary", lambda origin: origin.put_if_absent("object", [b"x"])),
        (".locks", lambda origin: origin.convert_refs()),
    ],
)
def test_folders_behind_a_link_are_neither_made_nor_given_away(
    root: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
    folder: str,
    store: Callable[[posix.PosixOrigin], object],
) -> None:
    """A user who may write to the origin has root make nothing elsewhere."""
    other = tmp_path_factory.mktemp("elsewhere")
    if folder == ".locks":
        (root / "refs").mkdir()
    (root / folder).symlink_to(other)
    with pytest.raises((exception.AcstorError, OSError)):
        store(posix.PosixOrigin(str(root)))
    assert list(other.iterdir()) == []
    assert other.stat().st_uid == 0


def test_temporary_folder_that_became_a_link_is_not_followed(
    root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("elsewhere")
    tree = posix.PosixOrigin(str(root))._tree
    os.rmdir(tree.make_temporary_folder())
    (root / ".temporary").rmdir()
    (root / ".temporary").symlink_to(other)
    with pytest.raises(OSError, match="temporary"):
        tree.make_temporary_folder()
    assert list(other.iterdir()) == []


def linked(path: pathlib.Path, other: pathlib.Path) -> pathlib.Path:
    """Move a folder away and put a link to ``other`` in its place; return a file in that."""
    path.rename(path.with_name(f"{path.name}-before"))
    path.symlink_to(other)
    file = other / "kept"
    file.write_text("somebody else's")
    return file


@pytest.mark.parametrize(
    ("folder", "change"),
    [
        (".temporary", lambda origin: origin.put_if_absent("packs/aa/other", [b"x"])),
        ("packs/aa", lambda origin: origin.put_if_absent("packs/aa/other", [b"x"])),
        ("packs", lambda origin: origin.put_if_absent("packs/aa/other", [b"x"])),
        (".refs/images/one@", lambda origin: origin.swap_ref("images/one", None, b"2")),
        (".refs/images", lambda origin: origin.swap_ref("images/two", None, b"1")),
    ],
)
def test_folder_that_became_a_link_is_not_written_through(
    root: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
    folder: str,
    change: Callable[[posix.PosixOrigin], object],
) -> None:
    """Whoever may write to the origin has root write, and remove, nothing elsewhere."""
    other = tmp_path_factory.mktemp("elsewhere")
    origin = posix.PosixOrigin(str(root))
    origin.swap_ref("images/one", None, b"1")
    origin.put_if_absent("packs/aa/object", [b"x"])
    kept = linked(root / folder, other)
    with pytest.raises((exception.AcstorError, OSError)):
        change(origin)
    assert list(other.iterdir()) == [kept]


def test_nothing_is_removed_through_a_link(
    root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("elsewhere")
    origin = posix.PosixOrigin(str(root))
    origin.put_if_absent("packs/aa/kept", [b"x"])
    kept = linked(root / "packs/aa", other)
    with pytest.raises(exception.AcstorError):
        origin.delete("packs/aa/kept")
    assert kept.read_text() == "somebody else's"


@pytest.mark.parametrize("content", [b"2", None])
def test_former_ref_is_not_changed_through_a_link(
    root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, content: bytes | None
) -> None:
    other = tmp_path_factory.mktemp("elsewhere")
    (root / "refs").mkdir()
    origin = posix.PosixOrigin(str(root))
    origin.swap_ref("images/kept", None, b"1")
    kept = linked(root / "refs/images", other)
    present = origin.get_ref("images/kept")
    assert present is not None
    with pytest.raises(exception.AcstorError):
        origin.swap_ref("images/kept", present.token, content)
    assert list(other.iterdir()) == [kept]
    assert kept.read_text() == "somebody else's"


def test_file_that_became_a_link_is_not_made_writable(
    root: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file gets its name only while it is writable, where a server takes root for another."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)

    def link(source: str, target: str) -> None:
        if not os.path.islink(source):
            os.unlink(source)
            os.symlink(secret, source)
        raise PermissionError(errno.EPERM, "not the owner")

    monkeypatch.setattr(os, "link", link)
    origin = posix.PosixOrigin(str(root))
    with contextlib.suppress(exception.AcstorError):
        origin.put_if_absent("object", [b"x"])
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_leftovers_of_a_folder_that_becomes_a_link_meanwhile_are_not_removed_elsewhere(
    root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may write to the origin swaps it between two reads of root's garbage
    collection."""
    other = tmp_path_factory.mktemp("other")
    (other / "folder").mkdir()
    for path in (other / "file", other / "folder" / "file"):
        path.write_text("root's")
    for path in (other / "file", other / "folder"):
        os.utime(path, (0, 0))
    origin = posix.PosixOrigin(str(root))
    origin.sweep()
    unlink = os.unlink

    def swap(path: str, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        if not (root / "moved").exists():
            (root / ".temporary").rename(root / "moved")
            (root / ".temporary").symlink_to(other)

    monkeypatch.setattr(os, "unlink", swap)
    with contextlib.suppress(exception.AcstorError):
        origin.sweep()
    assert (other / "file").exists()
    assert (other / "folder" / "file").exists()
