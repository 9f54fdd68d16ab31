"""Failed look-ups (soft mount, stale handle, permission): none says that something is absent."""

import errno
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from acstor import exception
from acstor.origin import posix, posix_presence

CODES = [errno.ETIMEDOUT, errno.ESTALE, errno.EIO, errno.EACCES]
REFUSED = (exception.UnavailableError, exception.InvalidError)


@contextmanager
def looks_fail(
    is_hit: Callable[[str], bool], code: int = errno.ETIMEDOUT, times: int = 1000
) -> Iterator[None]:
    """Have ``stat`` and ``lstat`` of the paths that ``is_hit`` fail, so often."""
    left = [times]

    def failing(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def look(path: object, **options: object) -> os.stat_result:
            if isinstance(path, str) and is_hit(path) and left[0]:
                left[0] -= 1
                raise OSError(code, os.strerror(code), path)
            return real(path, **options)

        return look

    with (
        mock.patch.object(os, "stat", failing(os.stat)),
        mock.patch.object(os, "lstat", failing(os.lstat)),
    ):
        yield


@pytest.mark.parametrize("code", CODES)
def test_failed_look_is_an_error(tmp_path: pathlib.Path, code: int) -> None:
    for look in (posix_presence.is_there, posix_presence.is_folder):
        assert look(str(tmp_path))
        assert not look(str(tmp_path / "missing"))
        with looks_fail(lambda path: True, code), pytest.raises(OSError, match="Errno"):
            look(str(tmp_path))
    (tmp_path / "file").touch()
    assert posix_presence.is_there(str(tmp_path / "file"))
    assert not posix_presence.is_there(str(tmp_path / "file" / "below"))
    assert not posix_presence.is_folder(str(tmp_path / "file"))


@pytest.mark.parametrize("code", CODES)
def test_look_that_failed_leaves_no_hole_among_the_versions(
    tmp_path: pathlib.Path, code: int
) -> None:
    """While version n is there, n+1 was never removed: what makes the swap one."""
    origin, late = posix.PosixOrigin(str(tmp_path)), posix.PosixOrigin(str(tmp_path))
    first = token = origin.swap_ref("ring", None, b"1")
    assert late.get_ref("ring") is not None
    for number in range(2, 10):
        with looks_fail(lambda path: path.endswith(".1"), code):
            token = origin.swap_ref("ring", token, b"%d" % number)
    found = late.get_ref("ring")
    assert found is not None
    assert found.content == b"9"
    with pytest.raises(exception.ConflictError):
        late.swap_ref("ring", first, b"second win")
    found = late.get_ref("ring")
    assert found is not None
    assert found.content == b"9"


@pytest.mark.parametrize("code", CODES)
def test_reader_whose_look_fails_gets_no_older_state(tmp_path: pathlib.Path, code: int) -> None:
    origin, reader = posix.PosixOrigin(str(tmp_path)), posix.PosixOrigin(str(tmp_path))
    token = origin.swap_ref("ring", None, b"1")
    known = reader.get_ref("ring")
    origin.swap_ref("ring", token, b"2")
    with looks_fail(lambda path: path.endswith(".2"), code):
        with pytest.raises(REFUSED):
            reader.get_ref("ring")
        with pytest.raises(REFUSED):
            reader.refresh_ref("ring", known)
    found = reader.get_ref("ring")
    assert found is not None
    assert found.content == b"2"


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("is_new", [False, True])
def test_repository_of_version_2_is_never_taken_for_an_empty_one(
    tmp_path: pathlib.Path, code: int, is_new: bool
) -> None:
    (tmp_path / "refs").mkdir()
    origin = posix.PosixOrigin(str(tmp_path))
    origin.swap_ref("images/one", None, b"1")
    if is_new:
        origin = posix.PosixOrigin(str(tmp_path))
    calls: list[Callable[[], object]] = [
        lambda: list(origin.list_refs()),
        lambda: origin.get_ref("images/one"),
        lambda: origin.swap_ref("hosts/h", None, b"h"),
        lambda: origin.convert_refs(),
    ]
    for call in calls:
        with looks_fail(lambda path: path.endswith("/refs"), code), pytest.raises(REFUSED):
            call()
    assert list(posix.PosixOrigin(str(tmp_path)).list_refs()) == ["images/one"]
    assert not (tmp_path / ".refs").exists()


def test_refs_of_version_2_that_vanished_are_not_taken_for_none(tmp_path: pathlib.Path) -> None:
    (tmp_path / "refs").mkdir()
    origin = posix.PosixOrigin(str(tmp_path))
    origin.swap_ref("images/one", None, b"1")
    (tmp_path / "refs").rename(tmp_path / "elsewhere")
    for call in (lambda: list(origin.list_refs()), lambda: origin.swap_ref("ring", None, b"x")):
        with pytest.raises(exception.UnavailableError):
            call()
    assert not (tmp_path / ".refs").exists()
