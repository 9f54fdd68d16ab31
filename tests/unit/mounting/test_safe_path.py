"""Nobody but root can have a file system mounted elsewhere."""

import os
import pathlib

import pytest

from acstor import exception
from acstor.mounting import safe_path

pytestmark = pytest.mark.root

USER = 65533


@pytest.fixture
def images(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "state" / "images"
    path.mkdir(parents=True)
    return path


def test_directories_of_root_are_safe(images: pathlib.Path) -> None:
    safe_path.require_root_alone(str(images))
    safe_path.require_directory_of_root(str(images))


def test_mount_point_itself_is_not_looked_at(images: pathlib.Path) -> None:
    os.chown(images, USER, USER)
    safe_path.require_root_alone(str(images))
    images.rmdir()
    safe_path.require_root_alone(str(images))


@pytest.mark.parametrize("depth", [0, 1])
def test_directory_of_another_above_is_refused(images: pathlib.Path, depth: int) -> None:
    os.chown(images.parents[depth], USER, USER)
    with pytest.raises(exception.InvalidError, match=str(images.parents[depth])):
        safe_path.require_root_alone(str(images))


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_directory_in_which_others_may_write_is_refused(images: pathlib.Path, mode: int) -> None:
    images.parent.chmod(mode)
    with pytest.raises(exception.InvalidError, match="could put another directory"):
        safe_path.require_root_alone(str(images))
    images.parent.chmod(mode | 0o1000)
    safe_path.require_root_alone(str(images))


def test_link_of_root_is_followed_to_what_must_be_safe(
    images: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    link = tmp_path / "link"
    for target in ("state", str(images.parent)):
        link.symlink_to(target)
        safe_path.require_root_alone(str(link / "images"))
        os.chown(images.parent, USER, USER)
        with pytest.raises(exception.InvalidError):
            safe_path.require_root_alone(str(link / "images"))
        os.chown(images.parent, 0, 0)
        link.unlink()


def test_link_of_another_is_not_followed(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o1777)
    link = tmp_path / "link"
    link.symlink_to("state")
    os.chown(link, USER, USER, follow_symlinks=False)
    with pytest.raises(OSError, match="symbolic links"):
        safe_path.require_root_alone(str(link / "images"))


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_link_of_root_that_another_gave_a_name_is_not_followed(
    images: pathlib.Path, tmp_path: pathlib.Path, mode: int
) -> None:
    """A hard link of it, in a directory where he may write (fs.protected_hardlinks = 0)."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "link").symlink_to(images)
    os.link(tmp_path / "link", theirs / "link", follow_symlinks=False)
    theirs.chmod(mode)
    os.chown(theirs, USER if mode == 0o755 else 0, -1)
    with pytest.raises(OSError, match="symbolic links"):
        safe_path.open_place(str(theirs / "link"))


def test_endless_links_end(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        safe_path.require_root_alone(str(tmp_path / "loop" / "images"))


def test_way_that_is_not_there_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        safe_path.require_root_alone(str(tmp_path / "no" / "images"))
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        safe_path.require_root_alone(str(tmp_path / "file" / "images"))


def test_only_a_directory_of_root_is_mounted_on(
    images: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "file").write_text("")
    os.chown(images, USER, USER)
    for path in (tmp_path / "link", tmp_path / "file", images):
        with pytest.raises(exception.InvalidError, match="not a directory of root"):
            safe_path.require_directory_of_root(str(path))
